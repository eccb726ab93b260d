"""Base class of tasks: a loss on a batch, and metrics on a whole part of a split."""

# mypy: disable-error-code="arg-type"

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gt_bench.data.custom.metric import is_custom, load_metric
from gt_bench.data.packed import PackedHeader
from gt_bench.tasks.metrics import METRICS, detached
from gt_bench.training.runner import Runner
from gt_models.batch import GraphBatch
from gt_models.layers.static_shapes import needs_static_shapes


def _weighted_cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    """Cross entropy in which a class is weighted by the fraction of the batch that is not in it.

    Source: Dwivedi et al. 2020, PATTERN and CLUSTER.
    """
    # not `bincount`, which waits for a GPU
    count = target.new_zeros(output.size(1)).index_add(0, target, torch.ones_like(target))
    # deviates: on two classes the code behind GRIT and PPGT has one logit and divides by the number of nodes, not by
    # the sum of their weights: its loss is at most half of this one, which matters only for gradient clipping
    weight = (target.numel() - count).to(output.dtype) / target.numel() * (count > 0)
    return F.cross_entropy(output, target, weight=weight)


def _binary_cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    """Binary cross entropy over label columns. Unlabelled entries are NaN and do not count."""
    target = target.view(output.shape).to(output.dtype)
    known = ~target.isnan()
    if needs_static_shapes(output):  # how many entries are known is a value on the device
        entries = F.binary_cross_entropy_with_logits(output, torch.where(known, target, 0.0), reduction="none")
        return torch.where(known, entries, 0.0).sum() / known.sum()
    return F.binary_cross_entropy_with_logits(output[known], target[known])


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cross-entropy": lambda output, target: F.cross_entropy(output, target.view(-1)),
    "weighted-cross-entropy": lambda output, target: _weighted_cross_entropy(output, target.view(-1)),
    "l1": lambda output, target: F.l1_loss(output, target.view_as(output).to(output.dtype)),
    "mse": lambda output, target: F.mse_loss(output, target.view_as(output).to(output.dtype)),
    "bce": _binary_cross_entropy,
    # each class against the others (Polynormer's code for `questions`)
    "bce-one-hot": lambda output, target: F.binary_cross_entropy_with_logits(
        output, F.one_hot(target.view(-1), output.size(1)).to(output.dtype)
    ),
}


class Task:
    """A task with one target per row of the output. Subclasses override what differs.

    Args:
        metric: name in `directions`, or `file.py:function` of a user if `accepts_custom`. It selects the best epoch.
        loss: name in `losses`. None for `default_loss`.
        also: names of metrics that are reported in addition.

    Attributes:
        losses: {name: function of (output, target)}.
        directions: {name of a metric: "max" or "min", which values are better}.
        computes_encodings: whether `loader` computes the encodings of the recipe, its argument `encodings`, because the
            graphs of a split are not the stored ones.
        accepts_custom: whether metrics may be user-supplied functions of (output, target).
        target_type: dataclass of the targets of a batch, if they are not one tensor. A field that is a tensor with a
            row per example, pair or set is stored with predictions.
        loader: a class with the interface of `gt_bench.training.loader.Loader`, if batches are not sets of graphs or
            nodes.
        runner: the protocol, if it is not to train, select on validation and test.

    Raises:
        KeyError: the task does not have this metric or loss.
        MetricError: a user-supplied metric cannot be used.
    """

    default_loss = "cross-entropy"
    losses: Mapping[str, Callable[..., Tensor]] = LOSSES
    directions: Mapping[str, str] = {name: direction for name, (_, direction) in METRICS.items()}
    accepts_custom = False
    computes_encodings = False
    loader: type | None = None
    runner: type[Runner] | None = None
    target_type: type | None = None

    def __init__(self, metric: str, loss: str | None = None, also: Sequence[str] = ()):
        self.custom = {name: load_metric(name) for name in (metric, *also) if self.accepts_custom and is_custom(name)}
        for name in (metric, *also):
            if name not in self.directions and name not in self.custom:
                raise KeyError(f"no metric named {name!r:.200}; known: {', '.join(self.directions)}")
        self.metric, self.also = metric, tuple(also)
        self.direction = self.custom[metric][1] if metric in self.custom else self.directions[metric]
        self.loss_name = loss or self.default_loss
        if self.loss_name not in self.losses:
            raise KeyError(f"loss {self.loss_name!r:.200} is not one of this task's: {', '.join(self.losses)}")
        self.loss = self.losses[self.loss_name]

    def in_dim(self, header: PackedHeader) -> Any:
        """Returns `in_dim` of the model: that of the dataset, unless the task adds features."""
        return header.in_dim

    def output_shape(self, batch: GraphBatch, header: PackedHeader) -> tuple[int, ...] | None:
        """Returns the shape of the model's output: one row per target, one column per class or target. None for any."""
        return (len(batch.y), header.out_dim)

    def predict(self, model: nn.Module, batch: GraphBatch, rows: Tensor | None) -> tuple[Tensor, Any]:
        """Computes outputs and targets of a batch, as arguments of `loss` and `evaluate`.

        Args:
            model: the model.
            batch: the batch.
            rows: rows of the output that count. None for all.

        Returns:
            Outputs and targets. The length of the targets is the weight of the batch in the mean loss of the epoch.
        """
        output = model(batch)
        return (output, batch.y) if rows is None else (output[rows], batch.y[rows])  # type: ignore[index]

    def evaluate(self, outputs: list[Tensor], targets: list[Any]) -> dict[str, float]:
        """Computes loss and metrics from the outputs and targets of all batches of a part.

        Returns:
            {"loss" or name of the metric: value}.
        """
        output, target = detached(outputs), detached(targets)
        scores = {name: self.score(name, output, target) for name in (self.metric, *self.also)}
        return {"loss": float(self.loss(output, target)), **scores}

    def score(self, name: str, output: Tensor, target: Tensor) -> float:
        """Computes one metric.

        Args:
            name: `metric`, or one of `also`.
            output: outputs of all examples, [N, ...].
            target: their targets, [N, ...].

        Raises:
            ValueError: the metric is undefined on these targets.
            MetricError: a user-supplied metric raises an exception, or does not return a finite number.
        """
        return (self.custom[name] if name in self.custom else METRICS[name])[0](output, target)
