"""Attention heads that learn the 15 equivariant basis tensors (Kim et al. 2022, Section 5.1): the distance of each to its own."""

from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from gt_bench.tasks.base import Task
from gt_bench.training.interfaces import Header
from gt_models.batch import GraphBatch


class BasisApproximation(Task):
    """The model gives the distance of its attention to the basis tensors, by `model.errors(batch)`.

    "squared-error" is the paper's L2: squared differences summed over rows and columns, [null] included, and averaged over graphs and the
    15 bases. A row of the table has the mean and the deviation of it over runs, each with graphs of its own.
    """

    # unstated: what ± is taken over. Runs: the authors seed data and model alike, and keep one folder per seed (see the dataset's splits)
    default_loss = "squared-error"
    losses: Mapping[str, Callable[..., Tensor]] = {"squared-error": lambda errors, target: errors.mean()}
    directions: Mapping[str, str] = {"squared-error": "min"}

    def output_shape(self, batch: GraphBatch, header: Header) -> None:
        """The model says itself what its attention should be."""

    def predict(self, model: nn.Module, batch: GraphBatch, rows: Tensor | None) -> tuple[Tensor, Tensor]:
        """Squared errors [B, 15]: what a matrix of attention has to say here, at a ten-thousandth of its size. The target is that of errors, 0."""
        errors = cast(Callable[[GraphBatch], Tensor], model.errors)(batch)
        return errors, torch.zeros_like(errors)

    def evaluate(self, outputs: list[Tensor], targets: list[Any]) -> dict[str, float]:
        """The mean over graphs and bases, and each basis' own mean as "squared-error/0" to "squared-error/14"."""
        errors = torch.cat([output.detach().double().cpu() for output in outputs])
        mean = errors.mean().item()
        return {"loss": mean, "squared-error": mean} | {
            f"squared-error/{i}": e for i, e in enumerate(errors.mean(0).tolist())
        }


TASK = BasisApproximation
