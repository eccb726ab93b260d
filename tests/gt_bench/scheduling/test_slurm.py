"""Sweeps on a real Slurm with two nodes on this host, started here: make test-cluster.

The cluster fails in every way, and the results are bit-identical to those of one machine.
"""

import contextlib
import csv
import json
import os
import shutil
import subprocess
import threading
import time
from pathlib import Path

import psutil
import pytest
from filelock import FileLock

from gt_bench.config.grid import load_grid
from gt_bench.forecasting import cache as costs_room
from gt_bench.forecasting.cache import ForecastCost
from gt_bench.pipeline.train import train_cell
from gt_bench.scheduling.slurm import Slurm
from gt_bench.scheduling.slurm_sweep import sweep
from gt_bench.search.storage import STORAGE
from tests.conftest import SHARED
from tests.gt_bench.postgres import database  # noqa: F401 - a fixture

pytestmark = pytest.mark.cluster
SCRIPT = SHARED / "cluster" / "slurm-here"
SECONDS = 150.0  # timeout of each step


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    for missing, why in (
        (shutil.which("slurmctld") is None, "Slurm is not installed: apt-get install slurm-wlm munge"),
        (os.geteuid() != 0, "its daemons are started by root"),
        (not SCRIPT.exists(), f"{SCRIPT} does not exist"),
    ):
        if missing:
            pytest.skip(f"no Slurm: {why}")
    folder = tmp_path_factory.mktemp("slurm")
    with FileLock("/tmp/gt-bench-slurm.lock"):  # its ports are fixed
        subprocess.run([SCRIPT, "start", folder], check=True, capture_output=True)
        before = os.environ.get("SLURM_CONF")
        os.environ["SLURM_CONF"] = str(folder / "slurm.conf")
        yield folder
        subprocess.run([SCRIPT, "stop", folder], check=True, capture_output=True)
        os.environ.pop("SLURM_CONF") if before is None else os.environ.update(SLURM_CONF=before)


def until(condition, what: str):
    end = time.monotonic() + SECONDS
    while not (found := condition()):
        assert time.monotonic() < end, what
        time.sleep(0.2)
    return found


def control(*arguments: str) -> str:
    return subprocess.run(["scontrol", *arguments], capture_output=True, text=True).stdout


def field(job: str, name: str) -> str:
    return next(
        (
            part.partition("=")[2]
            for part in control("show", "job", job, "--oneliner").split()
            if part.startswith(f"{name}=")
        ),
        "",
    )


