"""New results are reported once; a damaged list of earlier reports is ignored."""

from pathlib import Path

import pytest

from gt_bench.config.grid import load_grid
from gt_bench.pipeline.train import train_cell
from gt_bench.scheduling.verdict_changes import changed_results
from gt_bench.store.run_store import Store


@pytest.mark.slow
@pytest.mark.parametrize(
    "damage", ["[]", "{", '{"small/web/mlp accuracy ↑ %": 3}', '{"small/web/mlp accuracy ↑ %": {}}']
)
def test_a_damaged_list_is_reported_again(project, damage):
    project.recipe(seeds=[0])
    grid = load_grid()
    cell = grid.find("small/web/mlp")
    train_cell(cell, grid, bar=False)
    first = changed_results([(cell, grid)], Store())
    assert len(first) == 1
    assert changed_results([(cell, grid)], Store()) == []
    Path("store/learnt.json").write_text(damage)
    assert changed_results([(cell, grid)], Store()) == first
