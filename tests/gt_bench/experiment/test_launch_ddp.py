"""One run in several processes: start, end, signals, processes that die or stop, and recipes that are rejected."""

import os
import signal
import subprocess
import sys
import time
from multiprocessing import get_context
from pathlib import Path

import psutil
import pytest
import torch

from gt_bench.config.grid import load_grid
from gt_bench.config.recipe import Recipe
from gt_bench.config.schema import RecipeError
from gt_bench.experiment import launch_ddp
from gt_bench.experiment.launch_ddp import RankProcesses
from gt_bench.pipeline.train import train_cell
from gt_bench.runtime.signals import Stopped, handled
from gt_bench.runtime.worker_pool import Lost
from tests.conftest import ROOT
from tests.gt_bench.conftest import RECIPE
from tests.refusals import refused

CELL = "small/many/mlp"


@pytest.fixture
def forked(monkeypatch):
    import torch._dynamo  # noqa: F401 (slow to import: once, before the forks)

    monkeypatch.setattr(launch_ddp, "START", "fork")


def train(**named):
    grid = load_grid()
    return train_cell(grid.find(CELL), grid, **named)


def checkpoint() -> Path | None:
    return next(iter(Path("store").rglob("checkpoint.safetensors")), None)


def wait_for(what, seconds: float = 120.0):
    until = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < until
        time.sleep(0.01)
    return found


@pytest.mark.slow
def test_a_killed_process_ends_the_run_and_the_same_command_resumes_it(project, monkeypatch):
    project.recipe("many", batch={"graphs": 10}, epochs=150, eval_every=50, seeds=[0], processes=2)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    stage = subprocess.Popen(
        [sys.executable, "-m", "stages.train", CELL], env=environment, stderr=subprocess.PIPE, text=True
    )
    wait_for(lambda: checkpoint() or stage.poll() is not None)
    assert stage.poll() is None, stage.stderr.read()
    children = [p for p in psutil.process_iter(["ppid", "cmdline"]) if p.info["ppid"] == stage.pid]
    mine = [p for p in children if "spawn_main" in " ".join(p.info["cmdline"] or [])]  # None of one that has ended
    first, second = sorted(mine, key=lambda process: process.create_time())
    second.kill()
    _, said = stage.communicate(timeout=60)
    assert stage.returncode == 1
    assert "error: suites/small/recipes/many/mlp.yaml: seed 0: process 1 of 2: killed by signal 9" in said
    assert not first.is_running()
    assert checkpoint()
    assert not list(Path("store").rglob("record.json"))

    monkeypatch.setattr(launch_ddp, "START", "fork")  # spawning was tested above
    train()
    (continued,) = project.records()
    assert continued.measured.processes == 2
    assert continued.run.recipe["processes"] == 2
    Path("store").rename("continued")
    train()
    (whole,) = project.records()
    assert continued.run == whole.run


@pytest.mark.slow
def test_a_signal_leaves_a_checkpoint_and_no_process(project, forked, capsys):
    project.recipe("many", batch={"graphs": 4}, epochs=2000, seeds=[0], processes=2, run={"checkpoint_seconds": 1e9})
    told = []

    def notice():
        told.append(1)
        if len(told) == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    before = set(psutil.Process().children(recursive=True))
    with handled(), pytest.raises(Stopped) as caught:
        train(notice=notice)
    assert caught.value.code == 143
    assert "stopped by SIGTERM; run the same command again to resume" in capsys.readouterr().err
    assert checkpoint()  # written by rank 0 because of the signal: no checkpoint was due
    assert set(psutil.Process().children(recursive=True)) <= before


class _Stops:
    """Work in which the last process is stopped while the others wait for it."""

    def __call__(self, share, tell):
        if share.rank == share.world - 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        share.all_gather(torch.ones(1))


@pytest.mark.slow
def test_a_process_that_is_stopped_is_named_and_does_not_hang_the_others(forked):
    with RankProcesses(_Stops(), 2, timeout=2) as both, refused(Lost, place="process 1 of 2"):
        both.values()


@pytest.mark.slow
def test_no_process_outlives_its_parent(project, forked):
    project.recipe("many", batch={"graphs": 4}, epochs=100_000, seeds=[0], processes=2)
    parent = get_context("fork").Process(target=train)
    parent.start()
    wait_for(checkpoint)
    children = psutil.Process(parent.pid).children(recursive=True)
    assert len(children) >= 2
    parent.kill()
    parent.join()
    _, alive = psutil.wait_procs(children, timeout=20)
    assert not alive


def _raises(share, tell):
    if share.rank == 1:
        raise RecipeError("not here", file="recipe.yaml")
    time.sleep(60)


def _dies(share, tell):
    if share.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    share.all_gather(torch.zeros(1))


def _agrees(share, tell):
    tell(share.rank)
    share.all_gather(torch.zeros(1))
    listens = {
        socket.laddr.ip for socket in psutil.Process().net_connections("inet") if socket.status == psutil.CONN_LISTEN
    }
    return share.rank, share.world, listens


def test_results_messages_errors_and_deaths_of_processes(forked):
    heard = []
    with RankProcesses(_agrees, 2) as two:
        assert two.values(heard.append) == [(0, 2, {"127.0.0.1"}), (1, 2, {"127.0.0.1"})]
    assert sorted(heard) == [0, 1]
    began = time.monotonic()
    with refused(RecipeError, file="recipe.yaml", problem="not here"), RankProcesses(_raises, 2) as two:
        two.values()
    with refused(Lost, place="process 1 of 2"), RankProcesses(_dies, 2) as two:
        two.values()
    assert time.monotonic() - began < 40


@pytest.mark.slow
def test_seeds_side_by_side_have_cores_for_all_their_processes(project, forked, monkeypatch):
    project.recipe("many", batch={"graphs": 4}, epochs=2, seeds=[0, 1], processes=2)
    asked = []
    monkeypatch.setattr(
        "gt_bench.experiment.train_seeds.at_once", lambda parallel, tasks, cores, gpu: asked.append(cores) or 2
    )
    assert train().status == "ok"
    assert asked == [2]
    assert [record.measured.processes for record in project.records()] == [2, 2]
    assert Recipe(**RECIPE, processes=2, threads=3).cores == 6


TUNED = {"search": {"trials": 1, "space": {"processes": {"choices": [1, 2]}}}}


@pytest.mark.parametrize(
    ("changes", "place", "value"),
    [
        ({"processes": 0}, "processes", 0),
        ({"processes": 5}, "processes", 5),
        ({"processes": 2, "eval_device": "cpu"}, "processes", 2),
        ({"processes": 2, "batch": {"parts": 2}}, "processes", 2),
        ({"processes": 2, **TUNED}, "search.space", "processes"),
    ],
)
def test_invalid_recipes(project, changes, place, value):
    project.recipe("many", **{"batch": {"graphs": 4}, **changes})
    with refused(RecipeError, file="suites/small/recipes/many/mlp.yaml", place=place, value=value):
        train()
