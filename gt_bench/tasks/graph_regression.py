"""One or several numbers for every graph; unlabelled entries are not numbers and do not count."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gt_bench.tasks.base import LOSSES, Task
from gt_bench.tasks.metrics import detached


def _of_known(loss: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """A mean over all entries as one over those that are known; nothing is read from the device."""

    def mean(output: Tensor, target: Tensor) -> Tensor:
        target = target.view_as(output)
        known = ~target.isnan()
        return loss(torch.where(known, output, 0.0), torch.where(known, target, 0.0)) * (
            known.numel() / known.sum(dtype=output.dtype)
        )

    return mean


class GraphRegression(Task):
    """Numbers [B, targets]."""

    default_loss = "l1"
    losses = {name: _of_known(LOSSES[name]) for name in ("l1", "mse")}

    def evaluate(self, outputs: list[Tensor], targets: list[Any]) -> dict[str, float]:
        """Loss and metrics over the known entries of all targets together."""
        output, target = detached(outputs), detached(targets)
        known = ~target.view_as(output).isnan()
        return super().evaluate([output[known]], [target.view_as(output)[known]])


TASK = GraphRegression
