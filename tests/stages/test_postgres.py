"""A search that four workers share over a real PostgreSQL on loopback, one of them killed in the middle: make test-cluster."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stages.study import STORAGE
from tests.conftest import ROOT
from tests.stages.test_study import CELL, GRID, trials

pytestmark = pytest.mark.cluster
BIN = next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)), None)


@pytest.fixture
def database(tmp_path_factory, monkeypatch):
    """Its URL. The server runs as the user postgres, which does not run as root."""
    pytest.importorskip("psycopg", reason="no PostgreSQL driver: pip install 'psycopg[binary]'")
    if BIN is None or os.geteuid() != 0 or shutil.which("runuser") is None:
        pytest.skip("no PostgreSQL that could be started here: apt-get install postgresql, and run as root")
    folder = Path("/tmp") / f"gt-bench-postgres-{os.getpid()}"
    folder.mkdir()
    shutil.chown(folder, "postgres")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def run(*command: str) -> None:
        subprocess.run(["runuser", "-u", "postgres", "--", *command], check=True, capture_output=True, cwd="/")

    run(str(BIN / "initdb"), "-D", f"{folder}/db", "-A", "trust", "-U", "bench")
    options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off"
    run(str(BIN / "pg_ctl"), "-D", f"{folder}/db", "-l", f"{folder}/log", "-w", "-o", options, "start")
    yield f"postgresql+psycopg://bench@127.0.0.1:{port}/postgres"
    run(str(BIN / "pg_ctl"), "-D", f"{folder}/db", "-m", "immediate", "stop")
    shutil.rmtree(folder)


def test_four_workers_find_each_trial_once_and_a_killed_one_s_is_queued_again(project, database):
    project.recipe(search=GRID, epochs=150)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", STORAGE: database}
    command = [sys.executable, "-m", "stages.tune", CELL]
    doomed = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not list(Path("store").rglob("checkpoint.safetensors")):
        assert time.monotonic() < deadline
        assert doomed.poll() is None
        time.sleep(0.01)
    others = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    doomed.send_signal(signal.SIGKILL)
    doomed.wait()
    said = [process.communicate(timeout=300)[0] for process in others]
    assert [process.returncode for process in others] == [0, 0, 0], said
    rows = trials()
    complete = [(row["model.dropout"], row["optimizer.lr"]) for row in rows if row["state"] == "COMPLETE"]
    assert len(complete) == len(set(complete)) == 9
    assert [row["status"] for row in rows].count("killed, queued again") == 1
    # what the first had finished before it was killed is not done again
    assert 0 < sum(len(re.findall(r"search trial \d+ \(\d+/\d+\): ", text)) for text in said) <= 9
    assert not Path(f"studies/{CELL}/journal.log").exists()