def end_steps_of(node: str) -> None:
    """Kill the processes of a node; the script does not end those with a process group of their own."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("SLURMD_NODENAME") == node:
                process.kill()


class Followed(threading.Thread):
    """A sweep in a thread, with its result `done` and its lines `said`."""

    def __init__(self):
        super().__init__(daemon=True)
        self.said, self.done = [], None
        self.start()

    def run(self):
        grid = load_grid()
        self.done = sweep(list(grid.cells.values()), grid, Slurm(Path("store/sweep")), 4, self.said.append, poll=0.5)

    def end(self):
        self.join(SECONDS)
        assert not self.is_alive(), self.said
        return "\n".join(self.said)


def jobs() -> dict[str, str]:
    """Return model of the cell -> the last job that was submitted for it."""
    path = Path("store/sweep/submitted.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return {line["name"].split("/")[-1]: line["id"] for line in lines}


def test_results_under_faults_equal_those_of_one_machine(slurm, project, monkeypatch):
    """Run two sweeps at the same time while jobs fail, then another sweep in which a job reaches its time limit.

    No partition accepts one cell, no node has the memory for one, the node of one is killed, and one is cancelled.
    """
    monkeypatch.setattr(costs_room, "_measured", lambda cell, grid, data: ForecastCost(60.0, 100.0))
    run = {"checkpoint_seconds": 0.2}
    for row, epochs in (("killed", 4000), ("cancelled", 12000), ("refused", 3), ("huge", 4)):
        project.recipe(row=row, seeds=[0], epochs=epochs, run=run)
    params = Path("params.yaml")
    grid = params.read_text()
    asked = (
        "resources: {small-web-refused: {slurm: {partition: nowhere}}, small-web-huge: {memory_gib: 100000}, "
        "small-web-cancelled: {hours: %s}}\n"
    )
    params.write_text(grid + asked % 1)
    first, second = Followed(), Followed()
    until(lambda: {"killed", "cancelled"} <= jobs().keys(), "nothing is submitted")
    checkpoints = lambda: len(list(Path("store").glob("??/*/checkpoint.safetensors")))  # noqa: E731
    until(lambda: checkpoints() == 2, "no checkpoint")
    killed, cancelled = jobs()["killed"], jobs()["cancelled"]
    subprocess.run(["scancel", cancelled], check=True)
    node = field(killed, "NodeList")
    subprocess.run([SCRIPT, "kill", slurm, node], check=True, capture_output=True)
    end_steps_of(node)
    control("update", f"nodename={node}", "state=down", "reason=killed")
    until(lambda: field(killed, "Restarts") == "1", "the job of a dead node is not queued again")
    control("update", f"job={killed}", "starttime=now")
    texts = [first.end(), second.end()]
    assert (first.done, second.done) == (False, False)
    registered = [json.loads(line) for line in Path("store/sweep/submitted.jsonl").read_text().splitlines()]
    assert sorted(line["name"] for line in registered) == ["small/web/cancelled", "small/web/killed"]  # once each
    for text in texts:
        assert "skipped: 1 jobs of small/web/refused: Slurm rejects a job that needs" in text
        assert "partition" in text
        assert "skipped: 1 jobs of small/web/huge: Slurm rejects" in text
        assert f"small/web/cancelled seed 0: job {cancelled} ended without a result" in text
    assert checkpoints() == 1  # of the cancelled job

    params.write_text(grid + asked % (1 / 60))
    third = Followed()
    limited = until(lambda: jobs()["cancelled"] != cancelled and jobs()["cancelled"], "it is not submitted again")
    until(lambda: field(limited, "Restarts") == "1", "its time limit did not queue it again")
    control("update", f"job={limited}", "timelimit=10", "starttime=now")
    assert "small/web/cancelled seed 0: ok, accuracy" in third.end()

    params.write_text(grid)
    alone = load_grid()
    for row in ("killed", "cancelled"):
        train_cell(alone.find(f"small/web/{row}"), alone, store_root=Path("alone"), results=Path("alone-results"))
    ours, theirs = (
        {
            (r := json.loads(path.read_text()))["digest"]: r["deterministic"]
            for path in Path(root).glob("??/*/record.json")
        }
        for root in ("store", "alone")
    )
    assert ours == theirs
    assert len(ours) == 2


def test_workers_on_several_nodes_share_a_search_in_postgresql(slurm, project, database, monkeypatch):  # noqa: F811
    """Run four trials as four jobs; one job is cancelled during its trial and submitted again; then the seed runs."""
    monkeypatch.setattr(
        costs_room, "_measured", lambda cell, grid, data: ForecastCost(60.0, 100.0, search_seconds=4 * 1000.0)
    )
    monkeypatch.setenv(STORAGE, database)
    space = {"model.dropout": {"choices": [0.0, 0.1, 0.2, 0.3]}}
    search = {"trials": 4, "sampler": "grid", "pruner": "none", "space": space}
    project.recipe(seeds=[0], search=search, epochs=3000, run={"checkpoint_seconds": 0.2})
    followed = Followed()
    until(lambda: list(Path("store").glob("??/*/checkpoint.safetensors")), "no trial runs")
    submitted = [json.loads(line)["id"] for line in Path("store/sweep/submitted.jsonl").read_text().splitlines()]
    assert len(submitted) == 4
    running = next(job for job in submitted if field(job, "JobState") == "RUNNING")
    subprocess.run(["scancel", running], check=True)
    text = followed.end()
    assert followed.done, text
    assert f"small/web/mlp search: job {running} ended without a result" in text
    with Path("tuned/small/web/mlp.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert sorted(row["model.dropout"] for row in rows if row["status"] == "ok") == ["0.0", "0.1", "0.2", "0.3"]
    assert [row["status"] for row in rows].count("killed, queued again") == len(rows) - 4 == 1
    assert len(project.records()) == 5
    assert len(Path("store/sweep/submitted.jsonl").read_text().splitlines()) == 6
