"""Where a search lives, and how several workers share it: a journal file, or a database by URL.

A worker claims trials one at a time, while no other does, so that a search of so many trials has exactly so many. Who is alive is told by
locks that the operating system, or PostgreSQL, takes from a process that dies.
"""

import contextlib
import hashlib
import json
import os
import uuid
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from filelock import FileLock, Timeout

from gt_bench.config.grid import RunSettings
from gt_bench.config.schema import RecipeError
from gt_bench.utils.errors import missing
from gt_bench.utils.io import hold
from gt_bench.utils.lease_lock import network_file_system
from gt_bench.utils.redact import without_credentials

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial

STORAGE = "GT_STUDY_STORAGE"
JOURNAL = "journal.log"
REMEDY = "move it away and search again: trials that were run are records of the store and are not repeated"


def check_packages() -> None:
    """Raises MissingPackage where a search cannot run, or cannot draw its pictures at its end."""
    for name in ("optuna", "matplotlib"):
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            raise missing(error, "a search") from None


class Workers(Protocol):
    """The workers of one search. `name`: this one's."""

    name: str

    def alone(self) -> contextlib.AbstractContextManager[None]:
        """Held by one worker at a time."""
        ...

    def alive(self, name: str) -> bool:
        """Whether the worker `name` of this search still exists."""
        ...


class KernelLock:
    """Optuna's journal lock on the kernel's file lock. Its own locks are links that a killed process leaves behind, and then every later
    process waits for them."""

    def __init__(self, path: Path):
        self._lock = FileLock(path)

    def acquire(self) -> bool:
        """Waits for it."""
        self._lock.acquire()
        return True

    def release(self) -> None:
        """For the next who waits."""
        self._lock.release()


class FileWorkers(Workers):
    """Workers that share a folder. Each holds a file lock as long as it lives."""

    def __init__(self, folder: Path):
        self.name, self._folder = uuid.uuid4().hex, folder
        self._alone = FileLock(folder / "lock")
        self._own = hold(FileLock(folder / f"worker-{self.name}.lock"))

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        with self._alone:
            yield

    def alive(self, name: str) -> bool:
        path = self._folder / f"worker-{name}.lock"
        if name == self.name:
            return True
        if not path.exists():
            return False
        try:
            with FileLock(path, timeout=0):
                path.unlink(missing_ok=True)
                return False
        except Timeout:
            return True

    def close(self) -> None:
        """Gives up the place of this worker."""
        self._own.release()
        (self._folder / f"worker-{self.name}.lock").unlink(missing_ok=True)


class PostgresWorkers(Workers):
    """Workers that share a PostgreSQL server, by its advisory locks: a lock goes with the connection that holds it."""

    def __init__(self, url: str, cell: str):
        from sqlalchemy import create_engine

        self.name, self._cell = uuid.uuid4().hex, cell
        self._connection = create_engine(url, isolation_level="AUTOCOMMIT").connect()
        self._call("pg_advisory_lock", f"worker {self.name}")

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        self._call("pg_advisory_lock", self._cell)
        try:
            yield
        finally:
            self._call("pg_advisory_unlock", self._cell)

    def alive(self, name: str) -> bool:
        if name == self.name:
            return True
        gone = self._call("pg_try_advisory_lock", f"worker {name}")
        if gone:
            self._call("pg_advisory_unlock", f"worker {name}")
        return not gone

    def close(self) -> None:
        """Its locks go with the connection."""
        self._connection.close()
        self._connection.engine.dispose()

    def _call(self, function: str, what: str) -> bool | None:
        from sqlalchemy import text

        key = int.from_bytes(hashlib.sha256(f"gt-bench {what}".encode()).digest()[:8], "big", signed=True)
        return self._connection.execute(text(f"SELECT {function}(:key)"), {"key": key}).scalar()


def ended(trial: "FrozenTrial") -> str | None:
    """How a trial ended: ok, pruned, or the status of its run that failed; None for one that runs, and for one whose worker was killed.

    The status of a failed run is an entry before the one that ends the trial: a worker that is killed in between has said all there was."""
    status = {"COMPLETE": "ok", "PRUNED": "pruned", "FAIL": trial.user_attrs.get("status")}.get(trial.state.name)
    # older code wrote `ok` and `pruned` as entries too, and a worker that was killed after them left a trial that failed
    return None if trial.state.name == "FAIL" and status in ("ok", "pruned") else status


def storage_url(settings: RunSettings) -> str | None:
    """The database of studies, None for journal files; GT_STUDY_STORAGE comes before params.yaml."""
    return os.environ.get(STORAGE) or settings.study_storage


