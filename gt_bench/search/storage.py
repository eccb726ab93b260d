"""Storage of studies, a journal file or a database, and how several workers share a search.

A worker claims one trial at a time, under a lock, so that a search of n trials has exactly n. Whether a worker is alive
is determined by locks that the operating system or PostgreSQL releases when its process ends.
"""

import contextlib
import hashlib
import json
import os
import uuid
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import psutil
from filelock import FileLock, Timeout

from gt_bench.config.params import RunSettings
from gt_bench.config.schema import RecipeError
from gt_bench.utils.errors import missing
from gt_bench.utils.io import held, hold
from gt_bench.utils.redact import without_credentials

if TYPE_CHECKING:
    from optuna import Study
    from optuna.pruners import BasePruner
    from optuna.trial import FrozenTrial

NETWORK = (
    "nfs", "cifs", "smb", "lustre", "gpfs", "beegfs", "ceph", "glusterfs", "afs", "9p", "fuse.sshfs", "fuse.glusterfs",
)  # fmt: skip
STORAGE = "GT_STUDY_STORAGE"
JOURNAL = "journal.log"
REMEDY = "move it away and search again: finished trials are in the store and are not computed again"


def network_file_system(path: Path) -> str | None:
    """Returns the type of the network file system of `path`, None if it is local."""
    around = [disk for disk in psutil.disk_partitions(all=True) if path.resolve().is_relative_to(disk.mountpoint)]
    kind = max(around, key=lambda disk: len(disk.mountpoint)).fstype if around else ""
    return kind if kind.startswith(NETWORK) else None


def check_packages() -> None:
    """Checks that the packages of a search and of its plots are installed.

    Raises:
        MissingPackage: a package is not installed.
    """
    for name in ("optuna", "matplotlib"):
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            raise missing(error, "a search") from None


class Workers(Protocol):
    """The workers of one search. `name` is the name of this worker."""

    name: str

    def alone(self) -> contextlib.AbstractContextManager[None]:
        """Returns a lock that one worker holds at a time."""
        ...

    def alive(self, name: str) -> bool:
        """Returns whether the process of a worker is running."""
        ...


class FileWorkers(Workers):
    """Workers that share a folder. Each holds a file lock while its process runs."""

    def __init__(self, folder: Path):
        self.name, self._folder = uuid.uuid4().hex, folder
        self._alone = FileLock(folder / "lock")
        self._own = hold(FileLock(folder / f"worker-{self.name}.lock"))

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Holds the lock of the search."""
        with self._alone:
            yield

    def alive(self, name: str) -> bool:
        """Returns whether the process of a worker is running."""
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
        """Releases and deletes the lock of this worker."""
        self._own.release()
        (self._folder / f"worker-{self.name}.lock").unlink(missing_ok=True)


class PostgresWorkers(Workers):
    """Workers that share a PostgreSQL server. Advisory locks are released when the connection of a worker ends."""

    def __init__(self, url: str, cell: str):
        from sqlalchemy import create_engine

        self.name, self._cell = uuid.uuid4().hex, cell
        self._connection = create_engine(url, isolation_level="AUTOCOMMIT").connect()
        self._call("pg_advisory_lock", f"worker {self.name}")

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Holds the lock of the search."""
        from sqlalchemy.exc import SQLAlchemyError

        self._call("pg_advisory_lock", self._cell)
        try:
            yield
        except BaseException:
            with contextlib.suppress(SQLAlchemyError):  # the first error is the one to report
                self._call("pg_advisory_unlock", self._cell)
            raise
        self._call("pg_advisory_unlock", self._cell)

    def alive(self, name: str) -> bool:
        """Returns whether the process of a worker is running."""
        if name == self.name:
            return True
        gone = self._call("pg_try_advisory_lock", f"worker {name}")
        if gone:
            self._call("pg_advisory_unlock", f"worker {name}")
        return not gone

    def close(self) -> None:
        """Closes the connection, which releases the locks of this worker."""
        self._connection.invalidate()  # `close` alone would roll back, which fails if the server has stopped
        self._connection.close()
        self._connection.engine.dispose()

    def _call(self, function: str, what: str) -> bool | None:
        from sqlalchemy import text

        key = int.from_bytes(hashlib.sha256(f"gt-bench {what}".encode()).digest()[:8], "big", signed=True)
        return self._connection.execute(text(f"SELECT {function}(:key)"), {"key": key}).scalar()


def ended(trial: "FrozenTrial") -> str | None:
    """Returns how a trial ended: "ok", "pruned", or the status of its failed run. None if it runs or was killed.

    The status of a failed run is written before the entry that ends the trial. It is therefore known even if the worker
    is killed between the two.
    """
    return {"COMPLETE": "ok", "PRUNED": "pruned", "FAIL": trial.user_attrs.get("status")}.get(trial.state.name)


def storage_url(settings: RunSettings) -> str | None:
    """Returns the URL of the database of studies, None for journal files. GT_STUDY_STORAGE overrides params.yaml."""
    return os.environ.get(STORAGE) or settings.study_storage


