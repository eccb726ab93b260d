"""What has been learnt is said once; a damaged list of what was said costs no work."""

from pathlib import Path

import pytest

from stages.params import load_grid
from stages.store import Store
from stages.sweep.learnt import news
from stages.train import train_cell


@pytest.mark.parametrize("damage", ["[]", "{", '{"small/web/mlp accuracy ↑ %": 3}', '{"small/web/mlp accuracy ↑ %": {}}'])
def test_a_damaged_list_is_said_anew(project, damage):
    project.recipe(seeds=[0])
    grid = load_grid()
    cell = grid.find("small/web/mlp")
    train_cell(cell, grid, bar=False)
    first = news([(cell, grid)], Store())
    assert len(first) == 1
    assert news([(cell, grid)], Store()) == []
    Path("store/learnt.json").write_text(damage)
    assert news([(cell, grid)], Store()) == first
