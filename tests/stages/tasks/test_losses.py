"""Losses against their formulas."""

import pytest
import torch

from stages.tasks import create_task
from stages.tasks.task import LOSSES


def test_binary_cross_entropy_of_every_class_against_the_rest():
    output, target = torch.randn(5, 2, dtype=torch.float64), torch.tensor([0, 1, 1, 0, 1])
    expected = 0.0
    for row, label in zip(output, target, strict=True):
        for column, logit in enumerate(row):
            p = torch.sigmoid(logit)
            expected -= (p if column == label else 1 - p).log() / output.numel()
    torch.testing.assert_close(LOSSES["bce-one-hot"](output, target), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("task", "metric", "loss"),
    [("node-classification", "accuracy", "mse"), ("graph-regression", "mae", "cross-entropy"), ("graph-multilabel", "ap", "l1")],
)
def test_a_loss_that_does_not_fit_the_targets_is_named(task, metric, loss):
    with pytest.raises(KeyError, match=f"loss '{loss}' is not one of this task's"):
        create_task(task, metric, loss)
