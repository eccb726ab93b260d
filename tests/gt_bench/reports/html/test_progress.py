"""Progress of the grid, and the cost of the remaining runs."""

import json

from gt_bench.config.grid import load_grid
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


def test_cost_on_gpu_and_cpu_equals_a_count_by_hand(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    grid = load_grid()
    cells = grid.suite("embedded")[:2]
    grid = grid.model_copy(update={"cells": {cell.key: cell for cell in cells}, "suites": ["embedded"]})
    paper = tmp_path / "scale.json"
    (line,) = progress.of_suites(grid, Gathered(), costs_left(grid, Gathered(), tmp_path, tmp_path, paper))
    assert line["gpu"] == line["rest"] == "not known"
    counted = {"h100": {"floor": 1.0, "unfused": 1800.0}, "cpu": 7200.0, "seeds": 3, "search_runs": 1}
    paper.write_text(json.dumps({"cells": {cells[0].cell: counted, cells[1].cell: {"problem": "too large"}}}))
    (line,) = progress.of_suites(grid, Gathered(), costs_left(grid, Gathered(), tmp_path, tmp_path, paper))
    assert line["gpu"] == f"{duration(4 * 1800.0)} for 1 of 2 cells"
    assert line["rest"] == f"{duration(4 * 7200.0)} for 1 of 2 cells"


def test_the_rest_of_a_reduced_cell_is_left_whether_stale_or_not(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    grid = load_grid()
    cell = grid.suite("embedded")[0]
    grid = grid.model_copy(update={"cells": {cell.key: cell}, "suites": ["embedded"]})
    paper = tmp_path / "scale.json"
    paper.write_text(
        json.dumps({"cells": {cell.cell: {"h100": {"unfused": 1800.0}, "cpu": 7200.0, "seeds": 3, "search_runs": 1}}})
    )

    def line(stale: list[Stale], reduced: list[Reduction]) -> dict[str, object]:
        state = CellState(ended=RunStatus.OK, wanted=1, done=1, stale=stale)
        summary = Summary(runs=1, wanted=1)
        row = Row(cell.cell, "accuracy", "max", Unit.PERCENT, state, summary, reduced=tuple(reduced), source="shipped")
        held = Gathered(rows=[row])
        (found,) = progress.of_suites(grid, held, costs_left(grid, held, tmp_path, tmp_path, paper))
        return found

    for stale in ([], [Stale(part=StalePart.CODE)]):
        cut = line(stale, [Reduction(unit="seeds", have=1, full=3)])
        assert (cut["done"], cut["begun"]) == (0, 1)
        assert cut["rest"] == f"{duration(2 * 7200.0)} for 1 of 1 cells"
        assert cut["gpu"] == f"{duration(2 * 1800.0)} for 1 of 1 cells"
        whole = line(stale, [])
        assert (whole["done"], whole["begun"], whole["rest"]) == (1, 0, "nothing")


def test_the_cost_of_the_rest_is_what_a_forecast_stored(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    grid = load_grid()
    cell = grid.suite("embedded")[0]
    grid = grid.model_copy(update={"cells": {cell.key: cell}, "suites": ["embedded"]})
    _add(tmp_path / FILE, _key(cell, grid, tmp_path), ForecastCost(seconds=3600.0, search_seconds=60.0))
    (line,) = progress.of_suites(grid, Gathered(), costs_left(grid, Gathered(), tmp_path, tmp_path))
    assert (
        line["rest"]
        == f"{duration(3600.0 * len(load_recipe(cell.recipe_path).seeds) + 60.0)} for 1 of 1 cells, 1 by forecast"
    )
    gone = cell.model_copy(update={"key": "embedded-chains-gone", "cell": "embedded/chains/gone", "model": "gone"})
    grid = grid.model_copy(update={"cells": {cell.key: cell, gone.key: gone}})
    (line,) = progress.of_suites(grid, Gathered(), costs_left(grid, Gathered(), tmp_path, tmp_path))
    assert line["rest"].endswith(" for 1 of 2 cells, 1 by forecast")
