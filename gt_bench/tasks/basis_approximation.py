"""Approximation of the 15 equivariant basis tensors by attention heads (Kim et al. 2022, Section 5.1)."""

from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from gt_bench.data.packed import PackedHeader
from gt_bench.tasks.base import Task
from gt_models.batch import GraphBatch


class BasisApproximation(Task):
    """The model returns the distance of its attention to the basis tensors with `model.errors(batch)`.

    "squared-error" is the L2 of the paper: squared differences, summed over rows and columns including [null], averaged
    over graphs and the 15 basis tensors. The table shows its mean and deviation over runs, each with its own graphs.
    """

    # unstated: what ± is taken over. Runs: the authors seed data and model alike, and have one folder per seed (see the
    # dataset's splits)
    default_loss = "squared-error"
    losses: Mapping[str, Callable[..., Tensor]] = {"squared-error": lambda errors, target: errors.mean()}
    directions: Mapping[str, str] = {"squared-error": "min"}

    def output_shape(self, batch: GraphBatch, header: PackedHeader) -> None:
        """Returns None: the model itself computes its errors."""

    def predict(self, model: nn.Module, batch: GraphBatch, rows: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns the squared errors [B, 15], which are much smaller than the attention matrices, and targets of 0."""
        errors = cast(Callable[[GraphBatch], Tensor], model.errors)(batch)
        return errors, torch.zeros_like(errors)

    def evaluate(self, outputs: list[Tensor], targets: list[Any]) -> dict[str, float]:
        """Returns the mean over graphs and tensors, and the mean of each tensor as "squared-error/0" to "/14"."""
        errors = torch.cat([output.detach().double().cpu() for output in outputs])
        mean = errors.mean().item()
        return {"loss": mean, "squared-error": mean} | {
            f"squared-error/{i}": e for i, e in enumerate(errors.mean(0).tolist())
        }
