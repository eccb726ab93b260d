"""Repair of DVC's lock files, and a faster place for one of them.

A killed process may leave a broken lock file, on which every later `dvc repro` fails.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from gt_bench.utils.io import new_file

MEMORY = Path("/dev/shm")
LOCK_FILES = (Path("dvc.lock"), Path("stages/dvc.lock"))
SETTLED_SECONDS = 1.0


def without_git_user() -> Iterator[str]:
    """Yield a line if git has no user in this repository: `dvc exp` commits, and fails after the run."""
    here = Path.cwd()
    if not any((folder / ".git").exists() for folder in (here, *here.parents)) or "GIT_AUTHOR_EMAIL" in os.environ:
        return
    try:
        answer = subprocess.run(["git", "config", "user.email"], capture_output=True, encoding="utf-8", check=False)
    except FileNotFoundError:
        return
    if not answer.stdout.strip():
        yield (
            "git has no user: `dvc exp run` and `git commit` will fail; "
            "run `git config user.name NAME` and `git config user.email EMAIL`"
        )


def repaired() -> Iterator[str]:
    """Repair the lock files of the working directory; yield a line for each repair."""
    if repair_lock(Path(".dvc") / "tmp"):
        yield ".dvc/tmp/rwlock: a killed process left it incomplete; removed"
    for path in LOCK_FILES:
        if aside := set_aside_if_broken(path):
            yield f"{path}: invalid, renamed to {aside.name}; all stages run again and find their runs in store/"


def repair_lock(folder: Path) -> bool:
    """Remove DVC's list of locked paths if it is invalid and no process writes it; return whether it was removed."""
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
    """Make DVC's list of locked paths a link to a file in memory, if the system has a folder in memory.

    DVC truncates and writes the list eight times per stage, also if nothing changed. ext4 writes a truncated file to
    disk when it is closed, and the next truncation waits for that (benchmarks/grid.py: half the time of a no-op of 400
    cells). After a restart the list is gone, which DVC treats like a list that was never written. If another process is
    writing the list, nothing happens until the next call.
    """
    path = folder / "rwlock"
    # each workspace has a separate file, also a copy of a workspace
    place = memory / f"dvc-{os.getuid()}-{hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]}"
    if not folder.is_dir() or not os.access(memory, os.W_OK) or (path.is_symlink() and path.readlink() == place):
        return
    # after an error the list stays on the disk, which is only slower
    with contextlib.suppress(OSError), _guarded(folder) as free:
        if free:
            content = path.read_bytes() if path.exists() else b"{}"
            new = Path(new_file(place))
            try:
                new.write_bytes(content)
                new.replace(place)  # also a link, which anybody may have put there: its target is not written
            finally:
                new.unlink(missing_ok=True)
            link = folder / f"rwlock.{os.getpid()}"
            link.symlink_to(place)
            link.replace(path)


@contextlib.contextmanager
def _guarded(folder: Path) -> Iterator[bool]:
    """Hold the lock with which DVC reads and writes its list; yield False if another process holds it."""
    with (folder / "rwlock.lock").open("a", encoding="utf-8") as guard:
        try:
            fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True


def set_aside_if_broken(path: Path) -> Path | None:
    """Rename a lock file that DVC would reject, and return its new path.

    DVC writes the file in place after every stage, so a kill may leave half of it. A file that changes is being written
    by another process and is not renamed.
    """
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
