"""Removal of temporary files and folders of killed processes, by the next run of a stage and `gt-bench store prune`."""

import contextlib
import re
import shutil
import time
from pathlib import Path

# Folders that the pipeline writes.
FOLDERS = ("data", "state", "store", "studies", "tuned", "results", "metrics", "reports", "mlruns")
ABANDONED = 3600.0  # seconds without a change, after which a temporary file counts as abandoned
# Names that gt_bench/utils/io.py and the writers of packed data and encodings give to temporary files.
NAME = re.compile(r"\..+\.[a-z0-9_]{8}")


def sweep(*folders: Path, everywhere: bool = False, older_than: float = ABANDONED) -> list[Path]:
    """Remove abandoned temporary files and return their paths.

    Args:
        *folders: where to look.
        everywhere: whether to look in subfolders too.
        older_than: seconds since the last change.
    """
    removed = []
    for folder in folders:
        for path in list(folder.rglob(".*") if everywhere else folder.glob(".*")):
            with contextlib.suppress(FileNotFoundError):  # renamed by its writer, or removed with its folder
                if (
                    NAME.fullmatch(path.name)
                    and time.time()
                    - max(entry.lstat().st_mtime for entry in [path, *(path.rglob("*") if path.is_dir() else ())])
                    > older_than
                ):
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
                    removed.append(path)
    return removed
