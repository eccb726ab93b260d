"""Files of DVC that a killed process leaves broken, and on which every later `dvc repro` fails."""

import fcntl
import json
import time
from collections.abc import Iterator
from pathlib import Path

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
    with (folder / "rwlock.lock").open("a") as guard:
        try:
            fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        try:
            json.loads(path.read_text())
            return False
        except ValueError:
            path.unlink()
            return True


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