@contextlib.contextmanager
def workers_of(settings: RunSettings, folder: Path, cell: str) -> Iterator[Workers]:
    """This process as a worker of the search of `cell`. Raises RecipeError where the database cannot be reached."""
    url = storage_url(settings)
    with _reported(url):
        workers = PostgresWorkers(url, cell) if url and url.startswith("postgres") else FileWorkers(folder)
    try:
        yield workers
    finally:
        workers.close()


def open_study(
    settings: RunSettings,
    folder: Path,
    cell: str,
    identity: str,
    direction: str,
    pruning_after: int | None,
    make: bool = True,
) -> "Study | None":
    """The optuna study of `identity`, made or continued; median pruning after that many epochs, or none. Without `make` None where there is none.

    Raises RecipeError for a database that cannot be used, a journal that cannot be read, and one that belongs to another cell.
    """
    import optuna
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    # one database holds the studies of all cells, and two cells may have one recipe
    url, name = storage_url(settings), f"{cell} {identity[:12]}"
    if url and url.startswith("sqlite") and (kind := network_file_system(folder)):
        raise RecipeError(
            f"study storage {url}: SQLite loses data on a network file system ({kind}); take PostgreSQL, or none: journal files"
        )
    pruner: optuna.pruners.BasePruner = optuna.pruners.NopPruner()
    if pruning_after is not None:
        pruner = optuna.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=pruning_after)
    storage: optuna.storages.BaseStorage
    if url:
        with _reported(url):
            # a SQLite file has one writer at a time: the others wait for it
            waiting = {"connect_args": {"timeout": 100}} if url.startswith("sqlite") else {}
            storage = optuna.storages.RDBStorage(url, engine_kwargs=waiting)
    else:
        path, lock = (
            folder / JOURNAL,
            cast(Any, KernelLock(folder / "journal.lock")),
        )  # no subclass of optuna's, which is imported here only
        _check_journal(path, FileLock(folder / "journal.lock"))
        try:
            storage = optuna.storages.JournalStorage(JournalFileBackend(str(path), lock_obj=lock))
        except (ValueError, KeyError, TypeError) as error:
            raise RecipeError(f"{path}: not a journal of studies ({error}); {REMEDY}") from None
        owners = {study.user_attrs.get("cell", cell) for study in optuna.get_all_study_summaries(storage)}
        if owners - {cell}:
            raise RecipeError(
                f"{path}: holds the study of {', '.join(sorted(owners - {cell}))}, not of {cell}; move it back to its own folder and search again"
            )
    with _reported(url):
        older = f"{cell} {identity}" if url else identity  # how studies were named before they had a readable name
        there = optuna.get_all_study_names(storage)
        if not make and not {older, name} & set(there):
            return None
        study = optuna.create_study(
            study_name=older if older in there else name,
            storage=storage,
            direction="maximize" if direction == "max" else "minimize",
            pruner=pruner,
            load_if_exists=True,
        )
        if study.user_attrs.get("cell") != cell:
            study.set_user_attr("cell", cell)
    return study


def _check_journal(path: Path, lock: FileLock) -> None:
    """Takes out a last entry that is only begun: a process that was killed while it wrote leaves one, and whatever follows would be lost with
    it. Raises RecipeError for a line that is no entry."""
    with hold(lock):
        content = path.read_bytes() if path.exists() else b""
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            os.truncate(path, whole)
            print(f"{path}: its last entry was only begun by a process that was killed; taken out", flush=True)
    for number, line in enumerate(content[:whole].splitlines(), 1):
        try:
            json.loads(line)
        except ValueError as error:
            raise RecipeError(f"{path}: not a journal of studies (line {number}: {error}); {REMEDY}") from None


@contextlib.contextmanager
def _reported(url: str | None) -> Iterator[None]:
    """Turns what a database can do wrong into RecipeError, without the password."""
    if not url:
        yield
        return
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError, SQLAlchemyError

    try:
        shown = make_url(url).render_as_string(hide_password=True)
    except ArgumentError:
        raise RecipeError(
            f"run.study_storage or {STORAGE}: {without_credentials(url)!r} is no database URL; expected postgresql+psycopg://user@host/name"
        ) from None
    try:
        yield
    except (ImportError, ModuleNotFoundError) as error:
        raise RecipeError(
            f"study storage {shown}: its driver is not installed ({error}); pip install 'psycopg[binary]'"
        ) from error
    except SQLAlchemyError as error:
        raise RecipeError(
            f"study storage {shown} cannot be used: {without_credentials(' '.join(str(error).split()))[:300]}"
        ) from error
