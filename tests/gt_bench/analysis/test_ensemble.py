"""Greedy ensembles, chosen on validation alone."""

import numpy as np
import pytest
import torch

from gt_bench.analysis.ensemble import select
from gt_bench.config.schema import RecipeError
from gt_bench.store.predictions import Part, Predictions
from tests.gt_bench.cells import changed, make_record
from tests.refusals import refused


def candidate(val, test, target, task="node-classification", metric="accuracy", direction="max", ids=None):
    """Returns predictions on validation and test with the same targets."""
    record = changed(make_record("small/web/mlp", 0), run={"metric": metric, "direction": direction})
    parts = {
        name: Part(np.asarray(output), {"": np.asarray(target)}, {}, ids, None)
        for name, output in (("val", val), ("test", test))
    }
    return Predictions(record, task, None, "node", parts)


TARGET = [0, 1, 0, 1]
# sure and right about the first two, unsure and wrong about the others; and the reverse
FIRST = torch.tensor([[4.0, 0.0], [0.0, 4.0], [0.0, 0.5], [0.5, 0.0]])
SECOND = torch.tensor([[0.0, 0.5], [0.5, 0.0], [4.0, 0.0], [0.0, 4.0]])


def test_complementary_candidates_are_combined():
    found = select({"a": candidate(FIRST, FIRST, TARGET), "b": candidate(SECOND, SECOND, TARGET)})
    assert found.weights == {"a": 0.5, "b": 0.5}
    assert (found.validation, found.test) == (1.0, 1.0)


def test_a_candidate_that_does_not_help_has_no_weight():
    right, wrong = 4 * torch.eye(2)[TARGET], 4 * torch.eye(2)[[1, 0, 1, 0]]
    found = select({"wrong": candidate(wrong, right, TARGET), "right": candidate(right, wrong, TARGET)})
    assert found.weights == {"right": 1.0}
    assert (found.validation, found.test) == (1.0, 0.0)


def test_the_choice_does_not_depend_on_the_test_part():
    rng = torch.Generator().manual_seed(0)
    target = torch.randint(3, (60,), generator=rng)
    outputs = [torch.eye(3)[target] + 1.5 * torch.randn(60, 3, generator=rng) for _ in range(6)]
    weights = []
    for test in (outputs, outputs[::-1], [torch.zeros(60, 3)] * 6):
        runs = {str(i): candidate(val, other, target) for i, (val, other) in enumerate(zip(outputs, test, strict=True))}
        found = select(runs)
        weights.append(found.weights)
        shares = sum(w * outputs[int(name)].double().softmax(-1) for name, w in found.weights.items())
        assert found.validation == pytest.approx((shares.argmax(-1) == target).double().mean())
    assert weights[0] == weights[1] == weights[2]
    assert sum(weights[0].values()) == pytest.approx(1.0)
    alone = max((output.argmax(-1) == target).double().mean() for output in outputs)
    assert found.validation >= alone


def test_errors_of_opposite_sign_cancel_where_smaller_is_better():
    target = torch.tensor([[1.0], [2.0], [3.0]])
    of = {"task": "graph-regression", "metric": "mae", "direction": "min"}
    runs = {"high": candidate(target + 1, target + 1, target, **of), "low": candidate(target - 1, target, target, **of)}
    found = select(runs)
    assert found.weights == {"high": 0.5, "low": 0.5}
    assert (found.validation, found.test) == (0.0, 0.5)


def test_runs_on_different_examples_are_not_combined():
    one = candidate(FIRST, FIRST, TARGET, ids=np.arange(4))
    with refused(RecipeError, value="val"):
        select({"a": one, "b": candidate(FIRST, FIRST, TARGET, ids=np.arange(1, 5))})
