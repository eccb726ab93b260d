"""From a name to a packed dataset on disk: fetch, pack, hold the statistics against the published ones, put in place; or say why not."""

import importlib.util
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gt_bench.data.checksums import PATH, Pin, add_pins, new_pin, read_pins, with_pin
from gt_bench.data.download import SourceError, fetch, reachable, sha256_of
from gt_bench.data.packed import DatasetUnavailable, PackedDataset, PackedHeader, replace_folder, write_header
from gt_bench.data.registry import catalog, get_spec
from gt_bench.data.spec import DatasetSpec
from gt_bench.data.statistics import compare
from gt_bench.utils.errors import DatasetError
from gt_bench.utils.io import held, make_folder, write_json
from gt_bench.utils.redact import shareable

Say = Callable[[str], None]


@dataclass(frozen=True)
class Prepared:
    """`state`: "packed" (now), "kept" (was valid already) or "unavailable" (then `reason` is set)."""

    state: str
    folder: Path
    header: PackedHeader | None = None
    reason: str | None = None
    seconds: float = 0.0


def prepare(
    name: str, data_root: str | Path = "data", mirrors: Sequence[str] = (), say: Say = lambda line: None
) -> Prepared:
    """Makes data_root/packed/NAME. Two processes that ask at once both succeed and the work is done once.

    A dataset that cannot be had becomes unavailable.json in that folder. Raises DatasetError where files are damaged or statistics
    differ from the published ones, UnknownDataset for an unknown name. What is packed there already survives every failure.
    """
    spec, root = get_spec(name), Path(data_root)
    folder = root / "packed" / name
    make_folder(root / ".locks")
    with held(root / ".locks" / f"{name}.lock"):
        start = time.monotonic()
        for left in (root / "packed").glob(".*"):  # of a process that was killed: nobody else prepares it now
            if re.fullmatch(rf"\.{re.escape(name)}(\.old)?\.[a-z0-9_]{{8}}", left.name) and left.is_dir():
                shutil.rmtree(left)
        pins = read_pins()
        header = valid(spec, folder, pins, say)
        if header is not None:
            _pin(header.pins, root)  # a lost lock file is written again
            return Prepared("kept", folder, header)
        missing = [module for module in spec.needs if importlib.util.find_spec(module) is None]
        try:
            if missing:
                raise SourceError(
                    f"this needs the package {', '.join(missing)}", [], f"pip install {' '.join(missing)}"
                )
            files = {file.path: fetch(with_pin(file, pins), root / "raw", mirrors, say) for file in spec.files}
        except SourceError as error:
            return _unavailable(spec, folder, error, time.monotonic() - start)
        used = {
            file.path: pins.get(file.path) or new_pin(sha256_of(files[file.path]), files[file.path].stat().st_size)
            for file in spec.files
            if file.sha256 is None
        }
        make_folder(folder.parent)
        temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{name}."))
        try:
            spec.prepare(spec, files, temporary / name)
            dataset = PackedDataset.open(temporary / name)
            header = dataset.header
            wrong = compare(spec.expected, header.statistics)
            if wrong:
                raise DatasetError(f"dataset {name!r} is not the published one:\n  " + "\n  ".join(wrong))
            del dataset
            if used:
                write_header(temporary / name, header.with_pins({path: asdict(pin) for path, pin in used.items()}))
                for path in _pin(used, root):
                    say(
                        f"{path}: no sha256 of it is published; the one found is pinned in {PATH}, which belongs in git"
                    )
            replace_folder(temporary / name, folder)
        except DatasetError as error:
            first = [str(files[path]) for path in used if path not in pins]
            if not first:
                raise
            raise DatasetError(
                f"{error}\nno digest of {', '.join(first)} is known, and none was pinned: if it is the wrong file, delete it and run the same "
                "command again"
            ) from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return Prepared("packed", folder, PackedDataset.open(folder).header, seconds=time.monotonic() - start)


def valid(
    spec: DatasetSpec, folder: Path, pins: Mapping[str, Pin] = MappingProxyType({}), say: Say = lambda line: None
) -> PackedHeader | None:
    """The header of what is packed in `folder` if it is whole and was made from this spec by this code, of files that `pins` allow, else None."""
    try:
        header = PackedDataset.open(folder).header
    except DatasetUnavailable:
        return None
    except DatasetError as error:
        say(" ".join(str(error).partition("; prepare it again")[0].split()))
        return None
    return header if header.provenance.get("spec") == spec.digest and not _contradictions(header, pins) else None