@contextlib.contextmanager
def workers_of(settings: RunSettings, folder: Path, cell: str) -> Iterator[Workers]:
    """Registers this process as a worker of the search of a cell.

    Args:
        settings: run-wide settings, which name the storage.
        folder: folder of the study.
        cell: name of the cell.

    Raises:
        RecipeError: the database is not reachable, or no longer.
    """
    url = storage_url(settings)
    with _reported(url):
        with _driver_of(url):
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
    directions: Sequence[str],
    pruner: "BasePruner | None" = None,
    make: bool = True,
) -> "Study | None":
    """Opens or creates an Optuna study.

    Args:
        settings: run-wide settings, which name the storage.
        folder: folder of the study.
        cell: name of the cell.
        identity: digest of everything that decides the values of trials.
        directions: "max" or "min" for each objective.
        pruner: its pruner. None for no pruning.
        make: whether to create a study that does not exist.

    Returns:
        The study. None if it does not exist and `make` is False.

    Raises:
        RecipeError: the database is not reachable, or the journal is damaged or belongs to another cell.
    """
    import optuna
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    # one database contains the studies of all cells, and two cells may have the same recipe
    url, name = storage_url(settings), f"{cell} {identity[:12]}"
    if url and url.startswith("sqlite") and (kind := network_file_system(folder)):
        remedy = "use PostgreSQL, or remove the setting to use journal files"
        raise _unusable(url, f"SQLite loses data on a network file system ({kind})", remedy)
    storage: optuna.storages.BaseStorage
    if url:
        with _reported(url), _driver_of(url):
            # SQLite has one writer at a time; the others wait up to this many seconds
            waiting = {"connect_args": {"timeout": 100}} if url.startswith("sqlite") else {}
            storage = optuna.storages.RDBStorage(url, engine_kwargs=waiting)
    else:
        path = folder / JOURNAL
        # Optuna's own locks are links: a killed process leaves its link, and every later process waits for it
        lock = FileLock(folder / "journal.lock")
        _check_journal(path, folder / "journal.lock")
        try:
            backend = JournalFileBackend(str(path), lock_obj=cast(Any, lock))
            storage = optuna.storages.JournalStorage(backend)
        except (ValueError, KeyError, TypeError) as error:
            raise RecipeError(f"not a journal of studies ({error})", file=path, remedy=REMEDY) from None
        owners = {study.user_attrs.get("cell", cell) for study in optuna.get_all_study_summaries(storage)}
        if owners - {cell}:
            problem = f"contains the study of {', '.join(sorted(owners - {cell}))}, not of {cell}"
            raise RecipeError(problem, file=path, remedy="move it back to its own folder and search again")
    with _reported(url):
        if not make and name not in optuna.get_all_study_names(storage):
            return None
        study = optuna.create_study(
            study_name=name,
            storage=storage,
            directions=["maximize" if direction == "max" else "minimize" for direction in directions],
            pruner=pruner or optuna.pruners.NopPruner(),
            load_if_exists=True,
        )
        if study.user_attrs.get("cell") != cell:
            study.set_user_attr("cell", cell)
    return study


def _check_journal(path: Path, lock: Path) -> None:
    """Removes an incomplete last entry, which a killed process leaves. Later entries would be lost with it."""
    with held(lock):
        content = path.read_bytes() if path.exists() else b""
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            os.truncate(path, whole)
            print(f"{path}: removed an incomplete last entry of a killed process", flush=True)
    for number, line in enumerate(content[:whole].splitlines(), 1):
        try:
            json.loads(line)
        except ValueError as error:
            problem = f"not a journal of studies ({error})"
            raise RecipeError(problem, file=path, place=f"line {number}", remedy=REMEDY) from None


@contextlib.contextmanager
def _driver_of(url: str | None) -> Iterator[None]:
    """Turns the error of a missing driver into a RecipeError."""
    try:
        yield
    except ImportError as error:
        if not url:
            raise
        raise _unusable(url, f"its driver is not installed ({error})", "pip install 'psycopg[binary]'") from error


@contextlib.contextmanager
def _reported(url: str | None) -> Iterator[None]:
    """Turns errors of the database into a RecipeError without credentials."""
    if not url:
        yield
        return
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (SQLAlchemyError, StorageInternalError) as error:
        reason = without_credentials(" ".join(str(error).split()), url)[:300]
        raise _unusable(url, reason, "correct this and run the same command again to resume") from error


def _unusable(url: str, problem: str, remedy: str) -> RecipeError:
    """Returns the error of a database, whose URL is shown without its password."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        shown = make_url(url).render_as_string(hide_password=True)
    except ArgumentError:
        shown, problem = without_credentials(url, url), "not the URL of a database"
        remedy = "expected postgresql+psycopg://user@host/name"
    return RecipeError(f"{shown}: {problem}", place=f"run.study_storage or {STORAGE}", value=shown, remedy=remedy)
