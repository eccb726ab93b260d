"""The SQLite file of a local tracking store: created atomically, and replaced if it is incomplete.

MLflow creates its schema in about seventy steps without a transaction. A process that is killed in between leaves a
file that every later process rejects. Here the file is created under another name and renamed when it is complete.
"""

import contextlib
import os
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

from gt_bench.utils.errors import UserError
from gt_bench.utils.io import held, make_folder

# The database of this project. It contains only what the records contain, so it may be renamed and created again.
OWN = "sqlite:///mlruns/mlflow.db"
SIDE_FILES = ("", "-journal", "-wal", "-shm")  # suffixes of the files of an SQLite database


class TrackingError(UserError, RuntimeError):
    """The tracking store could not be read or written."""


def file_of(uri: str) -> Path | None:
    """Return the database file of a URI; None for a server."""
    return Path(uri.removeprefix("sqlite:///").partition("?")[0]) if uri.startswith("sqlite:///") else None


def absolute(uri: str) -> str:
    """Return the URI with the absolute path of its database file; the URI of a server as it is.

    MLflow has one connection per URI and process, so in a notebook a relative path would always mean the folder in
    which it was first used.
    """
    path = file_of(uri)
    if path is None:
        return uri
    _, mark, query = uri.partition("?")
    return f"sqlite:///{path.resolve()}{mark}{query}"


@contextlib.contextmanager
def ready_database(uri: str) -> Iterator[None]:
    """Make sure that the database of `uri` is complete, and hold its lock inside the block.

    Nothing is done for a server.

    Raises:
        TrackingError: the file is not a tracking store, and not the database of this project.
        WriteError: the lock cannot be written.
    """
    path = file_of(uri)
    if path is None:
        yield
        return
    make_folder(path.parent)
    with held(path.with_name(f"{path.name}.lock")):
        if fault := fault_of(path):
            if uri != OWN:
                remedy = "move it away, or set MLFLOW_TRACKING_URI to another store"
                raise TrackingError(fault, file=path, remedy=remedy)
            print(
                f"{path} {fault}: renamed to {set_aside(path).name}, and created again from the records",
                file=sys.stderr,
                flush=True,
            )
            # the next `dvc repro` then fills it for all suites (gt_bench/pipeline/state.py)
            path.with_name("id").unlink(missing_ok=True)
        if not path.exists() or path.stat().st_size == 0:
            make(path)
        yield


@contextlib.contextmanager
def suite_lock(uri: str, suite: str) -> Iterator[None]:
    """Hold the lock of a suite inside the block, so that two processes do not add the same missing runs.

    Two machines may still add runs twice on a server; the next update removes them.

    Raises:
        WriteError: the lock cannot be written.
    """
    folder = make_folder((file_of(uri) or Path(OWN.removeprefix("sqlite:///"))).parent)
    with held(folder / f".{suite}.lock"):
        yield


def fault_of(path: Path) -> str | None:
    """Return why the file is not a tracking store, as the rest of a sentence after its name.

    None for a store of any version of MLflow, for a missing file, and if it cannot be decided. MLflow creates the first
    experiment after the schema: a database without an experiment never contained a run.
    """
    if not path.exists() or path.stat().st_size == 0:
        return None
    try:
        with contextlib.closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=rw", uri=True)) as database:
            tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            begun = (
                "experiments" not in tables
                or database.execute("SELECT NOT EXISTS (SELECT 1 FROM experiments)").fetchone()[0]
            )
            return "is incomplete, because a process was killed" if begun else None
    except sqlite3.OperationalError:  # locked or not readable: MLflow reports it
        return None
    except sqlite3.DatabaseError as error:
        return f"is damaged ({error})"


def set_aside(path: Path) -> Path:
    """Rename the files of a database without overwriting an earlier one, and return the new path."""
    number = 1
    while (aside := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    for ending in SIDE_FILES:
        with contextlib.suppress(FileNotFoundError):
            os.rename(f"{path}{ending}", f"{aside}{ending}")
    return aside


def make(path: Path) -> None:
    """Create a database with MLflow's schema; it appears at `path` when it is complete."""
    from mlflow.store.tracking import DEFAULT_LOCAL_FILE_AND_ARTIFACT_PATH
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    for left in path.parent.glob(f".{path.name}.*.new*"):  # left by a killed process or a failed attempt
        left.unlink()
    # a new name each time, because MLflow caches the connection of a failed attempt, whose file is gone
    new = path.with_name(f".{path.name}.{uuid4().hex}.new")
    SqlAlchemyStore(f"sqlite:///{new}", DEFAULT_LOCAL_FILE_AND_ARTIFACT_PATH).engine.dispose()
    os.replace(new, path)


def remedy(uri: str, said: str) -> str:
    """Return what to do about an error of a database; an empty string if waiting or another disk may help.

    Args:
        uri: of the tracking store.
        said: message of the error.
    """
    path = file_of(uri)
    if path is None:
        return ""
    again = "move it away, it is created again from the records"
    if "database schema" in said or "Can't locate revision" in said:
        return (
            f". {path} was written by another version of MLflow: copy it and run `mlflow db upgrade {uri}`, install "
            f"the MLflow that wrote it, or {again}"
        )
    damage = ("malformed", "not a database", "already exists", "no such table", "no such column", "duplicate column")
    return f". {path} is damaged: {again}" if any(sign in said for sign in damage) else ""
