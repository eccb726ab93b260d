"""Metrics against values computed by hand or by their definitions in loops."""

import math
from itertools import product

import pytest
import torch

from gt_bench.tasks.metrics import METRICS, detached, why_undefined


def value(name, output, target):
    return METRICS[name][0](output, target)


def scores(*classes, of=3):
    """Returns outputs [N, C] whose largest entry is the given class."""
    return torch.nn.functional.one_hot(torch.tensor(classes), of).float() - 0.5


# class 0: 2 of 3, class 1: 2 of 3, class 2: 0 of 1
PREDICTED, TARGET = scores(0, 0, 1, 1, 1, 2, 0), torch.tensor([0, 0, 0, 1, 1, 1, 2])


def area_by_pairs(output, target):
    """Returns the fraction of pairs of a positive and a negative in correct order. A tie counts half."""
    pairs = list(product(output[target == 1].tolist(), output[target == 0].tolist()))
    return sum((a > b) + 0.5 * (a == b) for a, b in pairs) / len(pairs)


def precision_by_steps(output, target):
    """Returns the sum over thresholds of (increase of recall) * precision, for distinct outputs."""
    ranked = target[output.argsort(descending=True)].tolist()
    return sum(sum(ranked[: i + 1]) / (i + 1) for i, hit in enumerate(ranked) if hit) / sum(ranked)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("accuracy", 4 / 7),
        ("balanced-accuracy", (2 / 3 + 2 / 3 + 0) / 3),
        ("f1-macro", (2 / 3 + 2 / 3 + 0) / 3),  # precision and recall 2/3, 2/3, and 0
        ("f1-micro", 4 / 7),
    ],
)
def test_metrics_of_classes(name, expected):
    assert value(name, PREDICTED, TARGET) == pytest.approx(expected, abs=1e-12)
    assert value(name, PREDICTED, TARGET[:, None]) == pytest.approx(expected, abs=1e-12)


def test_balanced_accuracy_is_over_the_classes_that_occur():
    assert value("balanced-accuracy", scores(0, 1, 1), torch.tensor([0, 0, 1])) == pytest.approx((1 / 2 + 1) / 2)


def test_the_area_under_the_curve_is_the_share_of_pairs_in_order():
    logits = torch.tensor([[0.0, 1.0], [2.0, 0.5], [0.0, 0.2], [1.0, 2.0], [0.0, -1.0]])
    target = torch.tensor([1, 0, 1, 0, 0])
    expected = area_by_pairs(logits[:, 1] - logits[:, 0], target)
    assert value("roc-auc", logits, target) == pytest.approx(expected, abs=1e-12)
    assert value("roc-auc", logits, target[:, None]) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("metric", ["roc-auc", "ap"])
def test_large_logits_are_not_tied(metric):
    """Their probabilities are all 1.0 in double precision."""
    target = torch.tensor([0, 1, 1, 0])
    output = torch.tensor([[0.0, 40.0], [0.0, 50.0], [0.0, 60.0], [-5.0, 40.0]])
    assert METRICS[metric][0](output, target) == 1
    assert METRICS[metric][0](torch.tensor([[0.0, -torch.inf], [0.0, torch.inf]]).double(), target[:2]) == 1
    assert METRICS[metric][0](torch.zeros(4, 2), target) == 0.5


@pytest.mark.parametrize("label", [0, 1])
def test_average_precision_of_one_class_is_no_number(label):
    assert math.isnan(METRICS["ap"][0](torch.randn(3, 2), torch.full((3,), label)))


@pytest.mark.parametrize(("name", "by_hand"), [("roc-auc", area_by_pairs), ("ap", precision_by_steps)])
def test_metrics_of_labels_are_means_over_labelled_columns(name, by_hand):
    nan = torch.nan
    output = torch.tensor([[0.9, 3.0, 1.0], [0.1, -1.0, 2.0], [0.8, 0.5, 3.0], [0.3, 2.0, 4.0]])
    target = torch.tensor([[1.0, nan, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0], [1.0, 1.0, nan]])
    expected = (by_hand(output[:, 0], target[:, 0]) + by_hand(output[1:, 1], target[1:, 1])) / 2
    assert value(name, output, target) == pytest.approx(expected, abs=1e-7)
    with pytest.raises(ValueError, match="no label column contains both classes"):
        value(name, output[:, 2:], target[:, 2:])


