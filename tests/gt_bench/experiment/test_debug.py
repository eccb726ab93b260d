"""Debug presets: what they find in models with a known fault, and that they store nothing."""

import json
from pathlib import Path

import pytest
import torch

from gt_bench.config.cell_recipe import settings_of
from gt_bench.config.grid import load_grid
from gt_bench.experiment.cell import experiment_of
from gt_bench.experiment.debug import Debugger, debug, first_not_finite, overfit
from gt_bench.store.run_store import Store
from tests.gt_bench.shipping import CELL, run


def debugger_of(project, dataset: str = "web", **changes) -> Debugger:
    """A debugger of small/DATASET/mlp."""
    project.recipe(dataset, "mlp", **changes)
    grid = load_grid()
    cell = grid.find(f"small/{dataset}/mlp")
    return Debugger(experiment_of(cell, settings_of(cell), grid, Store(), Path("data")), 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [
        {"name": "mlp", "dropout": 0.5},
        {"name": "polynormer", "num_heads": 2, "dropout": 0.5},
        {"name": "edge-transformer", "num_heads": 2, "dropout": 0.5, "attn_dropout": 0.5},
    ],
    ids=lambda model: model["name"],
)
def test_overfit_turns_off_every_kind_of_dropout(project, model):
    """Also that of gt_models, whose modules have a `rate`: two forward passes in training mode are equal."""
    debugger = debugger_of(project, model=model | {"hidden_dim": 8})
    overfit(debugger, lambda line: None, 1)
    batch, _ = next(debugger.batches())
    debugger.model.train()
    assert torch.equal(debugger.model(batch), debugger.model(batch))


def said(debugger: Debugger, preset: str, tmp_path: Path) -> tuple[bool, str]:
    lines: list[str] = []
    return debug(debugger.experiment, preset, 0, lines.append, tmp_path), "\n".join(lines)


def linear(debugger: Debugger) -> tuple[str, torch.nn.Module]:
    return next((n, m) for n, m in debugger.model.named_modules() if isinstance(m, torch.nn.Linear))


def test_shapes_of_one_batch_and_the_gradient(project, tmp_path):
    fine, text = said(debugger_of(project, "many", batch={"graphs": 4}), "one-batch", tmp_path)
    assert fine
    assert "batch: 4 graphs" in text
    assert "output float32 [4, 1]" in text


def test_a_parameter_that_is_not_used_is_named(project, monkeypatch, tmp_path):
    debugger = debugger_of(project)
    begin = type(debugger.run)._begin

    def with_unused(run):
        begin(run)
        run.model.register_parameter("forgotten", torch.nn.Parameter(torch.ones(2)))

    monkeypatch.setattr(type(debugger.run), "_begin", with_unused)
    fine, text = said(debugger, "one-batch", tmp_path)
    assert not fine
    assert "no gradient (not used in the output): forgotten" in text


@pytest.mark.parametrize(
    ("changes", "steps", "memorised"),
    [
        ({"model": {"name": "mlp", "hidden_dim": 64, "num_layers": 2, "dropout": 0.9}}, 400, True),
        ({"optimizer": {"name": "adam", "lr": 1e-9}}, 30, False),
    ],
)
def test_whether_a_batch_is_memorised_without_dropout(project, changes, steps, memorised):
    lines: list[str] = []
    assert overfit(debugger_of(project, **changes), lines.append, steps) == memorised
    assert lines[-1].startswith("memorised: " if memorised else "not memorised: ")


def test_a_nan_that_comes_after_some_steps_has_its_step(project):
    debugger = debugger_of(project)
    name, module = linear(debugger)
    step = debugger.run.optimizer.step
    calls = iter(range(1, 9))

    def spoiled(*arguments):
        step(*arguments)
        if next(calls) == 2:
            module.weight.data.fill_(float("inf"))

    debugger.run.optimizer.step = spoiled
    found = first_not_finite(debugger, 5)
    assert (found.module, found.step) == (name, 3)


def test_a_gradient_that_is_nan_is_traced_to_its_function(project):
    debugger = debugger_of(project)
    loss = debugger.run.task.loss
    debugger.run.task.loss = lambda output, target: loss(output, target) + (output * 0).sum().sqrt()
    found = first_not_finite(debugger, 2)
    assert (found.kind, found.step) == ("function", 1)
    assert found.module.startswith("MulBackward0, ")  # the root has an infinite gradient, and 0 times it is NaN
    assert "test_debug.py, line" in found.module


def test_a_profile_has_a_table_and_a_trace(project, tmp_path):
    fine, text = said(debugger_of(project), "profile", tmp_path)
    assert fine
    assert "aten::" in text
    trace = json.loads((tmp_path / "mlp-web.json").read_text())
    assert trace["traceEvents"]


@pytest.mark.slow
def test_nothing_is_stored_and_a_later_run_is_the_same(project, tmp_path):
    debugger = debugger_of(project)
    for preset in ("one-batch", "overfit", "nan"):
        said(debugger, preset, tmp_path)
    assert not list(Path().glob("store/**/*"))
    first, _ = debugger.experiment.run(0)
    for path in Path("store").glob("??/*/record.json"):
        path.unlink()
    again, _ = debugger.experiment.run(0)
    assert first.run == again.run


def test_the_options_of_the_command(project):
    message = str(run("try", "mlp", "web", "--debug", "nan", "--search", "3").exception)
    assert message == "--debug nan: stores no run and cannot be combined with --search; remove one"
    done = run("try", "mlp", "web", "--debug", "everything")
    assert done.exit_code == 2
    assert not Path("results").exists()
    assert CELL not in done.output
