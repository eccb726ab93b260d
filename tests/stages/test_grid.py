"""The grid in params.yaml is the one of the recipes."""

import re

import pytest
import yaml

from stages.grid import MARK, main, render
from stages.params import load_grid
from stages.schema import RecipeError
from tests.conftest import ROOT


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content))


def test_the_grid_is_that_of_the_recipes():
    params = (ROOT / "params.yaml").read_text()
    assert render(params, ROOT / "recipes") == params, "run `python -m stages.grid`"
    grid = load_grid(ROOT / "params.yaml")
    assert set(grid.suites) == {c.suite for c in grid.cells.values()}


def test_the_grid_from_a_folder_of_recipes(tmp_path):
    recipe = {"model": {"name": "mlp"}, "optimizer": {"lr": 0.1}, "epochs": 1, "seeds": [0]}
    for place in ("b/web/mlp", "embedded/web/mlp"):
        write(tmp_path / "recipes" / f"{place}.yaml", recipe)
    write(tmp_path / "recipes/b/web/gcn.yaml", recipe | {"search": {"trials": 2, "space": {"model.dropout": {"choices": [0, 0.5]}}}})
    text = render("limits: {}\n" + MARK + "\nold: 1\n", tmp_path / "recipes")
    assert text.startswith("limits: {}\n" + MARK)
    assert "old" not in text
    (tmp_path / "params.yaml").write_text(text)
    grid = load_grid(tmp_path / "params.yaml")
    assert (grid.suites, grid.datasets) == (["embedded", "b"], ["web"])
    assert list(grid.cells) == ["embedded-web-mlp", "b-web-gcn", "b-web-mlp"]
    assert list(grid.searches) == ["b-web-gcn"]
    assert not grid.finetunes
    write(tmp_path / "recipes/b/web/mlp.yaml", recipe | {"keep_weights": True})
    write(tmp_path / "recipes/b/web/fine.yaml", recipe | {"start": {"cell": "b/web/mlp"}})
    (tmp_path / "params.yaml").write_text(render(text, tmp_path / "recipes"))
    grid = load_grid(tmp_path / "params.yaml")
    assert list(grid.finetunes) == ["b-web-fine"]
    assert grid.find("b/web/fine").after == "b/web/mlp"
    assert grid.find("b/web/mlp").after is None
    params = tmp_path / "params.yaml"
    params.write_text(params.read_text().replace("after: b/web/mlp", "after: b/web/mpl"))
    with pytest.raises(RecipeError, match=r"after 'b/web/mpl' is no other cell \(did you mean 'b/web/mlp'\?\)"):
        load_grid(params)
    with pytest.raises(RecipeError, match="the line .* is missing"):
        render("limits: {}\n", tmp_path / "recipes")
    (tmp_path / "recipes/stray.yaml").write_text("a: 1\n")
    with pytest.raises(RecipeError, match=r"stray.yaml: a recipe is recipes/<suite>/<dataset>/<row>.yaml"):
        render(MARK, tmp_path / "recipes")


@pytest.mark.parametrize(
    ("start", "source", "says"),
    [
        ("b/web/mpl", {"keep_weights": True}, r"fine.yaml: start.cell: there is no .*mpl.yaml \(did you mean 'b/web/mlp'\?\)"),
        ("b/web/mlp", {}, r"fine.yaml: start.cell: .*b/web/mlp.yaml needs keep_weights: true"),
        ("b/web/mlp", {"keep_weights": True, "seeds": [1]}, r"fine.yaml: start.cell: .*b/web/mlp.yaml needs seeds 0"),
        ("b/web/fine", {}, "cannot start from itself"),
    ],
)
def test_a_checkpoint_source_that_is_missing_is_named_before_anything_is_written(tmp_path, monkeypatch, capsys, start, source, says):
    recipe = {"model": {"name": "mlp"}, "optimizer": {"lr": 0.1}, "epochs": 1, "seeds": [0]}
    write(tmp_path / "recipes/b/web/mlp.yaml", recipe | source)
    write(tmp_path / "recipes/b/web/fine.yaml", recipe | {"start": {"cell": start}})
    monkeypatch.chdir(tmp_path)
    before = f"limits: {{}}\n{MARK}\n"
    (tmp_path / "params.yaml").write_text(before)
    assert main([]) == 1
    assert re.search(says, capsys.readouterr().err)
    assert (tmp_path / "params.yaml").read_text() == before
