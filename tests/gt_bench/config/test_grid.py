"""Every mistake in params.yaml names the file, the key and the nearest valid one; names of suites and cells."""

import math

import pytest

from gt_bench.config.grid import load_grid
from gt_bench.config.schema import RecipeError
from tests.conftest import ROOT
from tests.gt_bench.conftest import write_yaml

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
        ({"cells": {"x": CELL}}, ""),
        ({"cells": {"small-wed-mlp": CELL | {"cell": "small/wed/mlp", "dataset": "wed"}}}, ""),
        ({"limits": {"smal": {"seeds": 1}}}, ""),
        ({"limits": {"small/web/mlp": {"seeds": 1}, "small-web-mlp": {"seeds": 2}}}, ""),
        ({"resources": {"small/wed/mlp": {"hours": 1}}}, ""),
        ({"searches": GRID["cells"]}, ""),
    ],
)
def test_a_mistake_in_params_names_the_file_and_its_key(tmp_path, change, key):
    path = write_yaml(tmp_path, {**GRID, **change}, "params.yaml")
    with pytest.raises(RecipeError) as error:
        load_grid(path)
    assert error.value.keys == (key,)
    assert str(error.value).startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("change", "nearest"),
    [
        ({"run": {"devise": "cpu"}}, "device"),
        ({"limits": {"smal": {"seeds": 1}}}, "small"),
        ({"limits": {"small/web/mpl": {"seeds": 1}}}, "small/web/mlp"),
        ({"cells": {"small-wed-mlp": CELL | {"cell": "small/wed/mlp", "dataset": "wed"}}}, "web"),
    ],
)
def test_the_nearest_name_is_given(tmp_path, change, nearest):
    with pytest.raises(RecipeError, match=f"did you mean '{nearest}'"):
        load_grid(write_yaml(tmp_path, {**GRID, **change}, "params.yaml"))


@pytest.mark.parametrize("name", ["small/web/mlp", "small-web-mlp"])
def test_a_cell_is_cut_by_its_path_and_by_its_key(tmp_path, name):
    content = GRID | {"limits": {name: {"seeds": 1}}, "resources": {name: {"hours": 2}}}
    grid = load_grid(write_yaml(tmp_path, content, "params.yaml"))
    cell = grid.find("small/web/mlp")
    assert (grid.limits_of(cell).seeds, grid.resources_of(cell).hours) == (1, 2)
    assert (list(grid.limits), list(grid.resources)) == (["small/web/mlp"], ["small/web/mlp"])


def test_the_nearest_suite_and_cell_are_named(tmp_path):
    grid = load_grid(write_yaml(tmp_path, GRID, "params.yaml"))
    assert [c.cell for c in grid.suite("small")] == ["small/web/mlp"]
    with pytest.raises(RecipeError, match="did you mean 'small'"):
        grid.suite("smal")
    with pytest.raises(RecipeError, match="did you mean 'small/web/mlp'"):
        grid.find("small/web/mpl")
    assert grid.find("small-web-mlp") is grid.find("small/web/mlp")


def test_names_of_suites_and_cells():
    grid = load_grid(ROOT / "params.yaml")
    assert grid.chosen([]) == list(grid.cells.values())
    assert grid.chosen(["embedded", "embedded/chains/mlp"]) == grid.suite("embedded")
    assert {cell.dataset for cell in grid.chosen(["embedded/chains"])} == {"chains"}
    with pytest.raises(RecipeError, match="did you mean 'embedded'"):
        grid.chosen(["embeded"])
    with pytest.raises(RecipeError, match="did you mean 'embedded/chains/mlp'"):
        grid.chosen(["embedded/chains/mpl"])


def test_both_spellings_of_a_suite():
    grid = load_grid(ROOT / "params.yaml")
    assert grid.suite("edge_transformer") == grid.suite("edge-transformer")
    assert grid.find("edge_transformer/cornell/gcn").cell == "edge-transformer/cornell/gcn"
    assert grid.chosen(["edge_transformer"]) == grid.suite("edge-transformer")
    assert grid.suite_name("edge_transformer") == "edge-transformer"
    with pytest.raises(RecipeError, match="no suite named 'edge_transfomer'"):
        grid.suite("edge_transfomer")
