"""Prepare datasets: fetch raw files, pack them, compare the statistics with the published ones, move into place."""

import importlib.util
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from gt_bench.data.download import SourceError, fetch, reachable
from gt_bench.data.packed import DatasetUnavailable, PackedDataset, PackedHeader
from gt_bench.data.packed_writer import replace_folder, write_header
from gt_bench.data.pins import PATH, Pin, add_pins, new_pin, read_pins, with_pin
from gt_bench.data.readers import file_digest, located
from gt_bench.data.registry import UnknownDataset, catalog, get_spec
from gt_bench.data.spec import DatasetSpec
from gt_bench.data.statistics import compare
from gt_bench.utils.errors import DatasetError
from gt_bench.utils.io import held, make_folder, write_json
from gt_bench.utils.redact import shareable

Say = Callable[[str], None]


@dataclass(frozen=True)
class Prepared:
    """Result of a preparation.

    Attributes:
        state: "packed" (now), "up to date" (already packed) or "unavailable".
        folder: folder of the dataset.
        header: its header; None if it is unavailable.
        reason: why it is unavailable.
        seconds: duration of the preparation.
    """

    state: str
    folder: Path
    header: PackedHeader | None = None
    reason: str | None = None
    seconds: float = 0.0


def prepared_dataset(
    name: str, data_root: str | Path = "data", mirrors: Sequence[str] = (), say: Say = lambda line: None
) -> PackedDataset:
    """Prepare a dataset unless it is packed, and open it; arguments as of `prepare`.

    Raises:
        DatasetUnavailable: it cannot be fetched here.
        DatasetError: files are damaged, or statistics differ from the published ones.
        UnknownDataset: there is no such dataset.
    """
    prepared = prepare(name, data_root, mirrors, say)
    if prepared.state == "unavailable":
        raise DatasetUnavailable(f"is not available: {prepared.reason}", file=f"dataset {name!r}")
    return PackedDataset.open(prepared.folder)


def prepare(
    name: str, data_root: str | Path = "data", mirrors: Sequence[str] = (), say: Say = lambda line: None
) -> Prepared:
    """Prepare a dataset in data_root/packed/NAME. Safe for several processes: only one of them does the work.

    If a dataset is unavailable, unavailable.json is written to that folder. An existing packed dataset survives every
    failure.

    Args:
        name: name of the dataset.
        data_root: folder of raw/ and packed/.
        mirrors: folders or URLs to try before the official addresses.
        say: receives progress messages.

    Returns:
        What was done.

    Raises:
        DatasetError: files are damaged, or statistics differ from the published ones.
        UnknownDataset: there is no such dataset.
    """
    spec, root = get_spec(name), Path(data_root)
    folder = root / "packed" / name
    make_folder(root / ".locks")
    with held(root / ".locks" / f"{name}.lock"):
        start = time.monotonic()
        # temporary folders of killed processes; this process holds the lock
        for leftover in (root / "packed").glob(".*"):
            if re.fullmatch(rf"\.{re.escape(name)}(\.old)?\.[a-z0-9_]{{8}}", leftover.name) and leftover.is_dir():
                shutil.rmtree(leftover)
        pins = read_pins()
        header = valid(spec, folder, pins, say)
        if header is not None and not _may_have_changed(spec):
            _pin({path: Pin(**pin) for path, pin in header.pins.items()}, root)  # restores a lost lock file
            return Prepared("up to date", folder, header)
        try:
            if missing := _missing_packages(spec):
                reason = f"the package {', '.join(missing)} is not installed"
                raise SourceError(reason, [], f"run: pip install {' '.join(missing)}")
            files = {file.path: fetch(with_pin(file, pins), root / "raw", mirrors, say) for file in spec.files}
        except SourceError as error:
            return _unavailable(spec, folder, error, time.monotonic() - start)
        used = {
            file.path: pins.get(file.path) or new_pin(file_digest(files[file.path]), files[file.path].stat().st_size)
            for file in spec.files
            if file.sha256 is None
        }
        make_folder(folder.parent)
        temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{name}."))
        try:
            with located(f"dataset {name!r}"):
                spec.prepare(spec, files, temporary / name)
            dataset = PackedDataset.open(temporary / name)
            header = dataset.header
            wrong = compare(spec.expected, header.statistics)
            if wrong:
                problem = "differs from the published one:\n  " + "\n  ".join(wrong)
                raise DatasetError(problem, file=f"dataset {name!r}")
            del dataset
            if used:
                write_header(temporary / name, header.with_pins({path: pin.model_dump() for path, pin in used.items()}))
                for path in _pin(used, root):
                    say(f"{path}: its host publishes no sha256; pinned the one found in {PATH}, which belongs in git")
            replace_folder(temporary / name, folder)
        except DatasetError as error:
            first = [str(files[path]) for path in used if path not in pins]
            if not first:
                raise
            raise DatasetError(
                f"{error}\nno digest of {', '.join(first)} is known, and none was pinned",
                value=first,
                remedy="if it is the wrong file, delete it and run the command again",
            ) from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return Prepared("packed", folder, PackedDataset.open(folder).header, seconds=time.monotonic() - start)


