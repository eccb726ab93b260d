"""Every mistake in params.yaml names the file, the key and the nearest valid one; names of suites and cells."""

import math

import pytest

from gt_bench.config.grid import load_grid
from gt_bench.config.schema import RecipeError
from tests.conftest import ROOT
from tests.gt_bench.conftest import write_yaml
from tests.refusals import refused

CELL = {"cell": "small/web/mlp", "dataset": "web", "model": "mlp", "settings": "recipes"}
GRID = {"datasets": ["web"], "suites": ["small"], "cells": {"small-web-mlp": CELL}}


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"run": {"devise": "cpu"}}, "run.devise"),
        ({"run": {"parallel": "many"}}, "run.parallel"),
        ({"run": {"parallel": 0}}, "run.parallel"),
        ({"run": {"time_limit_hours": math.inf}}, "run.time_limit_hours"),
        ({"run": {"checkpoint_seconds": math.inf}}, "run.checkpoint_seconds"),
        ({"run": {"device": "cdua"}}, "run.device"),
        ({"resources": {"all": {"hours": math.inf}}}, "resources.all.hours"),
        ({"cels": {}}, "cels"),
        ({"cells": {"small-web-mlp": CELL | {"setings": "tuned"}}}, "cells.small-web-mlp.setings"),
        ({"cells": {"x": CELL}}, "cells.x"),
        ({"cells": {"small-wed-mlp": CELL | {"cell": "small/wed/mlp", "dataset": "wed"}}}, "cells.small-wed-mlp"),
        ({"limits": {"smal": {"seeds": 1}}}, "limits"),
        ({"limits": {"small-web-mlp": {"seeds": 2}}}, "limits"),
        ({"resources": {"small/wed/mlp": {"hours": 1}}}, "resources"),
        ({"searches": GRID["cells"]}, "searches"),
        ({"run": {"margin_std": 1.0}}, "run.margin_std"),
        ({"run": {"verdict": {"alpha": 0.05}}}, "run.verdict.alpha"),
        ({"run": {"verdict": {"power": 0.97}}}, "run.verdict.power"),
        ({"run": {"verdict": {"unstated_runs": [1, 10]}}}, "run.verdict.unstated_runs"),
        ({"run": {"verdict": {"level": 0}}}, "run.verdict.level"),
    ],
)
def test_a_mistake_in_params_names_the_file_and_its_key(tmp_path, change, key):
    path = write_yaml(tmp_path, {**GRID, **change}, "params.yaml")
    with refused(RecipeError, file=str(path), place=key):
        load_grid(path)


def test_a_cell_is_cut_by_its_name(tmp_path):
    name = "small/web/mlp"
    content = GRID | {"limits": {name: {"seeds": 1}}, "resources": {name: {"hours": 2}}}
    grid = load_grid(write_yaml(tmp_path, content, "params.yaml"))
    cell = grid.find(name)
    assert (grid.limits_of(cell).seeds, grid.resources_of(cell).hours) == (1, 2)


def test_names_of_suites_and_cells():
    grid = load_grid(ROOT / "params.yaml")
    assert grid.chosen([]) == list(grid.cells.values())
    assert grid.chosen(["embedded", "embedded/chains/mlp"]) == grid.suite("embedded")
    assert {cell.dataset for cell in grid.chosen(["embedded/chains"])} == {"chains"}
    for name in ("embeded", "embedded/chains/mpl"):
        with refused(RecipeError, value=name):
            grid.chosen([name])
