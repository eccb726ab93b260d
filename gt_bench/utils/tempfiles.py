"""Temporary files and folders of writers that were killed: swept by the next run of a stage, and by `gt-bench store prune`."""

import contextlib
import re
import shutil
import time
from pathlib import Path

FOLDERS = (
    "data",
    "state",
    "store",
    "studies",
    "tuned",
    "results",
    "metrics",
    "reports",
    "mlruns",
)  # what the pipeline writes
ABANDONED = 3600.0  # seconds without a change, after which nobody writes it any more
NAME = re.compile(
    r"\..+\.[a-z0-9_]{8}"
)  # `tempfile` of .NAME. beside NAME: gt_bench/utils/io.py, packed and encoded data


def sweep(*folders: Path, everywhere: bool = False, older_than: float = ABANDONED) -> list[Path]:
    """Removes what killed writers left in these folders, with `everywhere` below them too; returns it."""
    removed = []
    for folder in folders:
        for path in list(folder.rglob(".*") if everywhere else folder.glob(".*")):
            with contextlib.suppress(FileNotFoundError):  # of a writer that lives after all, or went with a folder
                if NAME.fullmatch(path.name) and time.time() - _changed(path) > older_than:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
                    removed.append(path)
    return removed


def _changed(path: Path) -> float:
    """When `path`, or anything in it, was last written."""
    return max(one.lstat().st_mtime for one in [path, *(path.rglob("*") if path.is_dir() else ())])
