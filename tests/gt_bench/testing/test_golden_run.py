"""Golden runs: short and complete, each in a process of its own; errors state where they are."""

import math
import os
import signal
import time
from pathlib import Path

import pytest
import torch

from gt_bench.config.recipe import load_recipe
from gt_bench.experiment.golden_values import shortened
from gt_bench.testing import golden_run, measures
from gt_bench.testing.golden_run import Computed
from gt_bench.utils.paths import recipe_file
from gt_models import create_model
from tests.conftest import ROOT
from tests.gt_bench.testing.cases import CELL, one


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


def test_state_that_a_checkpoint_loses_changes_values(grid, monkeypatch):
    grid.recipe()
    before = one().entry["values"]
    monkeypatch.setattr("gt_bench.training.trainer.restore_optimizer", lambda optimizer, tensors: None)
    after = one().entry["values"]
    assert after["losses"][:2] == before["losses"][:2]
    assert after["losses"][2] != before["losses"][2]


def test_the_requested_precision_and_another_split_are_recorded(grid):
    grid.recipe(precision="bf16")
    values = one().entry["values"]
    assert "torch.bfloat16" in values["precision"]
    assert values["first_row_of_next_seed"] == 2
    grid.recipe()
    assert "precision" not in one().entry["values"]


def test_a_factor_of_a_small_gradient_counts_as_much_as_that_of_a_large_one():
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)).double()
    gradients = [torch.randn_like(parameter) for parameter in model.parameters()]

    def summary(*factors: float) -> float:
        for parameter, gradient, factor in zip(model.parameters(), gradients, factors, strict=True):
            parameter.grad = gradient * factor
        return measures.gradient(model)

    rows = 4 + 4 + 2 + 2
    before = summary(1e-5, 1, 1, 1)
    assert summary(1.1e-5, 1, 1, 1) - before == pytest.approx(4 / rows * math.log(1.1), rel=0.1)
    assert summary(1e-5, 1, 1, 1 + 1e-12) == pytest.approx(before, rel=1e-10)
    assert summary(0, 1, 1, 1) == pytest.approx(summary(1e-17, 1, 1, 1), rel=1e-9), "rounding in place of 0"


def test_a_miniature_has_at_most_two_parts(grid):
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
    assert "polynormer_attention" in outcome.entry["operations"]


def test_the_source_of_a_cell_is_run_before_it(grid):
    grid.recipe(row="first", keep_weights=True)
    grid.recipe(start={"cell": "small/web/first", "load": "all"})
    assert one().error is None
    grid.recipe(row="first", keep_weights=True, model={"name": "mlp", "hidden_dim": 9, "num_layers": 2})
    assert "start: small/web/first" in one().error


def test_a_bug_states_where_it_is(grid, monkeypatch):
    grid.recipe()
    monkeypatch.setattr("gt_bench.training.trainer.create_optimizer", lambda section, parameters: None)
    assert one().error.startswith("AttributeError (trainer.py:")


def test_a_cell_that_does_not_end_is_a_failure(grid, monkeypatch):
    grid.recipe()
    monkeypatch.setattr(golden_run, "SECONDS", 1)
    monkeypatch.setattr("gt_bench.training.trainer.create_optimizer", lambda section, parameters: time.sleep(30))
    assert one().error == "not finished after 1 s on a miniature"


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


def test_a_golden_run_compares_no_golden_values_of_its_own(grid, monkeypatch):
    grid.recipe()

    def fail(*arguments):
        raise AssertionError("compared")

    monkeypatch.setattr("gt_bench.experiment.setup.modified_code", fail)
    found = one()
    assert found.error is None
