"""Seeds of a cell in parallel: when another process saves time, and seeds that are killed."""

import os
import signal
import time

import pytest

from gt_bench.config.grid import load_grid
from gt_bench.experiment.train_seeds import Pace


def test_a_process_is_started_if_it_finishes_before_the_running_ones(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])

    def pace(first, each, epochs, reports):
        clock[0] = 0.0
        found = Pace(reports)
        found.start(0)
        for number in range(epochs):
            clock[0] += each if number else first
            found.epoch(0)
        return found

    assert not pace(2.0, 0.1, 1, 100).pays(9), "one epoch does not show the time per epoch"
    assert pace(30.0, 0.1, 1, 100).pays(9), "a first epoch of 30 s is not warm-up"
    assert pace(2.0, 0.1, 2, 100).pays(1)  # 12 s with it, 20 s without
    assert not pace(2.0, 0.1, 2, 10).pays(1)  # 3 s with it, 2 s without
    assert not pace(2.0, 0.1, 90, 100).pays(1)  # the running process is almost finished


@pytest.mark.slow
def test_seeds_that_are_killed_in_parallel_are_run_again_alone(project, monkeypatch, capsys):
    from gt_bench.experiment.run import Experiment
    from gt_bench.pipeline.train import train_cell

    project.recipe(seeds=[0, 1], run={"parallel": 2})
    compute, grid = Experiment.run, load_grid()

    def killed_beside_others(experiment, seed, shared=False, **others):
        if shared:
            os.kill(os.getpid(), signal.SIGKILL)
        return compute(experiment, seed, shared=shared, **others)

    monkeypatch.setattr(Experiment, "run", killed_beside_others)
    monkeypatch.setattr(Pace, "pays", lambda *_: True)
    result = train_cell(grid.find("small/web/mlp"), grid)
    assert result["status"] == "ok"
    assert [record["deterministic"]["status"] for record in project.records()] == ["ok"] * 2
    assert capsys.readouterr().out.count("it is run alone after the other seeds") == 2
