"""Standard tasks: losses against their formulas, unlabelled entries, and weights of classes."""

from types import SimpleNamespace

import pytest
import torch

from gt_bench.tasks.base import LOSSES
from gt_bench.tasks.registry import create_task


def test_binary_cross_entropy_of_every_class_against_the_rest():
    output, target = torch.randn(5, 2, dtype=torch.float64), torch.tensor([0, 1, 1, 0, 1])
    expected = 0.0
    for row, label in zip(output, target, strict=True):
        for column, logit in enumerate(row):
            p = torch.sigmoid(logit)
            expected -= (p if column == label else 1 - p).log() / output.numel()
    torch.testing.assert_close(LOSSES["bce-one-hot"](output, target), expected, rtol=1e-12, atol=1e-12)


def test_a_class_weighs_the_share_of_nodes_that_are_not_of_it():
    output, target = torch.randn(6, 3, dtype=torch.float64), torch.tensor([0, 0, 0, 1, 1, 0])  # class 2 does not occur
    weight = {0: 2 / 6, 1: 4 / 6}
    lost = [-output.log_softmax(1)[i, label].item() * weight[label] for i, label in enumerate(target.tolist())]
    expected = sum(lost) / sum(weight[label] for label in target.tolist())
    assert LOSSES["weighted-cross-entropy"](output, target[:, None]).item() == pytest.approx(expected, abs=1e-12)


def test_unlabelled_entries_lose_nothing_and_have_no_gradient():
    output = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
    target = torch.tensor([[1.0, torch.nan], [0.0, 1.0], [torch.nan, torch.nan], [1.0, 0.0]])
    loss = LOSSES["bce"](output, target)
    p = output.detach().sigmoid()
    expected = -(p[0, 0].log() + (1 - p[1, 0]).log() + p[1, 1].log() + p[3, 0].log() + (1 - p[3, 1]).log()) / 5
    torch.testing.assert_close(loss.detach(), expected, rtol=1e-12, atol=1e-12)
    loss.backward()
    assert (output.grad[target.isnan()] == 0).all()
    assert (output.grad[~target.isnan()] != 0).all()


@pytest.mark.parametrize(("name", "expected"), [("l1", 1.5), ("mse", 3.25)])
def test_targets_in_one_dimension_are_compared_with_a_column(name, expected):
    assert LOSSES[name](torch.tensor([[1.0], [2.0]]), torch.tensor([3.5, 2.5])).item() == expected


@pytest.mark.parametrize("name", ["graph-regression", "node-regression"])
@pytest.mark.parametrize(("loss", "power"), [("l1", 1), ("mse", 2)])
def test_a_regression_is_taught_and_judged_by_the_entries_that_are_known(loss, power, name):
    task = create_task(name, "mae", loss, also=("mse",))
    output = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
    target = torch.tensor([[1.0, torch.nan], [0.0, 1.0], [torch.nan, torch.nan], [1.0, 0.0]], dtype=torch.float64)
    apart = [(output[i, j].item() - target[i, j].item()) for i, j in ((0, 0), (1, 0), (1, 1), (3, 0), (3, 1))]
    value = task.loss(output, target)
    assert value.item() == pytest.approx(sum(abs(d) ** power for d in apart) / 5, rel=1e-12)
    value.backward()
    assert (output.grad[target.isnan()] == 0).all()
    assert (output.grad[~target.isnan()] != 0).all()
    scores = task.evaluate([output[:1], output[1:]], [target[:1], target[1:]])
    assert scores["mae"] == pytest.approx(sum(map(abs, apart)) / 5, rel=1e-6)
    assert scores["mse"] == pytest.approx(sum(d * d for d in apart) / 5, rel=1e-12)


@pytest.mark.parametrize(
    ("task", "metric", "loss", "shape"),
    [
        ("node-classification", "accuracy", "cross-entropy", (5, 3)),
        ("graph-classification", "roc-auc", "cross-entropy", (5, 3)),
        ("graph-multilabel", "ap", "bce", (5, 3)),
        ("graph-regression", "mae", "l1", (5, 3)),
    ],
)
def test_the_common_tasks_have_a_row_for_each_target_and_a_loss_of_their_own(task, metric, loss, shape):
    one = create_task(task, metric)
    assert one.loss_name == loss
    assert one.output_shape(SimpleNamespace(y=torch.zeros(5)), SimpleNamespace(out_dim=3)) == shape


@pytest.mark.parametrize("name", ["bce", "l1", "mse"])
def test_on_a_device_the_labelled_entries_are_not_counted_by_a_size(name, monkeypatch):
    """Where sizes may not depend on values, a loss with unlabelled entries and its gradient are the same numbers."""
    losses = LOSSES if name == "bce" else create_task("graph-regression", "mae", name).losses
    target = torch.tensor([[1.0, float("nan")], [0.0, 1.0], [float("nan"), 0.0]], dtype=torch.float64)
    found = []
    for on_device in (False, True):
        monkeypatch.setattr("gt_bench.tasks.base.needs_static_shapes", lambda _, there=on_device: there)
        output = torch.arange(6.0, dtype=torch.float64).view(3, 2).requires_grad_()
        loss = losses[name](output, target)
        found.append((loss, *torch.autograd.grad(loss, output)))
    torch.testing.assert_close(found[0], found[1], rtol=1e-12, atol=1e-14)
