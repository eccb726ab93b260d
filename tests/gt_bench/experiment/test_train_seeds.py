"""When another process pays."""

import os
import signal
import time

from gt_bench.config.grid import load_grid
from gt_bench.experiment.train_seeds import Pace


def test_another_process_pays_where_it_is_done_before_the_present_ones(monkeypatch):
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

    assert not pace(2.0, 0.1, 1, 100).pays(9), "nothing is known after one epoch"
    assert pace(30.0, 0.1, 1, 100).pays(9), "but no warm-up takes that long"
    assert pace(2.0, 0.1, 2, 100).pays(1)  # 12 s of its own beside 20 in turn
    assert not pace(2.0, 0.1, 2, 10).pays(1)  # 3 s beside 2
    assert not pace(2.0, 0.1, 90, 100).pays(1)  # the present one is nearly done, and takes it on


def test_seeds_that_are_killed_beside_others_run_alone(project, monkeypatch, capsys):
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
    assert capsys.readouterr().out.count("it runs alone once the others are finished") == 2
