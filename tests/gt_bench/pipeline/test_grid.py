"""grid.yaml agrees with the recipes."""

import os
import re
import subprocess
import sys

import pytest
import yaml

from gt_bench.config import grid as params
from gt_bench.config.grid import load_grid
from gt_bench.config.grid_text import MARK, render
from gt_bench.config.schema import RecipeError
from gt_bench.pipeline.grid import main
from gt_bench.utils.paths import recipe_file
from tests.conftest import ROOT

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
    write(
        tmp_path / "suites/b/recipes/web/gcn.yaml",
        RECIPE | {"search": {"trials": 2, "space": {"model.dropout": {"choices": [0, 0.5]}}}},
    )
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
    with pytest.raises(RecipeError, match=r"after: no other cell 'b/web/mpl' \(did you mean 'b/web/mlp'\?\)"):
        load_grid(tmp_path / "params.yaml")
    grid.unlink()
    with pytest.raises(
        RecipeError,
        match=r"grid.yaml: no such file; write it from the recipes: python -m gt_bench.pipeline.grid",
    ):
        load_grid(tmp_path / "params.yaml")
    (tmp_path / "suites/b/recipes/stray.yaml").write_text("a: 1\n")
    with pytest.raises(RecipeError, match=r"stray.yaml: expected suites/SUITE/recipes/DATASET/ROW.yaml"):
        render(tmp_path / "suites")


def test_what_the_grid_lists_must_not_be_in_params_too(tmp_path, monkeypatch):
    write(tmp_path / "suites/b/recipes/web/mlp.yaml", RECIPE)
    monkeypatch.chdir(tmp_path)
    params, grid = tmp_path / "params.yaml", tmp_path / "grid.yaml"
    params.write_text("limits: {}\n")
    assert main([]) == 0
    assert list(load_grid(params).cells) == ["b-web-mlp"]
    assert main(["--check"]) == 0
    params.write_text("limits: {}\nsuites: [b]\n")
    with pytest.raises(RecipeError):
        load_grid(params)
    grid.write_text(grid.read_text() + "# by hand\n")
    assert main(["--check"]) == 1


@pytest.mark.parametrize(
    ("start", "source", "says"),
    [
        (
            "b/web/mpl",
            {"keep_weights": True},
            r"fine.yaml: start.cell: .*mpl.yaml not found \(did you mean 'b/web/mlp'\?\)",
        ),
        ("b/web/mlp", {}, r"fine.yaml: start.cell: no weights to start from; add keep_weights: true to .*web/mlp.yaml"),
        (
            "b/web/mlp",
            {"keep_weights": True, "seeds": [1]},
            r"fine.yaml: start.cell: no weights to start from; add seeds 0 to .*web/mlp.yaml",
        ),
        ("b/web/fine", {}, "cannot start from itself"),
    ],
)
def test_a_checkpoint_source_that_is_missing_is_named_before_anything_is_written(
    tmp_path, monkeypatch, capsys, start, source, says
):
    write(tmp_path / "suites/b/recipes/web/mlp.yaml", RECIPE | source)
    write(tmp_path / "suites/b/recipes/web/fine.yaml", RECIPE | {"start": {"cell": start}})
    monkeypatch.chdir(tmp_path)
    (tmp_path / "params.yaml").write_text("limits: {}\n")
    assert main([]) == 1
    assert re.search(says, capsys.readouterr().err)
    assert not (tmp_path / "grid.yaml").exists()


@pytest.mark.slow
def test_the_stage_that_always_runs_imports_no_torch(tmp_path):
    """Importing torch takes longer than the stage; a model of the library needs only its file."""
    for name in ("suites", "params.yaml", "grid.yaml"):
        (tmp_path / name).symlink_to(ROOT / name)
    said = "import sys, gt_bench.pipeline.state; print(gt_bench.pipeline.state.main(), 'torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", said],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "0 False\n", done.stderr
    assert (tmp_path / "state" / "cells" / "embedded" / "chains" / "gcn.json").exists()


@pytest.mark.parametrize(
    ("path", "content", "says"),
    [
        ("bad/web/gcn.yaml", RECIPE | {"epochs": -1}, "bad/recipes/web/gcn.yaml: epochs"),
        ("good/web/gcn.yaml", RECIPE | {"epoch": 1}, "good/recipes/web/gcn.yaml: .*epoch"),
        (
            "bad/web/gcn.yaml",
            RECIPE | {"start": {"cell": "good/web/no"}},
            "bad/recipes/web/gcn.yaml: start.cell: .*not found",
        ),
        ("bad/web/gcn.yaml", "{", "bad/recipes/web/gcn.yaml: invalid YAML"),
        ("bad/stray.yaml", RECIPE, "bad/recipes/stray.yaml: expected suites/"),
    ],
)
@pytest.mark.parametrize("alone", [False, True])
def test_outside_a_project_a_faulty_recipe_is_left_out_and_named(
    tmp_path, monkeypatch, capsys, path, content, says, alone
):
    monkeypatch.chdir(tmp_path)
    params._warn_once.cache_clear()
    if not alone:
        write(tmp_path / "suites/good/recipes/web/mlp.yaml", RECIPE)
    file = recipe_file(path.removesuffix(".yaml"), tmp_path / "suites")
    write(file, content)
    if isinstance(content, str):
        file.write_text(content)
    grid = load_grid()
    load_grid()
    warned = capsys.readouterr().err
    assert re.search(f"warning: suites/{says}", warned)
    assert warned.count("this recipe is left out until it is fixed") == 1
    assert ("good-web-mlp" in grid.cells) is not alone
    cell = path.removesuffix(".yaml")
    assert cell.replace("/", "-") not in grid.cells
    for name in (cell, cell.replace("/", "-")):
        with pytest.raises(RecipeError, match=says):
            grid.find(name)
    if cell.startswith("bad"):
        with pytest.raises(RecipeError, match=says):
            grid.chosen(["bad"])


def test_what_starts_from_a_faulty_recipe_is_left_out_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for row, more in (
        ("a", {"epochs": -1}),
        ("b", {"start": {"cell": "s/web/a"}, "keep_weights": True}),
        ("c", {"start": {"cell": "s/web/b"}}),
    ):
        write(tmp_path / f"suites/s/recipes/web/{row}.yaml", RECIPE | more)
    write(tmp_path / "suites/s/recipes/web/d.yaml", RECIPE)
    assert [key for key in load_grid().cells if key.startswith("s-")] == ["s-web-d"]
