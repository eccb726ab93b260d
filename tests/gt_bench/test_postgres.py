"""A search by four workers over a real PostgreSQL on loopback, one of which is killed: make test-cluster."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gt_bench.search.storage import STORAGE
from tests.conftest import ROOT
from tests.gt_bench.postgres import database, stop  # noqa: F401 - a fixture
from tests.gt_bench.search.cases import GRID, trials
from tests.gt_bench.shipping import CELL

pytestmark = pytest.mark.cluster


def test_four_workers_find_each_trial_once_and_a_killed_one_s_is_queued_again(project, database):  # noqa: F811
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
    # completed trials of the killed worker are not repeated
    assert 0 < sum(len(re.findall(r"search trial \d+ \(\d+/\d+\): ", text)) for text in said) <= 9
    assert not Path(f"studies/{CELL}/journal.log").exists()
    assert not any("journal" in text for text in said)


def test_a_server_that_stops_during_a_search_is_one_line(project, database):  # noqa: F811
    project.recipe(search=GRID, epochs=3000)
    url = database.replace("bench@", "bench:s3cr3t@")
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", STORAGE: url}
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", "stages.tune", CELL], env=environment, stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    deadline = time.monotonic() + 120
    while len(list(Path("store").rglob("checkpoint.safetensors"))) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    stop()
    for process in workers:
        said = process.communicate(timeout=200)[1]
        assert process.returncode == 1
        assert [line.partition(": ")[0] for line in said.splitlines() if line.strip()] == ["error"]
        assert "s3cr3t" not in said
