"""Import of the archive that `python -m tools.gpu` writes on another machine: records, results, checkpoints."""

import re
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from gt_bench.config.grid import Grid
from gt_bench.provenance.transfer import import_cells
from gt_bench.store.run_store import Store, StoreError, curves_reached
from gt_bench.utils.format import print_text
from gt_bench.utils.io import write_bytes

CHECKPOINT = re.compile(r"checkpoints/[0-9a-f]{2}/([0-9a-f]{64})/checkpoint\.safetensors")


def import_session(archive: Path, names: Sequence[str], grid: Grid) -> None:
    """Imports the records and checkpoints of an archive, and prints what was done.

    A checkpoint is imported if its run has no record here and no checkpoint of a later epoch.

    Args:
        archive: a tar file with records/SUITE/records/DATASET/ROW.json.gz and
            checkpoints/XX/DIGEST/checkpoint.safetensors.
        names: suites and cells whose records are imported. All if empty.
        grid: the grid.

    Raises:
        StoreError, Conflict: the file is not such an archive, or as for `import_records`. Nothing is imported then.
    """
    with tempfile.TemporaryDirectory(prefix="gt-session-") as temporary:
        folder = Path(temporary)
        try:
            with tarfile.open(archive) as file:
                file.extractall(folder, filter="data")
        except (tarfile.TarError, OSError, EOFError, ValueError) as error:
            why = " ".join(str(error).split())
            raise StoreError(
                f"{archive}: not an archive of a GPU session ({why}); copy it from the other machine again"
            ) from None
        found = [path for path in sorted(folder.glob("checkpoints/*/*/*")) if path.is_file()]
        has_records = any(folder.glob("records/*/records/*/*.json.gz"))
        if not has_records and not found:
            raise StoreError(f"{archive}: contains neither records nor checkpoints; nothing is imported")
        if has_records:
            import_cells(names, grid, folder / "records")
        _import_checkpoints(folder, found, Store())


def _import_checkpoints(folder: Path, found: Sequence[Path], store: Store) -> None:
    imported = 0
    for path in found:
        match = CHECKPOINT.fullmatch(path.relative_to(folder).as_posix())
        if match is None:
            print_text(f"{path.relative_to(folder)}: not imported: not the name of a checkpoint")
            continue
        target = store.folder(match[1])
        if (target / "record.json").exists() or _epochs(path.parent) <= _epochs(target):
            continue
        with store.lock(match[1]):
            write_bytes(target / path.name, path.read_bytes())
            imported += 1
    if found:
        print_text(f"{len(found)} checkpoints: {imported} imported; their runs resume with `gt-bench work`")


def _epochs(folder: Path) -> int:
    return len(curves_reached(folder).get("epoch", ()))
