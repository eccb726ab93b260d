"""`gt-bench ablate --design`: recipes of missing cells and their plan, and what cannot be designed."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from typer.testing import CliRunner

from gt_bench.analysis.ablate import arms, effects
from gt_bench.cli.app import app
from gt_bench.config.grid import load_grid
from gt_bench.config.recipe import load_recipe
from gt_bench.config.schema import RecipeError
from gt_bench.config.search_space import Choice, Range
from gt_bench.pipeline.train import train_cell
from gt_bench.scheduling.ablation_design import random_design
from gt_bench.scheduling.plan_file import read_plan

CELL = "mine/web/mlp"
ORIGIN = {"all": "chosen: small", "model": "printed: Table 1"}


@pytest.fixture
def cells(project, monkeypatch):
    """Two cells of a project whose grid is read from the recipes."""
    # its dataset is packed but not in the catalog
    monkeypatch.setattr("gt_bench.scheduling.ablation_design.get_spec", lambda _: SimpleNamespace(level="node"))
    project.recipe(suite="mine", origin=ORIGIN)
    project.recipe(suite="mine", row="wide", origin=ORIGIN, model={"name": "mlp", "hidden_dim": 16, "dropout": 0.2})
    Path("params.yaml").write_text("run: {parallel: 1, tracking: false}\n")
    from gt_bench.pipeline.grid import write_grid

    write_grid()
    return project


def ablate(*words):
    done = CliRunner().invoke(app, ["ablate", *words])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.output


@pytest.mark.slow
def test_one_at_a_time_makes_the_missing_cells_and_their_plan(cells):
    said = ablate("model.dropout", CELL, "--design", "one-at-a-time", "--values", "0.0,0.2,0.5")
    plan = yaml.safe_load(Path("ablation.yaml").read_text())
    new = ["ablation/web/mlp-dropout-0.0", "ablation/web/mlp-dropout-0.5"]
    assert plan == {"runs": [{"cells": [CELL, new[0], new[1]]}]}  # 0.2 is the cell itself
    assert "3 cells, of which 2 are new (suite ablation" in " ".join(said.split())
    base, recipe = (
        load_recipe("suites/mine/recipes/web/mlp.yaml"),
        load_recipe(f"suites/ablation/recipes/web/{new[1].split('/')[2]}.yaml"),
    )
    assert recipe.model.arguments == base.model.arguments | {"dropout": 0.5}
    assert recipe.origin["model.dropout"] == "chosen: varied by gt-bench ablate model.dropout"
    assert (recipe.origin["model.hidden_dim"], recipe.origin["epochs"]) == ("printed: Table 1", "chosen: small")
    grid = load_grid()
    (entry,) = read_plan(Path("ablation.yaml"), grid)
    for cell in entry.cells:
        train_cell(cell, grid, bar=False)
    found = effects(arms(grid, list(grid.cells.values()))[0], ["model.dropout"])
    assert [(one.before, one.after) for one in found] == [("0.0", "0.2"), ("0.0", "0.5"), ("0.2", "0.5")]
    # the same command again writes the same files
    before = {path: path.read_bytes() for path in Path("suites").rglob("*.yaml")}
    assert "of which 0 are new" in " ".join(
        ablate("model.dropout", CELL, "--design", "one-at-a-time", "--values", "0.0,0.2,0.5").split()
    )
    assert before == {path: path.read_bytes() for path in Path("suites").rglob("*.yaml")}


def test_two_factors_are_varied_one_at_a_time(cells):
    ablate(
        "model.dropout,optimizer.lr", CELL, "--design", "one-at-a-time",
        "--values", "model.dropout=0.5", "--values", "optimizer.lr=0.1", "--into", "two", "--plan", "two.yaml",
    )  # fmt: skip
    assert yaml.safe_load(Path("two.yaml").read_text())["runs"][0]["cells"] == [
        CELL,
        "two/web/mlp-dropout-0.5",
        "two/web/mlp-lr-0.1",
    ]


def test_a_random_design_varies_the_factor_in_random_recipes(cells):
    over = ["--over", "model.hidden_dim=4,8,16,32", "--over", "optimizer.lr=1e-3..1e-1:log"]
    ablate("model.dropout", CELL, "--design", "random", "--values", "0.0,0.5", *over, "--draws", "3", "--seed", "1")
    names = yaml.safe_load(Path("ablation.yaml").read_text())["runs"][0]["cells"]
    assert len(names) == 6
    recipes = [load_recipe(load_grid().find(name).recipe_path) for name in names]
    settings = [(r.model.arguments["hidden_dim"], r.optimizer.lr) for r in recipes]
    assert settings[::2] == settings[1::2]
    assert len(set(settings)) == 3
    assert [r.model.arguments["dropout"] for r in recipes] == [0.0, 0.5] * 3
    assert all(1e-3 <= lr <= 1e-1 for _, lr in settings)


def test_draws_are_seeded_and_different():
    values = {"a": Choice(choices=[1, 2])}
    others = {"b": Range(low=1, high=3, integer=True), "c": Range(low=0.0, high=1.0, step=0.5)}
    assert random_design(values, others, 9, 0) == random_design(values, others, 9, 0)
    assert len({(one["b"], one["c"]) for one in random_design(values, others, 9, 0)}) == 9
    with pytest.raises(RecipeError, match="--draws 10: only 9 different draws of b, c are possible"):
        random_design(values, others, 10, 0)


def test_a_key_can_be_absent(cells):
    ablate("model.dropout", CELL, "--design", "one-at-a-time", "--values", "absent")
    assert "dropout" not in load_recipe("suites/ablation/recipes/web/mlp-dropout-absent.yaml").model.arguments


ONE = ("--design", "one-at-a-time")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("model.dropout", *ONE, "--values", "0.5"), "name the cells whose recipes are varied"),
        (("model.dropout", CELL, *ONE), "model.dropout has no values; add --values model.dropout=VALUE"),
        (("model.dropout", CELL, *ONE, "--values", "0.0..0.5"), "expected values, not a range"),
        (("model.dropout", CELL, *ONE, "--values", "optimizer.lr=0.1"), "optimizer.lr is not a factor"),
        (("model.droput", CELL, *ONE, "--values", "0.5"), "mine/web/mlp with model.droput=0.5: .*droput"),
        (("model.dropout", CELL, *ONE, "--values", "seven"), "mine/web/mlp with model.dropout=seven"),
        (("seeds", CELL, *ONE, "--values", "3"), "seeds is no factor"),
        (("model.dropout", CELL, *ONE, "--values", "0.5", "--over", "epochs=1,2"), "use --design random"),
        (("model.dropout", CELL, "--design", "random", "--values", "0.5"), "add --over KEY=VALUES"),
        (("model.dropout", CELL, *ONE, "--values", "0.5", "--into", "A b"), "--into A b: a name of a suite"),
        (("model.dropout", CELL, "--values", "0.5"), "--values is given and no design"),
        (("model.dropout", "mine/web/nothing", *ONE, "--values", "0.5"), "no cell 'mine/web/nothing'"),
    ],
)
def test_what_cannot_be_designed(cells, words, says):
    before = sorted(Path().rglob("*.yaml"))
    with pytest.raises(RecipeError, match=says):
        ablate(*words)
    assert sorted(Path().rglob("*.yaml")) == before


def test_a_plan_with_another_content_is_not_overwritten(cells):
    Path("ablation.yaml").write_text("runs: []\n")
    with pytest.raises(RecipeError, match=r"ablation.yaml: exists with another content"):
        ablate("model.dropout", CELL, *ONE, "--values", "0.5")
    assert Path("ablation.yaml").read_text() == "runs: []\n"
    assert not Path("suites/ablation").exists()
