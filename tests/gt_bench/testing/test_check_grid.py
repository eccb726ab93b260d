"""The check of the grid: valid cells pass, failures and differences are named, and no failure hides another."""

import json
import math
import os
import signal
import time
from pathlib import Path

import pytest
import torch

from gt_bench.config.grid import load_grid
from gt_bench.config.recipe import load_recipe
from gt_bench.config.schema import RecipeError
from gt_bench.data.registry import catalog, get_spec
from gt_bench.data.spec import DatasetSpec
from gt_bench.data.standin import miniature
from gt_bench.experiment import golden_values
from gt_bench.experiment.golden_values import shortened
from gt_bench.testing import check_grid, golden_run
from gt_bench.testing.check_grid import cells_of, check, covering, main, traits
from gt_bench.testing.golden_run import Computed, compute
from gt_bench.utils.paths import recipe_file
from gt_models import create_model
from tests.conftest import ROOT

CELL = "small/web/mlp"


@pytest.fixture
def grid(project, monkeypatch):
    """The small project, whose datasets are in the catalog and packed."""
    for name, task, metric, level, kind in (
        ("web", "node-classification", "accuracy", "node", "node"),
        ("many", "graph-regression", "mae", "graph", "graph"),
    ):
        spec = DatasetSpec(name=name, task=task, metric=metric, prepare=print, level=level, split_kind=kind)
        monkeypatch.setitem(catalog(), name, spec)
    return project


def one(cell: str = CELL) -> Computed:
    """The golden run of one cell, in this process."""
    miniature(get_spec(cell.split("/")[1]), Path("mini/packed", cell.split("/")[1]))
    return compute(cell, Path("mini"))


def checked(monkeypatch, update: bool = False) -> str | None:
    """Result of `check` for CELL, run in this process."""
    monkeypatch.setattr(
        check_grid, "compute_all", lambda cells, root, workers, say, update, kept: [say(one(cell)) for cell in cells]
    )
    return check(cells_of([CELL], load_grid()), say=lambda line: None, update=update)[CELL][1]


@pytest.mark.slow
def test_a_golden_run_is_short_and_complete(grid):
    schedule = {"name": "cosine", "warmup": 50}
    grid.recipe(epochs=50, eval_every=3, patience=4, eval_after=20, precision="bf16", threads=2, schedule=schedule)
    recipe = shortened(load_recipe(recipe_file(CELL)))
    assert (recipe.total_epochs, recipe.eval_every, recipe.patience, recipe.eval_after, recipe.seeds) == (
        4,
        2,
        2,
        1,
        [0],
    )
    assert (recipe.precision, recipe.threads, recipe.schedule.warmup) == ("float64", 1, 2)
    before = {p for p in Path().rglob("*") if "mini" not in p.parts and p.name[0] != "."}
    outcome = one()
    assert outcome.error is None
    values = outcome.entry["values"]
    model = create_model("mlp", in_dim=5, out_dim=3, level="node", hidden_dim=8, num_layers=2, dropout=0.2)
    assert values["parameters"] == sum(p.numel() for p in model.parameters())
    assert len(values["losses"]) == len(values["lr"]) == 4
    assert len(values["gradient"]) == 1
    assert values["lr"][:2] == [0.0, 0.005], "the warm-up"
    assert values["val"][0] is None
    assert set(values["test"]) == {"loss", "accuracy"}
    assert {p for p in Path().rglob("*") if "mini" not in p.parts and p.name[0] != "."} == before


def test_a_factor_of_a_small_gradient_counts_as_much_as_that_of_a_large_one():
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)).double()
    gradients = [torch.randn_like(parameter) for parameter in model.parameters()]

    def summary(*factors: float) -> float:
        for parameter, gradient, factor in zip(model.parameters(), gradients, factors, strict=True):
            parameter.grad = gradient * factor
        return golden_run._gradient(model)

    rows = 4 + 4 + 2 + 2
    before = summary(1e-5, 1, 1, 1)
    assert summary(1.1e-5, 1, 1, 1) - before == pytest.approx(4 / rows * math.log(1.1), rel=0.1)
    assert summary(1e-5, 1, 1, 1 + 1e-12) == pytest.approx(before, rel=1e-10)
    assert summary(0, 1, 1, 1) == pytest.approx(summary(1e-17, 1, 1, 1), rel=1e-9), "rounding in place of 0"


