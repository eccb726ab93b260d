"""The local tracking database: complete or absent, created again if incomplete, never changed if it has content."""

import contextlib
import logging
import multiprocessing
import os
import shutil
import signal
import sqlite3
from pathlib import Path

import pytest
import sqlalchemy
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

from gt_bench.pipeline.leaderboard import track
from gt_bench.store.run_store import Store
from gt_bench.tracking import sqlite
from gt_bench.tracking.mirror import Mirror
from gt_bench.tracking.sqlite import TrackingError, make, ready_database
from gt_bench.tracking.sync import complete
from tests.gt_bench.cells import make_record, make_result
from tests.refusals import refused

pytestmark = pytest.mark.slow

CELL = "edge-transformer/cornell/gcn"
SUITE = "edge-transformer"
RECORDS = [make_record(CELL, seed) for seed in (0, 1)]
RESULTS = [make_result(CELL, RECORDS, method="GCN")]
FILE = Path("mlruns/mlflow.db")
fork = multiprocessing.get_context("fork")


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    """A folder with mlruns/, whose tracking store is the project's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    FILE.parent.mkdir()
    import mlflow  # noqa: F401 (it sets the level)

    logging.getLogger("mlflow").setLevel(logging.CRITICAL)  # as `Mirror` does, which not every test here creates


@pytest.fixture
def quick(empty, monkeypatch):
    """Create new databases as copies."""
    monkeypatch.setattr(sqlite, "make", lambda path: shutil.copy(empty, path))


def killed(work, path: Path, statements: int) -> None:
    """Call `work(path)` in a process that is killed by signal 9 at the given change of the schema."""

    def child() -> None:
        left = [statements]

        def count(connection, cursor, statement, *_):
            left[0] -= statement.split()[0] in ("CREATE", "ALTER", "DROP")
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        sqlalchemy.event.listen(sqlalchemy.engine.Engine, "before_cursor_execute", count)
        work(path)

    process = fork.Process(target=child)
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL


def begin(path: Path) -> None:
    """What MLflow itself does without a database."""
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    SqlAlchemyStore(f"sqlite:///{path}", "./mlruns")


def tracked() -> list[str]:
    """Return the digests of the runs in the store."""
    return sorted(
        run.data.tags["gt.digest"]
        for run in Mirror(sqlite.OWN, SUITE).runs.values()
        if run.data.tags["gt.kind"] == "run"
    )


DIGESTS = sorted(record.digest for record in RECORDS)


@pytest.mark.parametrize("statements", [3, 12, 60])
def test_an_incomplete_database_is_made_again_from_the_records(quick, capsys, statements):
    killed(begin, FILE.resolve(), statements)
    left, identity = FILE.read_bytes(), FILE.with_name("id")
    identity.write_text("of before")
    track(SUITE, RESULTS, {r.digest: r for r in RECORDS}, [], Store("store"))
    said = (
        "mlruns/mlflow.db is incomplete, because a process was killed: renamed to mlflow.db.damaged-1, and created "
        "again from the records\n"
    )
    err = capsys.readouterr().err
    assert err.endswith(said)
    assert err.count("\n") == 1
    assert FILE.with_name("mlflow.db.damaged-1").read_bytes() == left
    assert not identity.exists(), "DVC's leaderboards of other suites would not fill it"
    assert tracked() == DIGESTS
    track(SUITE, RESULTS, {r.digest: r for r in RECORDS}, [], Store("store"))
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_a_database_is_complete_or_absent_whenever_its_creation_is_killed(capsys):
    killed(make, FILE, 40)
    assert not FILE.exists()
    assert list(FILE.parent.glob(".mlflow.db.*.new"))
    with ready_database(sqlite.OWN):
        assert FILE.exists()
    assert [path.name for path in sorted(FILE.parent.iterdir())] == ["mlflow.db", "mlflow.db.lock"]
    assert capsys.readouterr().err == ""


def test_a_second_attempt_opens_a_new_connection(monkeypatch):
    """MLflow caches an engine per URI: the connection of a failed attempt stays open, to a file that is gone."""
    asked = []

    def fail(self, uri, *_):
        asked.append(uri)
        raise OSError("No space left on device")

    monkeypatch.setattr(SqlAlchemyStore, "__init__", fail)
    for _ in range(2):
        with pytest.raises(OSError, match="No space left"):
            make(FILE)
    assert len(set(asked)) == 2


def test_an_invalid_database_is_set_aside_under_a_free_name(quick, capsys):
    for number in (1, 2):
        FILE.write_bytes(b"no database, %d" % number * 1000)
        with ready_database(sqlite.OWN):
            pass
        assert "is damaged (file is not a database): renamed to" in capsys.readouterr().err
        assert FILE.with_name(f"mlflow.db.damaged-{number}").read_bytes().startswith(b"no database, %d" % number)


def test_a_database_of_another_version_is_kept_and_the_remedy_reported(empty, capsys):
    shutil.copy(empty, FILE)
    with contextlib.closing(sqlite3.connect(FILE)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = 'ffffffffffff'")
    before = FILE.read_bytes()
    track(SUITE, RESULTS, {r.digest: r for r in RECORDS}, [], Store("store"))
    said = capsys.readouterr().err
    for words in (
        "was written by another version of MLflow",
        f"mlflow db upgrade {sqlite.OWN}",
        "move it away, it is created again from the records",
    ):
        assert words in said
    assert FILE.read_bytes() == before
    assert not list(FILE.parent.glob("*damaged*"))


def test_a_database_of_another_project_is_never_moved(tmp_path, monkeypatch):
    other = tmp_path / "theirs.db"
    killed(begin, other, 12)
    before = other.read_bytes()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{other}")
    with refused(TrackingError, file=str(other)) as error:
        complete(SUITE, RESULTS, {r.digest: r for r in RECORDS})
    assert "is incomplete" in error.value.problem
    assert other.read_bytes() == before
    other.write_bytes(b"no database" * 1000)
    with refused(TrackingError, file=str(other)) as error:
        complete(SUITE, RESULTS, {r.digest: r for r in RECORDS})
    assert "is damaged" in error.value.problem
    assert other.read_bytes() == b"no database" * 1000


def test_four_that_complete_a_new_store_at_once_create_it_and_each_run_once():
    def work() -> None:
        complete(SUITE, RESULTS, {r.digest: r for r in RECORDS})

    processes = [fork.Process(target=work) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0] * 4
    assert tracked() == DIGESTS


def experiments(path: Path) -> set[str]:
    with contextlib.closing(sqlite3.connect(path)) as database:
        return {name for (name,) in database.execute("SELECT name FROM experiments")}


def test_a_process_that_changes_its_folder_writes_to_the_database_of_the_new_one(quick, tmp_path, monkeypatch):
    Mirror(sqlite.OWN, "before")
    second = tmp_path / "second"
    second.mkdir()
    monkeypatch.chdir(second)
    Mirror(sqlite.OWN, "after")
    assert "after" in experiments(second / FILE)
    assert "after" not in experiments(tmp_path / FILE)


def test_a_database_that_was_deleted_is_created_again_in_the_same_process(quick):
    Mirror(sqlite.OWN, "before")
    shutil.rmtree(FILE.parent)
    Mirror(sqlite.OWN, "after")
    assert "after" in experiments(FILE)
    assert "before" not in experiments(FILE)
