"""A real MLflow server on loopback with PostgreSQL and eight writers: make test-cluster."""

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from gt_bench.tracking.mirror import QUIET, Mirror
from gt_bench.tracking.sync import complete
from gt_bench.tracking.ui import NO_JOBS
from tests.gt_bench.cells import make_record, make_result
from tests.gt_bench.postgres import free_port, postgres
from tests.gt_bench.tracking.conftest import SUITE, snapshot, start

pytestmark = pytest.mark.cluster
CELLS = [f"{SUITE}/data{number}/gcn" for number in range(8)]
RECORDS = {cell: [make_record(cell, seed) for seed in (0, 1)] for cell in CELLS}
RESULTS = {cell: make_result(cell, records, method=None) for cell, records in RECORDS.items()}
BY_DIGEST = {record.digest: record for records in RECORDS.values() for record in records}
BEFORE = 5  # epochs of the first seed before anything breaks


class Server:
    def __init__(self, database: str, folder: Path):
        self.port, self.artifacts = free_port(), folder / "artifacts"
        self.uri = f"http://127.0.0.1:{self.port}"
        self.command = [
            sys.executable, "-m", "mlflow", "server", "--backend-store-uri", database,
                "--artifacts-destination", str(self.artifacts),
            "--host", "127.0.0.1", "--port", str(self.port), "--workers", "2",
        ]  # fmt: skip
        self.log = (folder / "server.log").open("ab")

    def start(self) -> None:
        self.process = subprocess.Popen(
            self.command, stdout=self.log, stderr=self.log, start_new_session=True, env=os.environ | QUIET | NO_JOBS
        )
        deadline = time.monotonic() + 400
        while True:
            assert time.monotonic() < deadline, "the server does not answer"
            assert self.process.poll() is None, Path(self.log.name).read_text()
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.uri}/health", timeout=5) as answer:
                if answer.status == 200:
                    return
            time.sleep(0.2)

    def kill(self) -> None:
        """Kill the server with all its workers."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def server(tmp_path) -> Iterator[Server]:
    with postgres() as database:
        server = Server(database, tmp_path)
        server.start()
        yield server
        for writer in multiprocessing.active_children():
            writer.kill()
        server.kill()


def write(cell: str, goes_on: Path) -> None:
    """Send the messages of a training cell epoch by epoch; wait in the middle of the first seed."""
    result, records = RESULTS[cell], RECORDS[cell]
    live = start(result, records[0])
    for record in records:
        run = record.run
        live.start_seed(run.seed, record.digest)
        for i, epoch in enumerate(run.epochs["epoch"]):
            values = {k: v[i] for k, v in run.epochs.items() if k != "epoch" and v[i] is not None}
            live.log_epoch(record.digest, epoch, values)
            while epoch >= BEFORE and not goes_on.exists():
                time.sleep(0.1)
            time.sleep(0.2)
        live.finish_seed(record)
    live.close(result, records)


def test_eight_writers_one_killed_and_a_restart_in_the_middle(server, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.uri)
    fork = multiprocessing.get_context("fork")
    goes_on = tmp_path / "resume"  # a file: an event would wait for a process that was killed while it waited
    writers = [fork.Process(target=write, args=(cell, goes_on)) for cell in CELLS]
    for writer in writers:
        writer.start()
    deadline = time.monotonic() + 400
    while sum("curve/train_loss" in run.data.metrics for run in Mirror(server.uri, SUITE).runs.values()) < len(CELLS):
        assert time.monotonic() < deadline, "not all writers got to their first epochs"
        time.sleep(0.5)
    os.kill(writers[0].pid, signal.SIGKILL)
    server.kill()
    goes_on.touch()
    time.sleep(8)  # longer than the timeout of a tracker
    server.start()
    for writer in writers:
        writer.join(400)
    assert [writer.exitcode for writer in writers] == [-signal.SIGKILL, *[0] * 7]
    said = capfd.readouterr().err
    assert 1 <= said.count(f"warning: MLflow at {server.uri} cannot be used") <= 8, said
    assert "Traceback" not in said
    before = snapshot_of(server)
    # the leaderboard, from two places at once
    both = [fork.Process(target=complete, args=(SUITE, list(RESULTS.values()), BY_DIGEST)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join(400)
    assert [process.exitcode for process in both] == [0, 0]
    after = snapshot_of(server)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/rebuilt/mlflow.db")
    complete(SUITE, list(RESULTS.values()), BY_DIGEST)
    assert after == snapshot(f"sqlite:///{tmp_path}/rebuilt/mlflow.db")
    assert len(after) == 8 + 16
    assert before != after, "nothing was broken, so that nothing was shown"


def snapshot_of(server: Server) -> dict:
    return snapshot(server.uri, artifacts=server.artifacts)