def test_what_a_miniature_is_too_small_for(grid):
    for given, taken in (({"parts": 25}, 2), ({"parts": 1}, 1)):
        grid.recipe(batch=given)
        assert shortened(load_recipe(recipe_file(CELL))).batch.parts == taken


def test_every_phase_is_trained_and_the_best_weights_are_loaded(grid):
    phases = [
        {"name": "local", "epochs": 90},
        {"name": "global", "epochs": 200, "reload_best": True},
        {"name": "local", "epochs": 3},
    ]
    model = {"name": "polynormer", "hidden_dim": 8, "num_local_layers": 7, "num_global_layers": 1, "num_heads": 2}
    grid.recipe(model=model, epochs=None, phases=phases)
    recipe = shortened(load_recipe(recipe_file(CELL)))
    assert [phase.epochs for phase in recipe.phases] == [2, 2, 2]
    assert recipe.model.arguments["num_local_layers"] == 2
    outcome = one()
    assert outcome.error is None
    assert len(outcome.entry["values"]["val"]) == 6
    assert "polynormer_global" in outcome.entry["operations"]


def test_what_a_cell_starts_from_is_run_before_it(grid):
    grid.recipe(row="first", keep_weights=True)
    grid.recipe(start={"cell": "small/web/first", "load": "all"})
    assert one().error is None
    grid.recipe(row="first", keep_weights=True, model={"name": "mlp", "hidden_dim": 9, "num_layers": 2})
    assert "start: small/web/first" in one().error


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"model": {"name": "mpl"}}, "did you mean 'mlp'"),
        ({"model": {"name": "mlp", "hidden_dim": 8, "num_layers": 0}}, "at least one layer, not 0"),
        ({"model": {"name": "mlp", "hidden_dim": 8, "depth": 3}}, "unknown key 'model.depth'"),
        ({"batch": {"graphs": 4}}, "'web' is one graph"),
        ({"loss": "bce"}, "loss 'bce' is not one of this task's"),
        ({"model": {"name": "tokengt", "hidden_dim": 8, "num_layers": 1, "num_heads": 2}}, "laplacian_eigenvectors"),
        ({"search": {"trials": 2, "space": {"model.droput": {"choices": [0.1]}}}}, "search.space.model.droput"),
        ({"optimizer": {"name": "sgd", "lr": 1e300}}, "diverged"),
    ],
)
def test_a_broken_cell_is_named(grid, monkeypatch, changes, says):
    grid.recipe(**changes)
    assert says in checked(monkeypatch, update=True)
    assert not golden_values.load("small"), "nothing is stored"


def test_a_bug_states_where_it_is(grid, monkeypatch):
    grid.recipe()
    monkeypatch.setattr("gt_bench.training.trainer.create_optimizer", lambda section, parameters: None)
    assert one().error.startswith("AttributeError (trainer.py:")


def test_a_cell_that_does_not_end_is_a_failure(grid, monkeypatch):
    grid.recipe()
    monkeypatch.setattr(golden_run, "SECONDS", 1)
    monkeypatch.setattr("gt_bench.training.trainer.create_optimizer", lambda section, parameters: time.sleep(30))
    assert one().error == "not finished after 1 s on a miniature"


def test_a_changed_number_names_the_quantity_and_the_version_to_raise(grid, monkeypatch):
    grid.recipe()
    assert checked(monkeypatch, update=True) is None
    assert checked(monkeypatch) is None
    from gt_bench.training import trainer

    create = trainer.create_optimizer
    monkeypatch.setattr(trainer, "create_optimizer", lambda s, p: create(s.model_copy(update={"weight_decay": 0.1}), p))
    said = checked(monkeypatch)
    assert said.startswith("losses[1] was ")
    assert "raise VERSION in gt_bench/training/trainer.py (trainer)" in said
    assert "gt_models/baselines/mlp.py (model)" in said
    assert checked(monkeypatch, update=True) == said, "an update does not take the place of a version"
    monkeypatch.setattr(
        "gt_bench.testing.golden_run.version_of", lambda module: 2 if module == "gt_bench.training.trainer" else 1
    )
    assert "the version of trainer was raised since its golden values were computed" in checked(monkeypatch)
    assert checked(monkeypatch, update=True) is None
    assert golden_values.load("small")[CELL]["versions"]["trainer"] == 2
    monkeypatch.setattr("gt_bench.testing.golden_run.version_of", lambda module: 1)
    for update in (False, True):
        assert "a version never decreases" in checked(monkeypatch, update=update)


