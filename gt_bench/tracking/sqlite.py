"""The SQLite file of a local tracking store: made whole or not at all. One that was only begun is set aside, and made anew from the records.

MLflow creates its schema in some seventy steps that no transaction holds together: a process that is killed among them leaves a file which
every later process refuses. So it is made under another name here, and renamed when it is whole.
"""

import contextlib
import os
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

from gt_bench.utils.io import held, make_folder

OWN = "sqlite:///mlruns/mlflow.db"  # of this project, and of records alone: the one file that may be set aside
SIDE_FILES = ("", "-journal", "-wal", "-shm")  # of one database of SQLite


class TrackingError(RuntimeError):
    """The tracking store could not be read or written; the message names it."""


def file_of(uri: str) -> Path | None:
    """The database that a URI names, None for a server."""
    return Path(uri.removeprefix("sqlite:///").partition("?")[0]) if uri.startswith("sqlite:///") else None


@contextlib.contextmanager
def whole(uri: str) -> Iterator[None]:
    """Inside, the database of `uri` is whole, and no other process of this project opens it; of a server nothing is known.

    Raises TrackingError for a file that is not a tracking store and not this project's own, WriteError where the lock cannot be had.
    """
    path = file_of(uri)
    if path is None:
        yield
        return
    make_folder(path.parent)
    with held(path.with_name(f"{path.name}.lock")):
        if fault := fault_of(path):
            if uri != OWN:
                raise TrackingError(
                    f"{path} {fault}; it is left as it is: move it away, or name another one by MLFLOW_TRACKING_URI"
                )
            print(
                f"{path} {fault}: set aside as {set_aside(path).name}, and made anew from the records",
                file=sys.stderr,
                flush=True,
            )
            path.with_name("id").unlink(
                missing_ok=True
            )  # so that the next `dvc repro` fills it for every suite (gt_bench/pipeline/dependencies.py)
        if not path.exists() or path.stat().st_size == 0:
            make(path)
        yield


@contextlib.contextmanager
def alone(uri: str, suite: str) -> Iterator[None]:
    """Held by one process of this folder at a time: two that complete an experiment at once would each add what both found missing. What two
    machines added twice on a server, the next completion takes out. Raises WriteError."""
    folder = make_folder((file_of(uri) or Path(OWN.removeprefix("sqlite:///"))).parent)
    with held(folder / f".{suite}.lock"):
        yield


def fault_of(path: Path) -> str | None:
    """Why the file is no tracking store, in the words after its name. None for one of any version of MLflow, for none at all, and where it
    cannot be told.

    The schema is followed by the first experiment: without one, nothing was ever tracked in it.
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
            return "was only begun by a process that was killed" if begun else None
    except sqlite3.OperationalError:  # locked, or not to be read: MLflow says so itself
        return None
    except sqlite3.DatabaseError as error:
        return f"is damaged ({error})"


def set_aside(path: Path) -> Path:
    """Renames the database and what SQLite keeps beside it; no earlier one is overwritten."""
    number = 1
    while (aside := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    for ending in SIDE_FILES:
        with contextlib.suppress(FileNotFoundError):
            os.rename(f"{path}{ending}", f"{aside}{ending}")
    return aside


def make(path: Path) -> None:
    """A database with MLflow's schema at `path`, where it appears when it is complete."""
    from mlflow.store.tracking import DEFAULT_LOCAL_FILE_AND_ARTIFACT_PATH
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    for left in path.parent.glob(f".{path.name}.*.new*"):  # by a process that was killed, or an attempt that failed
        left.unlink()
    # another name each time: of an attempt that failed MLflow keeps the connection, to a file that is gone
    new = path.with_name(f".{path.name}.{uuid4().hex}.new")
    SqlAlchemyStore(f"sqlite:///{new}", DEFAULT_LOCAL_FILE_AND_ARTIFACT_PATH).engine.dispose()
    os.replace(new, path)


def remedy(uri: str, said: str) -> str:
    """What to do about an error of a database that is left as it is; nothing where waiting, or another disk, may be enough."""
    path = file_of(uri)
    if path is None:
        return ""
    anew = "move it away: it is made anew from the records"
    if "database schema" in said or "Can't locate revision" in said:
        return f". {path} is of another version of MLflow and left as it is: keep a copy and run `mlflow db upgrade {uri}`, install the MLflow that wrote it, or {anew}"
    if any(
        sign in said
        for sign in (
            "malformed",
            "not a database",
            "already exists",
            "no such table",
            "no such column",
            "duplicate column",
        )
    ):
        return f". {path} is damaged: {anew}"
    return ""
