"""grid.yaml agrees with the recipes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gt_bench.config.grid import load_grid
from gt_bench.config.grid_text import MARK, render
from gt_bench.config.schema import RecipeError
from gt_bench.pipeline.grid import main
from gt_bench.utils.paths import recipe_file
from tests.conftest import ROOT
from tests.refusals import refused

RECIPE = {"model": {"name": "mlp"}, "optimizer": {"lr": 0.1}, "epochs": 1, "seeds": [0]}


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content))


def test_the_grid_is_that_of_the_recipes():
    assert render(ROOT / "suites") == (ROOT / "grid.yaml").read_text(), "run `python -m gt_bench.pipeline.grid`"
    grid = load_grid(ROOT / "params.yaml")
    assert set(grid.suites) == {c.suite for c in grid.cells.values()}


def test_the_grid_from_a_folder_of_recipes(tmp_path):
    for place in ("b/web/mlp", "embedded/web/mlp"):
        write(recipe_file(place, tmp_path / "suites"), RECIPE)
    search = {"trials": 2, "space": {"model.dropout": {"choices": [0, 0.5]}}}
    write(tmp_path / "suites/b/recipes/web/gcn.yaml", RECIPE | {"search": search})
    text = render(tmp_path / "suites")
    assert text.startswith(MARK)
    (tmp_path / "params.yaml").write_text("limits: {}\n")
    (tmp_path / "grid.yaml").write_text(text)
    grid = load_grid(tmp_path / "params.yaml")
    assert (grid.suites, grid.datasets) == (["embedded", "b"], ["web"])
    assert list(grid.cells) == ["embedded-web-mlp", "b-web-gcn", "b-web-mlp"]
    assert list(grid.searches) == ["b-web-gcn"]
    assert not grid.finetunes
    write(tmp_path / "suites/b/recipes/web/mlp.yaml", RECIPE | {"keep_weights": True})
    write(tmp_path / "suites/b/recipes/web/fine.yaml", RECIPE | {"start": {"cell": "b/web/mlp"}})
    (tmp_path / "grid.yaml").write_text(render(tmp_path / "suites"))
    grid = load_grid(tmp_path / "params.yaml")
    assert list(grid.finetunes) == ["b-web-fine"]
    assert grid.find("b/web/fine").after == "b/web/mlp"
    assert grid.find("b/web/mlp").after is None
    grid = tmp_path / "grid.yaml"
    grid.write_text(grid.read_text().replace("after: b/web/mlp", "after: b/web/mpl"))
    with refused(RecipeError, place="cells.b-web-fine.after", value="b/web/mpl"):
        load_grid(tmp_path / "params.yaml")
    grid.unlink()
    with refused(RecipeError, file=str(grid), problem="no such file"):
        load_grid(tmp_path / "params.yaml")
    (tmp_path / "suites/b/recipes/stray.yaml").write_text("a: 1\n")
    with refused(RecipeError, file=str(tmp_path / "suites/b/recipes/stray.yaml")) as error:
        render(tmp_path / "suites")
    assert "expected suites/SUITE/recipes/DATASET/ROW.yaml" in error.value.problem


def test_keys_of_the_grid_are_refused_in_params(tmp_path, monkeypatch):
    write(tmp_path / "suites/b/recipes/web/mlp.yaml", RECIPE)
    monkeypatch.chdir(tmp_path)
    params, grid = tmp_path / "params.yaml", tmp_path / "grid.yaml"
    params.write_text("limits: {}\n")
    assert main([]) == 0
    assert list(load_grid(params).cells) == ["b-web-mlp"]
    assert main(["--check"]) == 0
    params.write_text("limits: {}\nsuites: [b]\n")
    with refused(RecipeError, file=str(params), value=["suites"]):
        load_grid(params)
    grid.write_text(grid.read_text() + "# by hand\n")
    assert main(["--check"]) == 1


@pytest.mark.parametrize(
    ("start", "source", "remedy"),
    [
        ("b/web/mpl", {"keep_weights": True}, ""),
        ("b/web/mlp", {}, "add keep_weights: true to suites/b/recipes/web/mlp.yaml"),
        ("b/web/mlp", {"keep_weights": True, "seeds": [1]}, "add seeds 0 to suites/b/recipes/web/mlp.yaml"),
        ("b/web/fine", {}, ""),
    ],
)
def test_a_checkpoint_source_that_is_missing_is_named_before_anything_is_written(
    tmp_path, monkeypatch, start, source, remedy
):
    write(tmp_path / "suites/b/recipes/web/mlp.yaml", RECIPE | source)
    write(tmp_path / "suites/b/recipes/web/fine.yaml", RECIPE | {"start": {"cell": start}})
    monkeypatch.chdir(tmp_path)
    (tmp_path / "params.yaml").write_text("limits: {}\n")
    with refused(RecipeError, file="suites/b/recipes/web/fine.yaml", place="start.cell", value=start, remedy=remedy):
        render(Path("suites"))
    assert main([]) == 1
    assert not (tmp_path / "grid.yaml").exists()


@pytest.mark.slow
def test_the_stage_that_always_runs_imports_no_torch(tmp_path):
    """Importing torch takes longer than the stage; a model of the library needs only its file."""
    for name in ("suites", "params.yaml", "grid.yaml"):
        (tmp_path / name).symlink_to(ROOT / name)
    said = "import sys, gt_bench.pipeline.state; print(gt_bench.pipeline.state.main(), 'torch' in sys.modules)"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", said], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.stdout == "0 False\n", done.stderr
    assert (tmp_path / "state" / "cells" / "embedded" / "chains" / "gcn.json").exists()


@pytest.mark.parametrize(
    ("name", "content", "place"),
    [
        ("bad/web/gcn", RECIPE | {"epochs": -1}, "epochs"),
        ("good/web/gcn", RECIPE | {"epoch": 1}, "epoch"),
        ("bad/web/gcn", RECIPE | {"start": {"cell": "good/web/no"}}, "start.cell"),
        ("bad/web/gcn", "{", "line 2, column 1"),
        ("bad/stray", RECIPE, ""),
    ],
)
def test_outside_a_project_an_invalid_recipe_is_named(tmp_path, monkeypatch, name, content, place):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "suites/good/recipes/web/mlp.yaml", RECIPE)
    file = recipe_file(name, Path("suites"))
    write(file, content)
    if isinstance(content, str):
        file.write_text(content)
    with refused(RecipeError, file=str(file), place=place):
        load_grid()
