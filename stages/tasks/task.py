"""What the training loop asks of a task: a loss on a batch, and a metric on a whole split."""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor

from stages.tasks.metrics import METRICS, detached


def _weighted_cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    """Cross entropy with each class weighted by the share of the batch that is not of it (Dwivedi et al. 2020, PATTERN and CLUSTER)."""
    count = target.bincount(minlength=output.size(1))
    weight = (target.numel() - count).to(output.dtype) / target.numel() * (count > 0)
    return F.cross_entropy(output, target, weight=weight)


def _binary_cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    """Binary cross entropy over label columns; entries that are not a number are unlabelled and do not count."""
    target = target.view(output.shape).to(output.dtype)
    known = ~target.isnan()
    return F.binary_cross_entropy_with_logits(output[known], target[known])


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cross-entropy": lambda output, target: F.cross_entropy(output, target.view(-1)),
    "weighted-cross-entropy": lambda output, target: _weighted_cross_entropy(output, target.view(-1)),
    "l1": lambda output, target: F.l1_loss(output, target.view_as(output).to(output.dtype)),
    "mse": lambda output, target: F.mse_loss(output, target.view_as(output).to(output.dtype)),
    "bce": _binary_cross_entropy,
}


class Task:
    """One target per row of the output. A task with a protocol of its own overrides what differs.

    Args:
        metric: name in `METRICS`; its direction decides which epoch is best.
        loss: name in `LOSSES`, None for the task's own.
    """

    default_loss = "cross-entropy"

    def __init__(self, metric: str, loss: str | None = None):
        if metric not in METRICS:
            raise KeyError(f"no metric named {metric!r}; known: {', '.join(METRICS)}")
        self.metric = metric
        self.score, self.direction = METRICS[metric]
        self.loss_name = loss or self.default_loss
        self.loss = LOSSES[self.loss_name]

    def evaluate(self, outputs: list[Tensor], targets: list[Tensor]) -> dict[str, float]:
        """{"loss", metric name} of a split from the outputs and targets of its batches."""
        output, target = detached(outputs), detached(targets)
        return {"loss": float(self.loss(output, target)), self.metric: self.score(output, target)}