@pytest.mark.parametrize(
    ("name", "expected"), [("mae", (1 + 0 + 2 + 5) / 4), ("mse", (1 + 0 + 4 + 25) / 4), ("rmse", (30 / 4) ** 0.5)]
)
def test_metrics_of_numbers(name, expected):
    output, target = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([2.0, 2.0, 1.0, -1.0])
    assert value(name, output, target) == expected
    assert value(name, output[:, :1], torch.tensor([1.0, 3.0])) == 0  # [N, 1] and [N] must not be broadcast to [N, N]


def test_errors_are_to_be_small_and_all_else_large():
    assert {name for name, (_, direction) in METRICS.items() if direction == "min"} == {"mae", "mse", "rmse"}


def test_batches_are_joined_in_double_where_they_are_and_else_in_float():
    assert detached([torch.ones(2, dtype=torch.bfloat16), torch.ones(1)]).dtype == torch.float32
    assert detached([torch.ones(2, dtype=torch.float64)]).dtype == torch.float64
    joined = detached([torch.tensor([3, 1], dtype=torch.int64), torch.tensor([2])])
    assert joined.tolist() == [3, 1, 2]
    assert joined.dtype == torch.int64


@pytest.mark.parametrize(
    ("metric", "target", "reason"),
    [
        ("roc-auc", [0, 1, 0], None),
        ("roc-auc", [1, 1], "has one class (1)"),
        ("roc-auc", [[1.0, 0.0], [1.0, 1.0]], None),
        ("ap", [[1.0, 0.0], [1.0, 0.0]], "has one value of each of its 2 labels"),
        ("ap", [[1.0, 0.0], [float("nan"), 0.0]], "has one value of each of its 2 labels"),
        ("ap", [[1.0], [0.0]], None),
        ("accuracy", [1, 1], None),
        ("mae", [0.5], None),
        ("r2", [1.0, 1.0, float("nan")], "has fewer than two different values of target 1"),
        ("r2", [1.0, 2.0], None),
        ("f1-binary", [0, 0], "has no example of class 1"),
        ("f1-binary", [0, 1], None),
    ],
)
def test_where_a_metric_is_undefined(metric, target, reason):
    assert why_undefined(metric, torch.tensor(target)) == reason


def test_metrics_of_two_classes():
    logits = torch.tensor([[0.0, 1.0], [2.0, 0.5], [0.0, 0.2], [1.0, 1.9], [0.0, -1.0]])
    target = torch.tensor([1, 0, 1, 0, 0])
    for shape in (target, target[:, None]):
        expected = precision_by_steps(logits[:, 1] - logits[:, 0], target)
        assert value("ap", logits, shape) == pytest.approx(expected, abs=1e-12)
        # class 1 is predicted for rows 0, 2 and 3, and true for 0 and 2
        assert value("f1-binary", logits, shape) == pytest.approx(2 * 2 / (3 + 2))
    with pytest.raises(ValueError, match="f1-binary is undefined: the part has no example of class 1"):
        value("f1-binary", logits, torch.zeros(5, dtype=torch.long))


def test_f1_of_labels_counts_known_entries_only():
    nan = torch.nan
    output = torch.tensor([[0.9, -3.0], [0.1, 1.0], [-0.8, 0.5], [0.3, 2.0]])
    target = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [nan, 1.0]])
    # columns: 1 hit, 1 false alarm, 1 miss; and 2 hits, 1 false alarm
    assert value("f1-macro", output, target) == pytest.approx((2 / 4 + 4 / 5) / 2)
    assert value("f1-micro", output, target) == pytest.approx(2 * 3 / (2 * 3 + 2 + 1))


def test_r2_is_the_mean_over_columns_of_known_entries():
    output = torch.tensor([[1.0, 10.0], [2.0, 30.0], [4.0, 20.0]])
    target = torch.tensor([[1.0, 10.0], [3.0, 20.0], [5.0, torch.nan]])
    first = 1 - (0 + 1 + 1) / (4 + 0 + 4)
    second = 1 - (0 + 100) / (25 + 25)
    assert value("r2", output, target) == pytest.approx((first + second) / 2)
    assert value("r2", output[:, 0], target[:, 0]) == pytest.approx(first)
    with pytest.raises(ValueError, match="r2 is undefined: the part has fewer than two different values of target 2"):
        value("r2", output[1:], target[1:])
