"""Golden values of dataset families: the output for small fabricated raw files, compared with families.json.

    python -m tests.gt_bench.data.family_values [DATASET ...] [--update]

Golden runs (gt_bench/experiment/golden_values.py) use miniatures, so they do not run the code that reads raw files.
Here it runs on the files of raw_files.py. For each dataset, families.json has the version of the family's module and
the output: header, shapes and types, digests of integers and norms of floating-point numbers. A change of the output
must raise the version; --update then saves the new values. Exits 1 if values differ.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import numpy as np
from safetensors.numpy import load_file

from gt_bench.experiment.golden_values import first_difference
from gt_bench.utils.code_digest import ROOT, source_file
from gt_bench.utils.digest import digest_of
from gt_bench.utils.io import write_bytes
from gt_bench.utils.json_types import Json
from gt_bench.utils.versions import version_of
from tests.gt_bench.data.checks import HEADER_FIELDS
from tests.gt_bench.data.raw_files import RAW

STORED = Path(__file__).with_name("families.json")
HERE = "tests/gt_bench/data"
Entry = dict[str, Json]


def compute(name: str) -> Entry:
    """The entry of dataset `name`, computed by the current code."""
    with tempfile.TemporaryDirectory(prefix="gt-family-") as folder:
        (raw := Path(folder, "raw")).mkdir()
        spec, paths = RAW[name](raw)
        spec.prepare(spec, paths, Path(folder, "out"))
        header = json.loads(Path(folder, "out", "header.json").read_text())
        arrays = load_file(Path(folder, "out", "data.safetensors"))
    values: Entry = {"header": {key: header[key] for key in (*HEADER_FIELDS, "statistics")}}
    values |= {key: cast(Json, described(array)) for key, array in sorted(arrays.items())}
    module = spec.prepare.__module__
    return sealed({"family": module, "version": version_of(module), "values": values})


def described(array: np.ndarray) -> dict[str, object]:
    """Type, shape and content of an array; for floating-point numbers only what is equal on all processors."""
    found: dict[str, object] = {"dtype": array.dtype.name, "shape": list(array.shape)}
    if array.dtype.kind != "f":
        return found | {"sha256": digest_of(array.ravel().tolist())[:16]}
    known = np.nan_to_num(array.astype(np.float64))
    shifted = known + np.cos(np.arange(array.size)).reshape(array.shape)  # its norm depends on order and sign
    norms = {"norm": float(np.linalg.norm(known)), "shifted_norm": float(np.linalg.norm(shifted))}
    return found | norms | {"missing": int(np.isnan(array).sum())}


def sealed(entry: Entry) -> Entry:
    """The entry with a checksum of its contents, so that a manual edit is detected."""
    content = {key: value for key, value in entry.items() if key != "sha256"}
    return content | {"sha256": digest_of(content)[:16]}


def stored() -> dict[str, Entry]:
    """The saved entries by dataset. Raises ValueError if one was edited."""
    entries = json.loads(STORED.read_text())
    for name, entry in entries.items():
        if entry != sealed(entry):
            remedy = f"restore it with `git checkout {STORED}`"
            raise ValueError(f"{STORED}: the entry of {name} was edited by hand; {remedy}")
    return entries


def problem(name: str, saved: Entry | None, now: Entry, update: bool = False) -> str | None:
    """The problem with the entry of a dataset; None if it agrees or may be saved.

    Args:
        saved: the saved entry, if any.
        now: the entry by the current code.
        update: accept new values of a new dataset, or under a raised version.
    """
    command = f"`python -m tests.gt_bench.data.family_values {name} --update`"
    module = str(now["family"])
    file = str(cast(Path, source_file(module)).relative_to(ROOT))
    if saved is None:
        return None if update else f"{name} has no entry in {HERE}/families.json; {command} computes it"
    before, after = cast(int, saved["version"]), cast(int, now["version"])
    versions = f"{file} has version {after}, its saved values have version {before}"
    if after < before:
        return f"{versions}: a version is never lowered"
    if after > before:
        return None if update else f"{versions}; {command} renews them"
    found = first_difference(cast(Mapping[str, Json], saved["values"]), cast(Mapping[str, Json], now["values"]))
    return found and (
        f"{found[0]} was {found[1]}, now {found[2]}: if this is meant, raise VERSION in {file} and run {command}. "
        f"If {HERE}/raw_files.py writes other files instead, delete the entry of {name} in families.json first"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 1 if a dataset differs from its saved values."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="DATASET", help=f"default: all. {', '.join(RAW)}")
    parser.add_argument("--update", action="store_true", help="save the values of new datasets and of raised versions")
    given = parser.parse_args(argv)
    if unknown := set(given.names) - set(RAW):
        parser.error(f"no raw files of {min(unknown)!r} in {HERE}/raw_files.py; known: {', '.join(RAW)}")
    entries = stored() if STORED.exists() else {}
    names, failed = given.names or list(RAW), 0
    for number, name in enumerate(names, 1):
        start = time.perf_counter()
        now = compute(name)
        wrong = problem(name, entries.get(name), now, given.update)
        print(f"[{number}/{len(names)}] {name}: {wrong or 'ok'} ({time.perf_counter() - start:.1f} s)", flush=True)
        failed += wrong is not None
        agrees = name in entries and problem(name, entries[name], now) is None
        if given.update and not wrong and not agrees:
            entries[name] = now
    if given.update:
        lines = [f"{json.dumps(name)}: {json.dumps(entries[name])}" for name in sorted(entries)]
        write_bytes(STORED, ("{\n" + ",\n".join(lines) + "\n}\n").encode())
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
