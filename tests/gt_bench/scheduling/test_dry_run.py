"""What a sweep would submit, by forecasts or by counted costs."""

import json
from pathlib import Path

import pytest

from gt_bench.config.grid import load_grid
from gt_bench.config.params import Resources
from gt_bench.forecasting import cache
from gt_bench.forecasting.cache import ForecastCost
from gt_bench.scheduling.dry_run import dry_run

CELL = "small/web/mlp"


def test_a_dry_run_submits_nothing(project, monkeypatch):
    monkeypatch.setattr(cache, "_measured", lambda *_: ForecastCost(3600.0, 100.0, search_seconds=7200.0))
    project.recipe(seeds=[0, 1])
    grid = load_grid()
    rows = dry_run(list(grid.cells.values()), grid, print, measure=True)
    assert rows == [["1 GiB, 4 h, 1 core", "2", "2", "2.0 h", CELL]]
    assert not Path("store/sweep").exists()


def test_a_dry_run_counts_unless_it_is_told_to_measure(project, monkeypatch):
    project.recipe(seeds=[0, 1])
    grid = load_grid()
    cells = list(grid.cells.values())
    monkeypatch.setattr(cache, "_measured", lambda *_: pytest.fail("steps were timed"))
    unknown = "no forecast: --measure, or resources in params.yaml"
    assert dry_run(cells, grid, print) == [[unknown, "2", "2", "?", CELL]]  # no counts here
    Path("docs").mkdir()
    counted = {"seeds": 2, "search_runs": 0, "cpu": 600.0, "h100": {"unfused": 60.0}}
    Path("docs/scale.json").write_text(json.dumps({"cells": {CELL: counted}}))
    assert dry_run(cells, grid, print) == [[unknown, "2", "2", "20.0 min", CELL]]
    gpus = grid.model_copy(update={"resources": {"all": Resources(gpus=1, memory_gib=4.0)}})
    assert dry_run(cells, gpus, print) == [["4 GiB, 0.25 h, 1 core, 1 GPU", "1", "2", "2.0 min", CELL]]