def valid(
    spec: DatasetSpec, folder: Path, pins: Mapping[str, Pin] = MappingProxyType({}), say: Say = lambda line: None
) -> PackedHeader | None:
    """Check whether a packed dataset is up to date.

    Args:
        spec: the current spec.
        folder: folder of the packed dataset.
        pins: pinned digests of raw files.
        say: receives a message if the files are damaged or have changed.

    Returns:
        The header if the dataset is undamaged, was made from this spec by this version, and of files that agree with
        `pins`; else None.
    """
    try:
        header = PackedDataset.open(folder).header
    except DatasetUnavailable:
        return None
    except DatasetError as error:
        say(" ".join(f"{error.file}: {error.problem}".split()))
        return None
    return header if header.provenance.get("spec") == spec.digest and not _contradictions(header, pins) else None


def contradicted(name: str, data_root: str | Path = "data") -> list[str]:
    """Find raw files whose pin in data.lock.json differs from the file the packed dataset was made from.

    Args:
        name: name of the dataset.
        data_root: folder of packed/.

    Returns:
        Paths of the raw files.
    """
    header, pins = Path(data_root) / "packed" / name / "header.json", read_pins()
    if not header.exists():
        return []
    try:
        return _contradictions(PackedHeader.model_validate_json(header.read_bytes()), pins)
    except (OSError, ValueError):  # damaged: the download stage prepares it again
        return []


def open_unchanged(folder: Path) -> PackedDataset:
    """Open a packed dataset, and check that user-supplied data and how they are read and split are as they were packed.

    Args:
        folder: data/packed/NAME.

    Raises:
        DatasetUnavailable: nothing is packed in the folder.
        DatasetError: the files are damaged, or the data have changed since.
    """
    packed = PackedDataset.open(folder)
    header = packed.header
    if "content" not in header.provenance.get("arguments", {}):  # of the benchmark
        return packed
    try:
        spec = get_spec(header.name)
    except UnknownDataset:  # only the packed data are here
        return packed
    source = getattr(spec.arguments.get("reader"), "source", None)
    if isinstance(source, str | Path) and not Path(source).exists():
        return packed
    if header.provenance.get("spec") != spec.digest:
        raise DatasetError(
            f"its files, function or entry in datasets.yaml changed after {folder} was packed",
            file=f"dataset {header.name!r}",
            remedy=f"pack it again: python -m stages.download {header.name} and python -m stages.encode "
            f"{header.name}, or gt-bench try MODEL {header.name}",
        )
    return packed


