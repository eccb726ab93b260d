"""From timed steps to the seconds of a whole run."""

from types import SimpleNamespace

import pytest
import torch

from gt_bench.config.recipe import load_recipe
from gt_bench.forecasting import step_timing
from tests.conftest import ROOT


def test_pairs_of_brec_are_counted(monkeypatch):
    """Each pair takes 3 s to build model and batches, 5 s per epoch, and 7 s to test; the first is slow (warm-up)."""
    from gt_bench.tasks.brec import BrecRun

    asked = []

    def trial(experiment, epochs, budget, pairs=4):
        asked.append((epochs, pairs))
        watch = step_timing.Stopwatch()
        watch.stretches |= {"train": [100.0] * 3 + [3.0, 5.0, 5.0] * (pairs - 1), "eval": [100.0] + [7.0] * (pairs - 1)}
        return step_timing.Trial(watch, None, SimpleNamespace(parameters=9))

    monkeypatch.setattr(step_timing, "_trial", trial)
    recipe = load_recipe(ROOT / "suites/ppgt/recipes/brec/gin.yaml")
    experiment = SimpleNamespace(recipe=recipe, task=SimpleNamespace(runner=BrecRun), device=torch.device("cpu"))
    found, _, parameters, _ = step_timing.seconds_of(experiment, 1.0, budget=3.0)
    assert (found, parameters) == (pytest.approx(400 * (3 + recipe.total_epochs * 5 + 7)), 9)
    assert asked == [(2, 4)]
    step_timing.seconds_of(experiment, 1.0, budget=205.0)
    assert asked[1:] == [(2, 4), (2, 10)], "pairs of all sizes, until the time is used up"


def test_a_protocol_that_states_nothing_of_its_time_is_not_forecast(monkeypatch):
    monkeypatch.setattr(step_timing, "_trial", lambda *_: None)
    experiment = SimpleNamespace(
        recipe=load_recipe(ROOT / "suites/ppgt/recipes/sr25/gin.yaml"), path="gin.yaml", device=torch.device("cpu")
    )
    experiment.task = SimpleNamespace(runner=object)
    with pytest.raises(ValueError, match=r"gin.yaml: the forecast does not support the protocol of this task"):
        step_timing.seconds_of(experiment, 1.0, budget=3.0)
