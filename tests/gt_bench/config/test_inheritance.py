"""Recipes with a base recipe are merged into one, and every mistake is reported in one line."""

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from gt_bench.cli.app import app
from gt_bench.config.grid import load_grid
from gt_bench.config.inheritance import bases_of, read_recipe
from gt_bench.config.origins import origin_of
from gt_bench.config.recipe import load_recipe
from gt_bench.config.schema import RecipeError
from gt_bench.pipeline.grid import main as write_grid
from gt_bench.pipeline.state import write_state
from gt_bench.utils.digest import digest_of
from tests.refusals import refused

MAIN = """
model: {name: mlp, hidden_dim: 8, num_layers: 2}
batch: {graphs: 4}
optimizer: {name: adam, lr: 1.0e-3, clip_norm: 1.0}
epochs: 2
seeds: [0, 1]
published: {paper: hot, table: Table 1, method: GCN}
parameters: 12
origin:
  model: "chosen: small"
  batch: "chosen: small"
  optimizer: "chosen: usual"
  optimizer.lr: "chosen: by hand"
  epochs: "chosen: few"
  seeds: "chosen: two"
"""
ROW = """
base: main.yaml
drop: [optimizer.clip_norm, origin.optimizer.lr]
model: {hidden_dim: 16}
origin: {model.hidden_dim: "chosen: wider"}
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "main.yaml").write_text(MAIN)
    (tmp_path / "row.yaml").write_text(ROW)
    return tmp_path


def test_a_recipe_with_a_base_is_the_one_long_file(folder):
    (folder / "long.yaml").write_text("""
model: {name: mlp, hidden_dim: 16, num_layers: 2}
batch: {graphs: 4}
optimizer: {name: adam, lr: 1.0e-3}
epochs: 2
seeds: [0, 1]
origin:
  model: "chosen: small"
  model.hidden_dim: "chosen: wider"
  batch: "chosen: small"
  optimizer: "chosen: usual"
  epochs: "chosen: few"
  seeds: "chosen: two"
""")
    row, long = load_recipe(folder / "row.yaml"), load_recipe(folder / "long.yaml")
    assert row == long
    assert digest_of(row.decisive()) == digest_of(long.decisive())
    assert row.published is None  # belongs to the row of the base
    assert row.parameters is None


def test_a_base_may_have_a_base_in_another_folder(folder):
    (folder / "sub").mkdir()
    (folder / "sub" / "third.yaml").write_text("base: ../row.yaml\nseeds: [5]\norigin: {seeds: 'chosen: one'}\n")
    recipe = load_recipe(folder / "sub" / "third.yaml")
    assert (recipe.seeds, recipe.model.arguments["hidden_dim"]) == ([5], 16)
    assert bases_of(folder / "sub" / "third.yaml") == [folder / "row.yaml", folder / "main.yaml"]


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("base: mian.yaml", {"place": "base"}),
        ("base: 3", {"place": "base", "value": 3}),
        ("base: row.yaml", {"place": "base", "value": None}),
        ("drop: [epochs]", {"place": "drop"}),
        ("base: main.yaml\ndrop: [model.depth]", {"place": "drop", "value": "model.depth"}),
        ("base: main.yaml\ndrop: [origin.model.depth]", {"place": "drop", "value": "origin.model.depth"}),
        ("base: main.yaml\ndrop: epochs", {"place": "drop", "value": "epochs"}),
        ("base: main.yaml\nepochs: 3", {"place": "epochs", "remedy": "add origin.epochs"}),
        ("base: main.yaml\nmodel: {widht: 3}\norigin: {model: 'chosen: x'}\nepocs: 3", {"place": "epocs"}),
    ],
)
def test_mistakes_name_the_file_and_the_key(folder, text, fields):
    (folder / "row.yaml").write_text(text)
    with refused(RecipeError, file=str(folder / "row.yaml"), **fields):
        load_recipe(folder / "row.yaml")


def test_a_value_repeated_as_it_is_in_the_base_needs_no_origin(folder):
    (folder / "row.yaml").write_text("base: main.yaml\nepochs: 2\n")
    assert load_recipe(folder / "row.yaml").epochs == 2


@pytest.mark.slow
def test_bases_are_no_cells_a_changed_base_shows_in_the_state_and_a_cell_is_shown_complete(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    place = Path("suites/embedded/recipes/chains")
    place.mkdir(parents=True)
    (place.parent / "_mlp.yaml").write_text(MAIN.replace("published: {paper: hot, table: Table 1, method: GCN}\n", ""))
    (place / "mlp.yaml").write_text(
        "base: ../_mlp.yaml\nmodel: {hidden_dim: 4}\norigin: {model.hidden_dim: 'chosen: tiny'}\n"
    )
    Path("params.yaml").write_text("limits: {}\n")
    assert write_grid([]) == 0
    grid = load_grid()
    assert list(grid.cells) == ["embedded-chains-mlp"]
    states = []
    for layers in (2, 3):
        base = place.parent / "_mlp.yaml"
        base.write_text(base.read_text().replace("num_layers: 2", f"num_layers: {layers}"))
        write_state(grid)
        states.append(json.loads(Path("state/cells/embedded/chains/mlp.json").read_text())["base"])
    assert states[0] != states[1]
    shown = CliRunner().invoke(app, ["board", "embedded/chains/mlp", "--recipe"]).output
    assert "  hidden_dim: 4  # chosen: tiny\n  num_layers: 3  # chosen: small\n" in shown
    assert yaml.safe_load(shown) == {k: v for k, v in read_recipe(place / "mlp.yaml")[0].items() if k != "origin"}


def test_the_origin_of_a_value_is_the_nearest_that_is_stated():
    origin = {"all": "chosen: quick", "model": "printed: Table 1", "model.dropout": "tuned", "parameters": "counted"}
    keys = ("model.dropout", "model.heads.number", "optimizer.lr", "parameters", "published.table")
    assert [origin_of(key, origin) for key in keys] == ["tuned", "printed: Table 1", "chosen: quick", "counted", None]
    assert origin_of("optimizer.lr", {"model": "printed: Table 1"}) is None
