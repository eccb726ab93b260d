"""What the training loop asks of a task: a loss on a batch, and a metric on a whole split."""

# mypy: disable-error-code="arg-type"

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from gt_bench.tasks.metrics import METRICS, detached
from gt_bench.training.interfaces import Header
from gt_models.batch import GraphBatch


def _weighted_cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    """Cross entropy with each class weighted by the share of the batch that is not of it (Dwivedi et al. 2020, PATTERN and CLUSTER)."""
    count = target.bincount(minlength=output.size(1))
    # deviates: on two classes the code behind GRIT and PPGT has one logit and divides by the number of nodes, not by the sum of their weights:
    # its loss is at most half of this one, which clipping alone can tell
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
    # every class against the rest (Polynormer's code on questions)
    "bce-one-hot": lambda output, target: F.binary_cross_entropy_with_logits(
        output, F.one_hot(target.view(-1), output.size(1)).to(output.dtype)
    ),
}


class Task:
    """One target per row of the output. A task with a protocol of its own overrides what differs.

    Args:
        metric: name in `directions`; its direction decides which epoch is best.
        loss: name in `losses`, None for the task's own.
        also: names of metrics that are reported beside it and decide nothing.
    """

    default_loss = "cross-entropy"
    losses: Mapping[str, Callable[..., Tensor]] = LOSSES
    # metrics that this task knows, and which values of each are better
    directions: Mapping[str, str] = {name: direction for name, (_, direction) in METRICS.items()}
    # a class with the face of gt_bench.training.loader.Loader, where a batch is not a choice of graphs or nodes
    loader: type | None = None
    # a class with the face of gt_bench.training.trainer.Run, where the protocol is not "train, choose on validation, test"; its `seconds(recipe,
    # stretches)` is what a whole run takes, by the seconds of each timed piece of work (kind -> in order) of a run cut to two epochs a part
    runner: type | None = None

    def __init__(self, metric: str, loss: str | None = None, also: Sequence[str] = ()):
        for name in (metric, *also):
            if name not in self.directions:
                raise KeyError(f"no metric named {name!r:.200}; known: {', '.join(self.directions)}")
        self.metric, self.also = metric, tuple(also)
        self.direction = self.directions[metric]
        self.loss_name = loss or self.default_loss
        if self.loss_name not in self.losses:
            raise KeyError(f"loss {self.loss_name!r:.200} is not one of this task's: {', '.join(self.losses)}")
        self.loss = self.losses[self.loss_name]

    def in_dim(self, header: Header) -> Any:
        """`in_dim` of the model: that of the packed features, unless the task adds to them."""
        return header.in_dim

    def output_shape(self, batch: GraphBatch, header: Header) -> tuple[int, ...] | None:
        """Shape that the model's output must have on `batch`: a row per target, a column per class or target. None: any."""
        return (len(batch.y), header.out_dim)

    def predict(self, model: nn.Module, batch: GraphBatch, rows: Tensor | None) -> tuple[Tensor, Any]:
        """(output, target) of what counts in a batch, for `loss` and `evaluate`; `rows` are the outputs that count (None: all of them).
        A target has a len(): how much the batch weighs in the mean training loss of the epoch."""
        output = model(batch)
        return (output, batch.y) if rows is None else (output[rows], batch.y[rows])  # type: ignore[index]

    def evaluate(self, outputs: list[Tensor], targets: list[Any]) -> dict[str, float]:
        """{"loss", the metric, the further metrics} of a split from the outputs and targets of its batches."""
        output, target = detached(outputs), detached(targets)
        scores = {name: METRICS[name][0](output, target) for name in (self.metric, *self.also)}
        return {"loss": float(self.loss(output, target)), **scores}