def _may_have_changed(spec: DatasetSpec) -> bool:
    """Return whether only calling a user's function shows if its data are still the same."""
    source = getattr(spec.arguments.get("reader"), "source", None)
    return source is not None and not isinstance(source, str | Path) and not getattr(source, "fixed", False)


def _contradictions(header: PackedHeader, pins: Mapping[str, Pin]) -> list[str]:
    return [path for path, pin in header.pins.items() if path in pins and pins[path].sha256 != pin["sha256"]]


def _pin(pins: Mapping[str, Pin], root: Path) -> list[str]:
    """Add pins that are missing in the lock file. Returns their paths."""
    with held(root / ".locks" / f"{PATH.name}.lock"):
        known = read_pins()
        new = {path: pin for path, pin in pins.items() if path not in known}
        if new:
            add_pins(new)
    return list(new)


def _missing_packages(spec: DatasetSpec) -> list[str]:
    return [module for module in spec.needs if importlib.util.find_spec(module) is None]


def available(name: str, data_root: str | Path = "data", mirrors: Sequence[str] = ()) -> tuple[bool, str]:
    """Test whether a dataset is available. Cheap: nothing is downloaded or read; each host is probed once, for 2 s.

    Args:
        name: name of the dataset.
        data_root: folder of raw/ and packed/.
        mirrors: as in `prepare`.

    Returns:
        Whether it is available, and its source or the reason why not.
    """
    spec, root = get_spec(name), Path(data_root)
    if (root / "packed" / name / "header.json").exists():
        return True, f"packed in {root / 'packed' / name}"
    if missing := _missing_packages(spec):
        return False, f"needs the package {', '.join(missing)}"
    if not spec.files:
        return True, "generated"
    answers = [reachable(file, root / "raw", mirrors) for file in spec.files]
    return next((answer for answer in answers if not answer[0]), answers[0])


def verify(data_root: str | Path = "data", say: Say = lambda line: None) -> list[str]:
    """Read every raw file and packed dataset on disk again.

    Args:
        data_root: folder of raw/ and packed/.
        say: receives a line per dataset.

    Returns:
        One line per problem.
    """
    root, wrong, pins = Path(data_root), [], read_pins()
    option = "" if root == Path("data") else f" --data-root {root}"
    for name, spec in catalog().items():
        for file in (with_pin(file, pins) for file in spec.files):
            path = root / "raw" / file.path
            if path.exists() and file.sha256 is not None and file_digest(path) != file.sha256:
                wrong.append(
                    f"{path}: its sha256 is not the pinned {file.sha256}{' of data.lock.json' if file.pinned else ''}; "
                    f"delete it and run: python -m stages.download {name}{option}"
                )
    for folder in sorted((root / "packed").glob("[!.]*")):
        try:
            if (folder / "unavailable.json").exists() and not (folder / "header.json").exists():
                say(f"{folder.name}: not available")
                continue
            dataset = PackedDataset.open(folder)
            dataset.verify()
            if folder.name in catalog():
                differences = compare(catalog()[folder.name].expected, dataset.header.statistics)
                wrong += [f"{folder.name}: {line}" for line in differences]
            say(f"{folder.name}: ok")
        except DatasetError as error:
            wrong.append(str(error))
    return list(dict.fromkeys(wrong))


def _unavailable(spec: DatasetSpec, folder: Path, error: SourceError, seconds: float) -> Prepared:
    if (folder / "header.json").exists():
        problem = f"has an older or damaged version of {spec.name!r}, which was not changed; the current version"
        raise DatasetError(f"{problem} cannot be prepared: {error}", file=folder, value=spec.name) from error
    # results and reports repeat this text
    tried = [{"source": shareable(source), "error": shareable(text)} for source, text in error.tried]
    note = {"dataset": spec.name, "reason": shareable(error.reason), "tried": tried, "remedy": shareable(error.remedy)}
    write_json(folder / "unavailable.json", note)
    return Prepared("unavailable", folder, reason=str(error), seconds=seconds)