def test_a_changed_recipe_and_a_cell_without_values_are_told_from_changed_code(grid, monkeypatch):
    grid.recipe()
    assert checked(monkeypatch, update=True) is None
    grid.recipe(optimizer={"name": "adam", "lr": 0.02})
    assert checked(monkeypatch).startswith("its recipe has changed since")
    assert checked(monkeypatch, update=True) is None
    Path("suites/small/golden.json").write_text("{}")
    assert "no golden values" in checked(monkeypatch)


def test_a_golden_file_that_is_missing_edited_or_has_a_cell_twice_is_one_line(grid, monkeypatch):
    grid.recipe()
    with pytest.raises(
        golden_values.GoldenError, match=r"suites/small/golden.json: no golden values of small; .* --update"
    ):
        checked(monkeypatch)
    checked(monkeypatch, update=True)
    path = Path("suites/small/golden.json")
    text = path.read_text()
    content = json.loads(text)
    content[CELL]["values"]["losses"][0] += 1e-3
    for changed, says in (
        (json.dumps(content), "the golden values of small/web/mlp were edited by hand"),
        (text.replace("{\n", "{\n" + text.splitlines()[1] + ",\n", 1), "duplicate key .small/web/mlp."),
        (text[:-9], "not a file of golden values"),
        ("[]", "not a file of golden values"),
    ):
        path.write_text(changed)
        with pytest.raises(golden_values.GoldenError, match=says):
            golden_values.load("small")
        golden_values._read_file.cache_clear()


@pytest.mark.slow
def test_all_in_two_processes_with_a_table_and_a_status(capfd, monkeypatch):
    """Two valid cells of the real grid; then a dataset without a known shape."""
    monkeypatch.chdir(ROOT)
    names = ["embedded/chains/mlp", "embedded/chains/gcn"]
    assert main(names) == 0
    assert "2 cells in" in capfd.readouterr().out
    cells = cells_of(names, load_grid())
    strange = cells[0].model_copy(update={"dataset": "unheard", "cell": "embedded/unheard/mlp"})
    said = []
    outcomes = check([cells[1], strange], 1, said.append)
    assert [wrong is None for _, wrong in outcomes.values()] == [True, False]
    assert "no dataset named 'unheard'" in outcomes["embedded/unheard/mlp"][1]
    assert len(said) == 2
    assert main(["embeded"]) == 1
    assert "did you mean 'embedded'" in capfd.readouterr().err


def _die(cell, data, root, update, kept):
    if cell.endswith("mlp"):
        os.kill(os.getpid(), signal.SIGKILL)
    return Computed(cell, 0.0)


@pytest.mark.slow
def test_a_killed_process_fails_its_cell_alone(monkeypatch):
    monkeypatch.setattr(golden_run, "compute", _die)
    monkeypatch.setattr(golden_run, "_begin", int)
    outcomes = golden_run.compute_all(["embedded/chains/mlp", "embedded/chains/gcn"], ROOT, 2)
    assert "killed" in outcomes["embedded/chains/mlp"].error
    assert outcomes["embedded/chains/gcn"].error is None


def test_recipes_without_an_entry_are_checked_too(grid):
    grid.recipe()
    Path("suites/other/recipes/web").mkdir(parents=True)
    Path("suites/other/recipes/web/gcn.yaml").write_text(Path("suites/small/recipes/web/mlp.yaml").read_text())
    assert [c.cell for c in cells_of([], load_grid())] == ["small/web/mlp", "other/web/gcn"]
    assert [c.cell for c in cells_of(["other"], load_grid())] == ["other/web/gcn"]
    with pytest.raises(RecipeError, match="did you mean 'other'"):
        cells_of(["othr"], load_grid())


def test_the_covering_cells_have_every_trait_of_the_grid(monkeypatch):
    monkeypatch.chdir(ROOT)
    cells = cells_of([], load_grid())

    def has(some):
        return set().union(
            *(traits(load_recipe(c.recipe_path), (s := get_spec(c.dataset)).task, s.prepare.__module__) for c in some)
        )

    some = covering(cells)
    assert has(some) == has(cells)
    assert len(some) < len(cells) / 3
    models = {trait for trait in has(some) if trait.startswith("model ")}
    assert "model ppgt-released" in models, "a released form is a model of its own"
