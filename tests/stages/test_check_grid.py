"""The check of the grid: what is sound passes, what is broken is named, and nothing that breaks hides the rest."""

import os
import signal
from pathlib import Path

import pytest
import torch

from gt_models.kernels import Operation, all_operations
from gt_models.kernels.dispatch import OPERATIONS
from stages import check_grid
from stages.check_grid import cells_of, check, check_cell, main, shortened
from stages.datasets.catalog import catalog, get_spec
from stages.datasets.miniature import miniature
from stages.datasets.spec import DatasetSpec
from stages.params import load_grid
from stages.recipe import load_recipe
from stages.schema import RecipeError
from stages.tasks.task import Task
from tests.conftest import ROOT


@pytest.fixture
def grid(project, monkeypatch):
    """The small project, whose datasets are in the catalog and packed."""
    for name, task, metric, level, kind in (
        ("web", "node-classification", "accuracy", "node", "node"),
        ("many", "graph-regression", "mae", "graph", "graph"),
    ):
        spec = DatasetSpec(name=name, family="test", task=task, metric=metric, prepare=print, level=level, split_kind=kind)
        monkeypatch.setitem(catalog(), name, spec)
    return project


def one(cell: str = "small/web/mlp"):
    """The outcome of one cell, in this process."""
    found = load_grid().find(cell)
    miniature(get_spec(found.dataset), Path("mini/packed", found.dataset))
    return check_cell(found, Path("mini"))


def test_a_sound_cell_takes_two_steps_and_leaves_nothing_behind(grid, monkeypatch):
    grid.recipe(epochs=50, eval_every=3, patience=4, eval_after=20)
    recipe = shortened(load_recipe("recipes/small/web/mlp.yaml"))
    assert (recipe.total_epochs, recipe.eval_every, recipe.patience, recipe.eval_after, recipe.seeds) == (2, 2, None, None, [0])
    before = {p for p in Path().rglob("*") if "mini" not in p.parts and p.name[0] != "."}
    outcome = one()
    assert outcome.error is None
    # the model is the real one: its width and the dataset's decide the count
    assert outcome.parameters == sum(p.numel() for p in _model(5, 3).parameters())
    assert {p for p in Path().rglob("*") if "mini" not in p.parts and p.name[0] != "."} == before


def _model(in_dim: int, out_dim: int):
    from gt_models import create_model

    return create_model("mlp", in_dim=in_dim, out_dim=out_dim, level="node", hidden_dim=8, num_layers=2, dropout=0.2)


def test_what_a_miniature_is_too_small_for(grid):
    grid.recipe(batch={"parts": 25})
    assert shortened(load_recipe("recipes/small/web/mlp.yaml")).batch.parts == 2
    grid.recipe(batch={"parts": 1})
    assert shortened(load_recipe("recipes/small/web/mlp.yaml")).batch.parts == 1


def test_every_phase_takes_a_step(grid):
    phases = [{"name": "local", "epochs": 90}, {"name": "global", "epochs": 200, "reload_best": True}, {"name": "local", "epochs": 3}]
    model = {"name": "polynormer", "hidden_dim": 8, "num_local_layers": 1, "num_global_layers": 1, "num_heads": 2}
    grid.recipe(model=model, epochs=None, phases=phases)
    recipe = shortened(load_recipe("recipes/small/web/mlp.yaml"))
    assert [phase.epochs for phase in recipe.phases] == [1, 1, 1]
    assert recipe.eval_every == 1
    assert one().error is None


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
        ({"batch": {"graphs": 4}}, "one large graph"),
        ({"loss": "bce"}, "loss 'bce' is not one of this task's"),
        ({"model": {"name": "tokengt", "hidden_dim": 8, "num_layers": 1, "num_heads": 2}}, "laplacian_eigenvectors"),
        ({"search": {"trials": 2, "space": {"model.droput": {"choices": [0.1]}}}}, "search.space.model.droput"),
        ({"optimizer": {"name": "sgd", "lr": 1e30}}, "diverged"),
    ],
)
def test_a_broken_cell_is_named(grid, changes, says):
    grid.recipe(**changes)
    assert says in one().error


