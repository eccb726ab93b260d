"""DVC's own lock files: those that a killed process leaves broken, on which every later `dvc repro` fails, and one that waits for the disk."""

import contextlib
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

from gt_bench.utils.io import WriteError, write_bytes

MEMORY = Path("/dev/shm")
LOCK_FILES = (Path("dvc.lock"), Path("stages/dvc.lock"))
SETTLED_SECONDS = 1.0


def mended() -> Iterator[str]:
    """Mends them in the working directory; yields a line for each."""
    if mend_lock(Path(".dvc") / "tmp"):
        yield ".dvc/tmp/rwlock: was left broken by a process that was killed; removed"
    for path in LOCK_FILES:
        if aside := set_aside_if_broken(path):
            yield f"{path}: is not what DVC wrote; set aside as {aside.name}: every stage runs, and finds its runs in store/"


def mend_lock(folder: Path) -> bool:
    """Removes DVC's list of locked paths where a killed process left no valid one (every `dvc repro` fails on it); whether it did. One that
    another process is writing stays."""
    path = folder / "rwlock"
    if not path.exists():
        return False
    with _guarded(folder) as free:
        if not free:
            return False
        try:
            json.loads(path.read_text(encoding="utf-8"))
            return False
        except ValueError:
            path.unlink()
            return True


def keep_in_memory(folder: Path = Path(".dvc") / "tmp", memory: Path = MEMORY) -> None:
    """Makes DVC's list of locked paths a link to a file in memory, where the system has such a folder. DVC truncates and writes the list eight times
    for every stage, changed or not, and ext4 starts writing a truncated file to disk when it is closed: the next truncation waits for it
    (benchmarks/grid.py: half of a no-op over 400 cells on a quiet disk, most of it on a busy one). A list that is gone after a restart is to DVC
    what one is that was never written. While another process writes the list, the next run does it."""
    path = folder / "rwlock"
    # each workspace has its own, a copy of one too
    place = memory / f"dvc-{os.getuid()}-{hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]}"
    if not folder.is_dir() or not os.access(memory, os.W_OK) or (path.is_symlink() and path.readlink() == place):
        return
    with (
        contextlib.suppress(OSError, WriteError),
        _guarded(folder) as free,
    ):  # what goes wrong leaves it on the disk, which is only slower
        if free:
            write_bytes(place, path.read_bytes() if path.exists() else b"{}")
            link = folder / f"rwlock.{os.getpid()}"
            link.symlink_to(place)
            link.replace(path)


@contextlib.contextmanager
def _guarded(folder: Path) -> Iterator[bool]:
    """Holds the lock under which DVC reads and writes its list; False where another process holds it."""
    with (folder / "rwlock.lock").open("a", encoding="utf-8") as guard:
        try:
            fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True


def set_aside_if_broken(path: Path) -> Path | None:
    """Renames a lock file that DVC would refuse, and returns its new place. DVC writes it in place after every stage, so that a process that is
    killed then leaves half of it; while another process writes it, it changes, and stays."""
    from dvc.exceptions import DvcException
    from dvc.schema import COMPILED_LOCKFILE_SCHEMA
    from dvc.utils.strictyaml import load

    try:
        before = path.read_bytes()
        load(str(path), COMPILED_LOCKFILE_SCHEMA)
    except FileNotFoundError:
        return None
    except DvcException:
        time.sleep(SETTLED_SECONDS)
        if path.read_bytes() == before:
            return path.replace(path.with_name(f"{path.name}.damaged"))
    return None
