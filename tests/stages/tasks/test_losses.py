"""Losses against their formulas."""

import torch

from stages.tasks.task import LOSSES


def test_binary_cross_entropy_of_every_class_against_the_rest():
    output, target = torch.randn(5, 2, dtype=torch.float64), torch.tensor([0, 1, 1, 0, 1])
    expected = 0.0
    for row, label in zip(output, target, strict=True):
        for column, logit in enumerate(row):
            p = torch.sigmoid(logit)
            expected -= (p if column == label else 1 - p).log() / output.numel()
    torch.testing.assert_close(LOSSES["bce-one-hot"](output, target), expected, rtol=1e-12, atol=1e-12)
