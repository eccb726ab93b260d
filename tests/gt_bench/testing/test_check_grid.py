"""The check of the grid: valid cells pass, differences are named, and no failure hides another."""

import json
from pathlib import Path

import pytest

from gt_bench.config.grid import load_grid
from gt_bench.config.recipe import load_recipe
from gt_bench.config.schema import RecipeError
from gt_bench.experiment import golden_values
from gt_bench.experiment.golden_values import golden_recipe
from gt_bench.testing import check_grid
from gt_bench.testing.check_grid import cells_of, check, covering, main, traits
from gt_bench.testing.datasets import spec_of
from tests.conftest import ROOT
from tests.gt_bench.testing.cases import CELL, one


def checked(monkeypatch, update: bool = False) -> str | None:
    """Result of `check` for CELL, run in this process."""
    monkeypatch.setattr(
        check_grid, "compute_all", lambda cells, root, workers, say, update, kept: [say(one(cell)) for cell in cells]
    )
    return check(cells_of([CELL], load_grid()), say=lambda line: None, update=update)[CELL][1]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"model": {"name": "mpl"}}, "did you mean 'mlp'"),
        ({"model": {"name": "mlp", "hidden_dim": 8, "num_layers": 0}}, "at least one layer, not 0"),
        ({"model": {"name": "mlp", "hidden_dim": 8, "depth": 3}}, "model.depth: unknown key"),
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
def test_a_cell_that_fails_stops_no_other_in_two_processes(capfd, monkeypatch):
    """Two valid cells of the real grid, and a dataset without a known shape."""
    monkeypatch.chdir(ROOT)
    cells = cells_of(["embedded/chains/mlp", "embedded/chains/gcn"], load_grid())
    strange = cells[0].model_copy(update={"dataset": "unheard", "cell": "embedded/unheard/mlp"})
    monkeypatch.setattr(check_grid, "cells_of", lambda names, grid: [strange, *cells])
    assert main([]) == 1
    said = " ".join(capfd.readouterr().out.split())
    assert "no dataset named 'unheard'" in said
    assert [f"{cell.cell}: ok (" in said for cell in cells] == [True, True]
    assert "3 cells in" in said
    assert "1 failures" in said


def test_the_status_and_a_name_that_does_not_exist(grid, monkeypatch, capfd):
    grid.recipe()
    monkeypatch.setattr(check_grid, "compute_all", lambda cells, root, workers, say, *_: [say(one(c)) for c in cells])
    assert main([CELL]) == 1, "it has no golden values"
    assert main([CELL, "--update"]) == 0
    assert main([CELL]) == 0
    assert "1 cells in" in capfd.readouterr().out
    assert main(["smal"]) == 1
    assert "did you mean 'small'" in capfd.readouterr().err


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
            *(
                traits(load_recipe(golden_recipe(c.cell)), (s := spec_of(c.dataset)).task, s.prepare.__module__)
                for c in some
            )
        )

    some = covering(cells)
    assert has(some) == has(cells)
    assert len(some) < len(cells) / 3
    models = {trait for trait in has(some) if trait.startswith("model ")}
    assert "model ppgt-released" in models, "a released form is a model of its own"
    assert {"task link-prediction", "batch targets", "features", "head", "processes"} <= has(some)
