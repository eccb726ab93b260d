"""`gt-bench ablate --design`: recipes of new cells that differ in the factor alone."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from gt_bench.analysis.ablate import arms, effects
from gt_bench.cli.app import app
from gt_bench.config.grid import load_grid
from gt_bench.config.option_text import OptionError
from gt_bench.config.recipe import load_recipe
from gt_bench.config.schema import RecipeError
from gt_bench.config.search_section import Choice, Range
from gt_bench.pipeline.grid import write_grid
from gt_bench.pipeline.train import train_cell
from gt_bench.suites.ablation_design import draw
from gt_bench.utils.errors import UserError
from tests.refusals import refused

CELL = "mine/web/mlp"
ORIGIN = {"all": "chosen: small", "model": "printed: Table 1"}
ONE = ("--design", "one-at-a-time")


@pytest.fixture(autouse=True)
def cell(project, monkeypatch):
    """A cell of a project whose grid is read from the recipes; its dataset is packed but not in the catalog."""
    monkeypatch.setattr("gt_bench.suites.ablation_design.get_spec", lambda _: SimpleNamespace(level="node"))
    project.recipe(suite="mine", origin=ORIGIN)
    Path("params.yaml").write_text("run: {parallel: 1, tracking: false}\n")
    write_grid()


def ablate(*words: str) -> list[Path]:
    """The new recipes."""
    done = CliRunner().invoke(app, ["ablate", *words])
    if done.exception is not None:
        raise done.exception
    return sorted(Path("suites/ablation").rglob("*.yaml"))


def test_one_at_a_time_changes_the_factor_alone():
    words = ("model.dropout", CELL, *ONE, "--values", "0.0,0.5,absent")
    paths = ablate(*words)
    base, recipes = load_recipe("suites/mine/recipes/web/mlp.yaml"), [load_recipe(path) for path in paths]
    given = {key: value for key, value in base.model.arguments.items() if key != "dropout"}
    assert [one.model.arguments for one in recipes] == [given | {"dropout": 0.0}, given | {"dropout": 0.5}, given]
    assert recipes[1].origin["model.dropout"] == "chosen: varied by gt-bench ablate model.dropout"
    assert (recipes[1].origin["model"], recipes[1].origin["all"]) == ("printed: Table 1", "chosen: small")
    content = {path: path.read_bytes() for path in paths}
    assert {path: path.read_bytes() for path in ablate(*words)} == content
    grid = load_grid()
    cells = list(grid.cells.values())
    for one in cells:
        train_cell(one, grid, bar=False)
    pairs = {(one.before, one.after) for one in effects(arms(grid, cells)[0], ["model.dropout"], grid.run.verdict)}
    assert ("0.0", "0.5") in pairs


def test_a_random_design_varies_the_factor_in_random_recipes():
    over = ["--over", "model.hidden_dim=4,8,16,32", "--over", "optimizer.lr=1e-3..1e-1:log"]
    words = ("--design", "random", "--values", "0.0,0.5", *over, "--draws", "3", "--seed", "1")
    recipes = [load_recipe(path) for path in ablate("model.dropout", CELL, *words)]
    settings = [(one.model.arguments["hidden_dim"], one.optimizer.lr) for one in recipes]
    assert {settings.count(one) for one in settings} == {2}
    assert len(set(settings)) == 3
    assert sorted(one.model.arguments["dropout"] for one in recipes) == [0.0] * 3 + [0.5] * 3
    assert all(1e-3 <= lr <= 1e-1 for _, lr in settings)


def test_draws_are_seeded_and_different():
    over = {"b": Range(low=1, high=3, integer=True), "c": Range(low=0.0, high=1.0, step=0.5), "d": Choice(choices=[1])}
    assert draw(over, 9, 0) == draw(over, 9, 0)
    assert len({tuple(one.values()) for one in draw(over, 9, 0)}) == 9
    with refused(OptionError, place="--draws", value=10):
        draw(over, 10, 0)


@pytest.mark.parametrize(
    ("words", "place", "problem"),
    [
        (("model.dropout", *ONE, "--values", "0.5"), "--design", "expected a factor, the cells"),
        (("model.dropout", CELL, *ONE), "--design", "expected a factor, the cells"),
        (("model.dropout", CELL, *ONE, "--values", "0.0..0.5"), "--values", "not a range"),
        (("model.droput", CELL, *ONE, "--values", "0.5"), "model.droput", "unknown key"),
        (("model.dropout", CELL, *ONE, "--values", "0.5,seven"), "model.dropout", "expected a number (given: 'seven')"),
        (("model.dropout", CELL, *ONE, "--values", "0.5", "--over", "epochs=1,2"), "--design", "--over needs"),
        (("model.dropout", CELL, "--design", "random", "--values", "0.5"), "--design", "add --over"),
        (("model.dropout", CELL, *ONE, "--values", "0.5", "--into", "A b"), "--into", "a name of a suite"),
        (("model.dropout", CELL, "--values", "0.5"), "--values", "no design"),
        (("model.dropout", "mine/web/nothing", *ONE, "--values", "0.5"), "", "no cell 'mine/web/nothing'"),
    ],
)
def test_an_invalid_design_is_refused_and_writes_nothing(words, place, problem):
    with refused(UserError, place=place) as error:
        ablate(*words)
    assert problem in error.value.problem
    assert not list(Path("suites").rglob("ablation/**/*.yaml"))


def test_another_recipe_of_that_name_is_not_overwritten():
    path = Path("suites/ablation/recipes/web/mlp-dropout-0.5.yaml")
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    with refused(RecipeError, file=str(path), problem="another recipe has this name"):
        ablate("model.dropout", CELL, *ONE, "--values", "0.5")
    assert path.read_text() == "mine"