def test_a_bug_says_where_it_is(grid, monkeypatch):
    grid.recipe()
    monkeypatch.setattr("stages.engine.loop.create_optimizer", lambda section, parameters: None)
    assert one().error.startswith("AttributeError (loop.py:")


def test_a_cell_that_does_not_end_is_a_failure(grid, monkeypatch):
    import time

    grid.recipe()
    monkeypatch.setattr(check_grid, "SECONDS", 1)
    monkeypatch.setattr("stages.engine.loop.create_optimizer", lambda section, parameters: time.sleep(30))
    assert one().error == "not done after 1 s on a miniature"


def test_a_count_that_is_not_the_printed_one_is_noted(grid):
    grid.recipe(parameters=99)
    assert one().note.endswith("parameters, 99 printed")


def test_all_in_two_processes_with_a_table_and_a_status(capfd, monkeypatch):
    """Two sound cells of the real grid; then a dataset without a known shape, and a process that is killed."""
    monkeypatch.chdir(ROOT)
    names = ["embedded/chains/mlp", "embedded/chains/gcn"]
    assert main(names) == 0
    assert "2 cells in" in capfd.readouterr().out
    cells = cells_of(names, load_grid())
    strange = cells[0].model_copy(update={"dataset": "unheard", "cell": "embedded/unheard/mlp"})
    said = []
    outcomes = check([cells[1], strange], 1, said.append)
    assert [outcome.error is None for outcome in outcomes] == [True, False]
    assert "no dataset named 'unheard'" in outcomes[1].error
    assert len(said) == 2
    assert main(["embeded"]) == 1
    assert "did you mean 'embedded'" in capfd.readouterr().err


def _die(cell, data):
    if cell.model == "mlp":
        os.kill(os.getpid(), signal.SIGKILL)
    return check_grid.Checked(cell.cell, 0.0)


def test_a_killed_process_fails_its_cell_alone(monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(check_grid, "check_cell", _die)
    monkeypatch.setattr(check_grid, "_begin", int)
    outcomes = check(cells_of(["embedded/chains/mlp", "embedded/chains/gcn"], load_grid()), 2, lambda line: None)
    assert "killed" in outcomes[0].error
    assert outcomes[1].error is None


def test_recipes_without_an_entry_are_checked_too(grid):
    grid.recipe()
    Path("recipes/other/web").mkdir(parents=True)
    Path("recipes/other/web/gcn.yaml").write_text(Path("recipes/small/web/mlp.yaml").read_text())
    assert [c.cell for c in cells_of([], load_grid())] == ["small/web/mlp", "other/web/gcn"]
    assert [c.cell for c in cells_of(["other"], load_grid())] == ["other/web/gcn"]
    with pytest.raises(RecipeError, match="did you mean 'other'"):
        cells_of(["othr"], load_grid())


def test_a_fast_form_that_no_cell_trains_through_is_a_failure(capsys):
    forms = {name: [form.name for form in operation.forms if "cpu" in form.devices] for name, operation in all_operations().items()}
    reached = check_grid.Checked("a/b/c", 0.0, forms=forms)
    assert check_grid.report_forms([reached]) == []
    assert "dropout: numba 1 cells, reference 0 cells" in capsys.readouterr().out
    only_reference = check_grid.Checked("a/b/c", 0.0, forms={name: ["reference"] for name in forms})
    assert "graph_attention, numba" in check_grid.report_forms([only_reference])
    assert "no cell of the grid trains through graph_attention, numba" in capsys.readouterr().out


def test_the_forms_that_a_cell_trained_through_are_told(grid, monkeypatch):
    grid.recipe()
    double = Operation("double", lambda x: 2 * x)
    predict = Task.predict

    def with_operation(self, *arguments):
        double(torch.ones(1))
        return predict(self, *arguments)

    monkeypatch.setattr(Task, "predict", with_operation)
    try:
        assert one().forms == {"double": ["reference"]}
    finally:
        del OPERATIONS["double"]