def contradicted(name: str, data_root: str | Path = "data") -> list[str]:
    """The raw files of which data.lock.json pins another content than the packed dataset `name` was made from. Cheap."""
    header = Path(data_root) / "packed" / name / "header.json"
    pins = read_pins()
    if not pins or not header.exists():
        return []
    try:
        return _contradictions(PackedHeader.model_validate_json(header.read_bytes()), pins)
    except (OSError, ValueError):  # damaged: the download stage prepares it again
        return []


def _contradictions(header: PackedHeader, pins: Mapping[str, Pin]) -> list[str]:
    return [path for path, pin in header.pins.items() if path in pins and pins[path].sha256 != pin["sha256"]]


def _pin(found: Mapping[str, Pin | Mapping[str, Any]], root: Path) -> list[str]:
    """Adds what the lock file lacks, and returns the paths that are new there."""
    new = {path: pin if isinstance(pin, Pin) else Pin(**pin) for path, pin in found.items()}
    with held(root / ".locks" / f"{PATH.name}.lock"):
        there = read_pins()
        new = {path: pin for path, pin in new.items() if path not in there}
        if new:
            add_pins(new)
    return list(new)


def available(name: str, data_root: str | Path = "data", mirrors: Sequence[str] = ()) -> tuple[bool, str]:
    """(can dataset `name` be had here?, from where or why not). Cheap: nothing is downloaded or read; a host is asked once, for 2 s."""
    spec, root = get_spec(name), Path(data_root)
    if (root / "packed" / name / "header.json").exists():
        return True, f"packed in {root / 'packed' / name}"
    missing = [module for module in spec.needs if importlib.util.find_spec(module) is None]
    if missing:
        return False, f"needs the package {', '.join(missing)}"
    if not spec.files:
        return True, "generated"
    answers = [reachable(file, root / "raw", mirrors) for file in spec.files]
    missing = [why for found, why in answers if not found]
    return (False, missing[0]) if missing else (True, answers[0][1])


def verify(data_root: str | Path = "data", say: Say = lambda line: None) -> list[str]:
    """Reads every raw file and packed dataset on disk again. Returns what is wrong, one line each."""
    root, wrong, pins = Path(data_root), [], read_pins()
    option = "" if root == Path("data") else f" --data-root {root}"
    for name, spec in catalog().items():
        for file in (with_pin(file, pins) for file in spec.files):
            path = root / "raw" / file.path
            if path.exists() and file.sha256 is not None and sha256_of(path) != file.sha256:
                wrong.append(
                    f"{path}: its sha256 is not the pinned {file.sha256}{' of data.lock.json' if file.pinned else ''}; delete it and run: python -m stages.download {name}{option}"
                )
    for folder in sorted((root / "packed").glob("[!.]*")):
        try:
            if (folder / "unavailable.json").exists() and not (folder / "header.json").exists():
                say(f"{folder.name}: not at hand")
                continue
            dataset = PackedDataset.open(folder)
            dataset.verify()
            if folder.name in catalog():
                wrong += [
                    f"{folder.name}: {line}"
                    for line in compare(catalog()[folder.name].expected, dataset.header.statistics)
                ]
            say(f"{folder.name}: good")
        except DatasetError as error:
            wrong.append(str(error))
    return list(dict.fromkeys(wrong))


def _unavailable(spec: DatasetSpec, folder: Path, error: SourceError, seconds: float) -> Prepared:
    if (folder / "header.json").exists():
        raise DatasetError(
            f"{folder} holds an older or a damaged version of {spec.name!r}, which stays as it is; the present one cannot be made: {error}"
        ) from error
    # from here it goes into results and reports
    tried = [{"source": shareable(source), "error": shareable(text)} for source, text in error.tried]
    note = {"dataset": spec.name, "reason": shareable(error.reason), "tried": tried, "remedy": shareable(error.remedy)}
    write_json(folder / "unavailable.json", note)
    return Prepared("unavailable", folder, reason=str(error), seconds=seconds)
