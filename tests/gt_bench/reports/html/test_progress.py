"""Progress of the grid, and the cost of the remaining runs."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gt_bench.config.grid import Cell, load_grid
from gt_bench.config.recipe import load_recipe
from gt_bench.forecasting.cache import FILE, ForecastCost, _add, _key
from gt_bench.leaderboard.collect import Gathered
from gt_bench.leaderboard.row import Row, Summary
from gt_bench.papers.units import Unit
from gt_bench.pipeline.page import costs_left
from gt_bench.records.cell import Reduction
from gt_bench.records.run import RunStatus
from gt_bench.records.state import CellState, Stale, StalePart
from gt_bench.reports.html import progress
from gt_bench.utils.format import duration
from tests.conftest import ROOT

COUNTED = {"h100": {"floor": 1.0, "unfused": 1800.0}, "cpu": 7200.0, "seeds": 3, "search_runs": 1}


@pytest.fixture
def cells(monkeypatch) -> list[Cell]:
    monkeypatch.chdir(ROOT)
    return load_grid().suite("embedded")[:2]


def shown(cells: list[Cell], folder: Path, rows: tuple[Row, ...] = (), **counted: dict) -> dict:
    """The line of the suite, with these counts of cells by their model."""
    grid = load_grid().model_copy(update={"cells": {cell.key: cell for cell in cells}, "suites": ["embedded"]})
    held, paper = Gathered(rows=list(rows)), folder / "scale.json"
    paper.write_text(json.dumps({"cells": {cell.cell: counted[cell.model] for cell in cells if cell.model in counted}}))
    (line,) = progress.of_suites(grid, held, costs_left(grid, held, folder, folder, paper))
    return line


def test_cost_on_gpu_and_cpu_equals_a_count_by_hand(tmp_path, cells):
    line = shown(cells, tmp_path)
    assert line["gpu"] == line["rest"] == "not known"
    line = shown(cells, tmp_path, **{cells[0].model: COUNTED, cells[1].model: {"problem": "too large"}})
    assert line["gpu"] == f"{duration(4 * 1800.0)} for 1 of 2 cells"
    assert line["rest"] == f"{duration(4 * 7200.0)} for 1 of 2 cells"


@pytest.mark.parametrize("stale", [[], [Stale(part=StalePart.CODE)]])
def test_the_rest_of_a_reduced_cell_is_left_whether_stale_or_not(tmp_path, cells, stale):
    cell, state = cells[0], CellState(ended=RunStatus.OK, wanted=1, done=1, stale=stale)
    whole = Row(cell.cell, "accuracy", "max", Unit.PERCENT, state, Summary(runs=1, wanted=1), source="shipped")
    reduced, counted = replace(whole, reduced=(Reduction(unit="seeds", have=1, full=3),)), {cell.model: COUNTED}
    cut = shown([cell], tmp_path, (reduced,), **counted)
    assert (cut["done"], cut["begun"]) == (0, 1)
    assert cut["rest"] == f"{duration(2 * 7200.0)} for 1 of 1 cells"
    assert cut["gpu"] == f"{duration(2 * 1800.0)} for 1 of 1 cells"
    line = shown([cell], tmp_path, (whole,), **counted)
    assert (line["done"], line["begun"], line["rest"]) == (1, 0, "nothing")


def test_the_cost_of_the_rest_is_what_a_forecast_stored(tmp_path, cells):
    cell, grid = cells[0], load_grid()
    _add(tmp_path / FILE, _key(cell, grid, tmp_path), ForecastCost(seconds=3600.0, search_seconds=60.0))
    seconds = 3600.0 * len(load_recipe(cell.recipe_path).seeds) + 60.0
    assert shown([cell], tmp_path)["rest"] == f"{duration(seconds)} for 1 of 1 cells, 1 by forecast"
    gone = cell.model_copy(update={"key": "embedded-chains-gone", "cell": "embedded/chains/gone", "model": "gone"})
    assert shown([cell, gone], tmp_path)["rest"].endswith(" for 1 of 2 cells, 1 by forecast")
