"""The shipped file of a cell: its form, reading and writing it, and what can be wrong with it.

    records/<suite>/<dataset>/<row>.json.gz    {"schema", "result", "records", "trials", "origins"}; equal records give equal bytes

`trials` are the runs of a cell's search: where they were imported, the search finds its way again without training.
`origins` are digests that can be compared where the data are not at hand: of the dataset's spec and of each encoding's algorithm.
"""

import gzip
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stages.files import write_bytes
from stages.params import Grid
from stages.recipe import digest_of
from stages.store import FINAL, SCHEMA, StoreError, run_digest

ROOT = Path("records")
STATUSES = (*FINAL, "oom", "timed-out")
RESULT_KEYS = ("cell", "suite", "dataset", "model", "status", "runs", "seeds", "recipe", "reduced")
RUN_KEYS = (
    "status", "error", "seed", "split", "recipe", "digests", "dataset", "metric", "direction", "parameters", "epochs", "best_epoch",
    "val", "test", "test_metrics",
)  # fmt: skip
MEASURED_KEYS = (
    "started",
    "finished",
    "seconds",
    "train_seconds_per_epoch",
    "eval_seconds_per_epoch",
    "peak_memory_mib",
    "device",
    "environment",
)


@dataclass(frozen=True)
class Shipped:
    """One file: a cell's result, its records in the order of `result["runs"]`, those of its search, and where data and encodings came from."""

    path: Path
    result: dict[str, Any]
    records: list[dict[str, Any]]
    origins: dict[str, Any] = field(default_factory=dict)
    trials: list[dict[str, Any]] = field(default_factory=list)

    @property
    def cell(self) -> str:
        return self.result["cell"]


def is_trial(record: dict[str, Any]) -> bool:
    """Whether a record is a search's run, which never read the test split."""
    run = record["deterministic"]
    digests = run["digests"]
    return record["digest"] == run_digest(
        run["recipe"], run["seed"], run["split"], digests["data"], digests["encodings"], digests["code"], test=False
    )


def read(path: Path) -> Shipped:
    """Raises StoreError for a file that cannot be read."""
    try:
        content = json.loads(gzip.decompress(path.read_bytes()))
        if content["schema"] != SCHEMA:
            raise ValueError(f"schema {content['schema']}, this code reads {SCHEMA}")
        return Shipped(path, dict(content["result"]), list(content["records"]), dict(content["origins"]), list(content["trials"]))
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path}: not an export of records ({error}); get the file again (`git checkout {path}`)") from None


def write(shipped: Shipped) -> Path:
    """Raises WriteError, which names the file."""
    content = {k: getattr(shipped, k) for k in ("result", "origins", "records", "trials")} | {"schema": SCHEMA}
    # GzipFile without name and time: the same bytes from every Python, whatever the clock says
    file = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=9, mtime=0) as packed:
        packed.write((json.dumps(content, separators=(",", ":"), sort_keys=True, allow_nan=True) + "\n").encode())
    return write_bytes(shipped.path, file.getvalue())


def shipped_cells(grid: Grid, names: Sequence[str] = (), root: Path = ROOT) -> Iterator[Shipped]:
    """The files of these suites and cells (all files for no name), in order of the path."""
    if not names:
        yield from (read(path) for path in sorted(root.glob("*/*/*.json.gz")))
        return
    for cell in grid.chosen(names):
        path = root / f"{cell.cell}.json.gz"
        if path.exists():
            yield read(path)


def record_problems(record: Any) -> list[str]:
    """What is wrong with one record by itself: shape, completeness, and whether its digest is the one its contents give."""
    if not isinstance(record, dict):
        return ["is no record"]
    run, measured = record.get("deterministic"), record.get("measured")
    lacking = [k for k in ("digest", "deterministic", "measured") if k not in record]
    for part, keys in ((run, RUN_KEYS), (measured, MEASURED_KEYS)):
        lacking += [k for k in keys if not isinstance(part, dict) or k not in part]
    if record.get("schema") != SCHEMA:
        return [f"schema {record.get('schema')!r}, this code reads {SCHEMA}"]
    if lacking:
        return [f"lacks {', '.join(dict.fromkeys(lacking))}"]
    wrong, digests = [], run["digests"]
    absent = [k for k in ("recipe", "data", "encodings", "code") if k not in digests]
    if absent:
        return [f"lacks the digest of {', '.join(absent)}"]
    key = (run["recipe"], run["seed"], run["split"], digests["data"], digests["encodings"], digests["code"])
    trial = is_trial(record)
    if not trial and run_digest(*key) != record["digest"]:
        wrong.append(f"its contents give the digest {run_digest(*key)}, not {record['digest']}")
    if digest_of(run["recipe"]) != digests["recipe"]:
        wrong.append("its recipe does not have the digest that it names")
    if run["status"] not in STATUSES:
        wrong.append(f"unknown status {run['status']!r}")
    lengths = {len(curve) for curve in run["epochs"].values()}
    if len(lengths) > 1:
        wrong.append(f"its curves have {', '.join(map(str, sorted(lengths)))} epochs")
    if run["status"] == "ok" and not trial and not isinstance(run["test"], int | float):
        wrong.append("status ok without a test value")
    if trial and run["test"] is not None:
        wrong.append("a search trial with a test value")
    return wrong


def problems_of(shipped: Shipped, root: Path = ROOT) -> list[str]:
    """What is wrong with one file: its records, their order and number, its name; one line each."""
    result, where = shipped.result, shipped.path
    lacking = [k for k in RESULT_KEYS if k not in result]
    if lacking:
        return [f"{where}: its result lacks {', '.join(lacking)}"]
    parts = (("record", shipped.records), ("trial", shipped.trials))
    wrong = [f"{where}: {what} {n}: {line}" for what, held in parts for n, record in enumerate(held) for line in record_problems(record)]
    if wrong:
        return wrong
    wrong = [f"{where}: record {n}: is a search trial" for n, record in enumerate(shipped.records) if is_trial(record)]
    wrong += [f"{where}: trial {n}: is no search trial" for n, record in enumerate(shipped.trials) if not is_trial(record)]
    digests = [r["digest"] for r in shipped.records]
    seeds = [r["deterministic"]["seed"] for r in shipped.records]
    if where != root / f"{result['cell']}.json.gz":
        wrong.append(f"{where}: is the file of {result['cell']}")
    if digests != list(result["runs"]):
        wrong.append(f"{where}: its records are not the runs that its result names")
    repeated = sorted({s for s in seeds if seeds.count(s) > 1})
    if repeated or len(set(digests)) < len(digests):
        wrong.append(f"{where}: seed {', '.join(map(str, repeated))} stands twice")
    if any(r["deterministic"]["dataset"] != result["dataset"] for r in (*shipped.records, *shipped.trials)):
        wrong.append(f"{where}: a record is of another dataset")
    return wrong
