"""From a name to a packed dataset on disk: fetch, pack, hold the statistics against the published ones, put in place; or say why not."""

import importlib.util
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from stages.datasets.catalog import catalog, get_spec
from stages.datasets.inspection import DatasetError, compare
from stages.datasets.packed import PackedDataset, PackedHeader, replace_folder
from stages.datasets.sources import SourceError, fetch, reachable, sha256_of
from stages.datasets.spec import DatasetSpec
from stages.files import write_json

Say = Callable[[str], None]


@dataclass(frozen=True)
class Prepared:
    """`state`: "packed" (now), "kept" (was valid already) or "unavailable" (then `reason` is set)."""

    state: str
    folder: Path
    header: PackedHeader | None = None
    reason: str | None = None
    seconds: float = 0.0


def prepare(name: str, data_root: str | Path = "data", mirrors: Sequence[str] = (), say: Say = lambda line: None) -> Prepared:
    """Makes data_root/packed/NAME. Two processes that ask at once both succeed and the work is done once.

    A dataset that cannot be had becomes unavailable.json in that folder. Raises DatasetError where files are damaged or statistics
    differ from the published ones, UnknownDataset for an unknown name. What is packed there already survives every failure.
    """
    spec, root = get_spec(name), Path(data_root)
    folder = root / "packed" / name
    (root / ".locks").mkdir(parents=True, exist_ok=True)
    with FileLock(root / ".locks" / f"{name}.lock"):
        start = time.monotonic()
        header = valid(spec, folder)
        if header is not None:
            return Prepared("kept", folder, header)
        missing = [module for module in spec.needs if importlib.util.find_spec(module) is None]
        try:
            if missing:
                raise SourceError(f"this needs the package {', '.join(missing)}", [], f"pip install {' '.join(missing)}")
            _refuse_unpinned_pickles(spec, root)
            for file in spec.files:
                if not (file.sha256 or file.md5):
                    say(f"{file.path}: no checksum of it is published; only its statistics will be checked")
            files = {file.path: fetch(file, root / "raw", mirrors, say) for file in spec.files}
        except SourceError as error:
            return _unavailable(spec, folder, error, time.monotonic() - start)
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{name}."))
        try:
            spec.prepare(spec, files, temporary / name)
            dataset = PackedDataset.open(temporary / name)
            wrong = compare(spec.expected, dataset.header.statistics)
            if wrong:
                raise DatasetError(f"dataset {name!r} is not the published one:\n  " + "\n  ".join(wrong))
            del dataset
            replace_folder(temporary / name, folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return Prepared("packed", folder, PackedDataset.open(folder).header, seconds=time.monotonic() - start)


def valid(spec: DatasetSpec, folder: Path) -> PackedHeader | None:
    """The header of what is packed in `folder` if it was made from this spec by this code, else None. Reads no arrays."""
    try:
        header = PackedDataset.open(folder).header
    except DatasetError:
        return None
    return header if header.provenance.get("spec") == spec.digest else None


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
    try:
        _refuse_unpinned_pickles(spec, root)
    except SourceError as error:
        return False, error.reason
    answers = [reachable(file, root / "raw", mirrors) for file in spec.files]
    missing = [why for found, why in answers if not found]
    return (False, missing[0]) if missing else (True, answers[0][1])


def verify(data_root: str | Path = "data", say: Say = lambda line: None) -> list[str]:
    """Reads every raw file and packed dataset on disk again. Returns what is wrong, one line each."""
    root, wrong = Path(data_root), []
    for name, spec in catalog().items():
        for file in spec.files:
            path = root / "raw" / file.path
            if path.exists() and file.sha256 is not None and sha256_of(path) != file.sha256:
                wrong.append(f"{path}: its sha256 is not the pinned {file.sha256}; delete it and run: python -m stages.download {name}")
    for folder in sorted((root / "packed").glob("[!.]*")):
        try:
            if (folder / "unavailable.json").exists() and not (folder / "header.json").exists():
                say(f"{folder.name}: not at hand")
                continue
            dataset = PackedDataset.open(folder)
            dataset.verify()
            if folder.name in catalog():
                wrong += [f"{folder.name}: {line}" for line in compare(catalog()[folder.name].expected, dataset.header.statistics)]
            say(f"{folder.name}: good")
        except DatasetError as error:
            wrong.append(str(error))
    return list(dict.fromkeys(wrong))


def _refuse_unpinned_pickles(spec: DatasetSpec, root: Path) -> None:
    for file in spec.files:
        if file.pickled and not (file.sha256 or file.md5):
            raise SourceError(
                f"{file.path} holds pickles, and no digest of it is pinned: it is not read",
                [(url, "not tried: no digest is pinned") for url in file.urls],
                f"Fetch it from a place you trust ({', '.join(file.urls) or spec.homepage}), then\n  cp FILE {root / 'raw' / file.path}\n"
                "and write what `sha256sum FILE` prints into its entry in stages/datasets/files.json",
            )


def _unavailable(spec: DatasetSpec, folder: Path, error: SourceError, seconds: float) -> Prepared:
    if (folder / "header.json").exists():
        raise DatasetError(
            f"{folder} holds an older version of {spec.name!r}, which stays as it is; the present one cannot be made: {error}"
        ) from error
    tried = [{"source": source, "error": text} for source, text in error.tried]
    write_json(folder / "unavailable.json", {"dataset": spec.name, "reason": error.reason, "tried": tried, "remedy": error.remedy})
    return Prepared("unavailable", folder, reason=str(error), seconds=seconds)
