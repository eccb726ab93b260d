"""The five standard tasks: classification and regression of nodes and graphs, and multilabel classification of graphs.

A dataset of nodes is one large graph with splits of its nodes, or many graphs with splits of the graphs.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gt_bench.tasks.base import LOSSES, Task
from gt_bench.tasks.metrics import detached


class Classification(Task):
    """One class per node or graph. Outputs are logits, [N, classes]."""

    accepts_custom = True
    default_loss = "cross-entropy"
    losses = {name: LOSSES[name] for name in ("cross-entropy", "weighted-cross-entropy", "bce-one-hot")}


class Multilabel(Task):
    """Several binary labels per graph. Outputs are logits, [B, labels]. Unlabelled entries are NaN and do not count."""

    accepts_custom = True
    default_loss = "bce"
    losses = {name: LOSSES[name] for name in ("bce",)}


def _over_labelled(loss: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """Turns a mean over all entries into a mean over labelled entries, without synchronising the GPU."""

    def mean(output: Tensor, target: Tensor) -> Tensor:
        target = target.view_as(output)
        known = ~target.isnan()
        return loss(torch.where(known, output, 0.0), torch.where(known, target, 0.0)) * (
            known.numel() / known.sum(dtype=output.dtype)
        )

    return mean


class Regression(Task):
    """One or several numbers per node or graph, [N, targets]. Unlabelled entries are NaN and do not count."""

    accepts_custom = True
    default_loss = "l1"
    losses = {name: _over_labelled(LOSSES[name]) for name in ("l1", "mse")}

    def evaluate(self, outputs: list[Tensor], targets: list[Any]) -> dict[str, float]:
        """Computes loss and metrics over the labelled entries of all targets together.

        R^2 is computed per target. It and user-supplied metrics get all columns, [N, T], with NaN where there is no
        label.
        """
        output, target = detached(outputs), detached(targets)
        target = target.view_as(output)
        known = ~target.isnan()
        entries = output[known], target[known]
        names = (self.metric, *self.also)
        by_column = {name for name in names if name == "r2" or name in self.custom}
        scores = {name: self.score(name, *((output, target) if name in by_column else entries)) for name in names}
        return {"loss": float(self.loss(*entries)), **scores}
