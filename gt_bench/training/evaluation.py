"""Evaluation of a model on a part of its split, and the outputs that are kept for the predictions of a record."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from gt_bench.runtime import signals
from gt_bench.training.failures import Diverged, RunFailure
from gt_bench.training.interfaces import Batches, Objective
from gt_bench.training.loader import seed_generators

if TYPE_CHECKING:
    from gt_bench.config.recipe import Recipe

# outputs and targets of each batch
Examples = tuple[Sequence[Tensor], Sequence[Any]]


@dataclass
class KeptExamples:
    """Outputs and targets of the tested weights.

    Attributes:
        limit: maximum size of the outputs in bytes. 0 for none.
        parts: {"val" or "test": outputs and targets of each batch}.
        dropped: size in bytes, if the outputs were dropped because they exceed the limit. Otherwise None.
    """

    limit: int = 0
    parts: dict[str, Examples] = field(default_factory=dict)
    dropped: int | None = None

    def add(self, part: str, outputs: Sequence[Tensor], targets: Sequence[Any]) -> None:
        """Adds a part, or drops all parts if they are too large."""
        if not self.limit:
            return
        outputs_of_parts = [outputs, *(stored for stored, _ in self.parts.values())]
        needed = sum(output.nbytes for outputs in outputs_of_parts for output in outputs)
        if needed > self.limit:
            self.parts, self.dropped = {}, needed
        else:
            self.parts[part] = list(outputs), list(targets)


class Evaluator:
    """Outputs and metrics of a model on a part of its split.

    Args:
        recipe: the recipe of the run.
        task: computes metrics.
        loader: batches of the run's split.
        seed: seed of the run.
    """

    def __init__(self, recipe: "Recipe", task: Objective, loader: Batches, seed: int):
        self.recipe, self.task, self.seed = recipe, task, seed
        self.device = loader.device
        # a graph that does not fit on the training device as a whole is evaluated on another device
        self.loader = loader.on(torch.device(recipe.eval_device)) if recipe.eval_device else loader

    def predict(self, model: nn.Module, batch: Any, rows: Tensor | None) -> tuple[Tensor, Any]:
        """Returns the outputs of a batch that count, in float32 or float64, and their targets."""
        signals.poll()
        device = self.device if model.training else self.loader.device
        with torch.autocast(device.type, torch.bfloat16, enabled=self.recipe.precision == "bf16"):
            output, target = self.task.predict(model, batch, rows)
        return (output.float() if output.dtype == torch.bfloat16 else output), target

    @torch.no_grad()
    def outputs(self, model: nn.Module, part: str, epoch: int) -> Examples:
        """Returns outputs and targets of each batch of a part, with the random numbers of epoch number `epoch`."""
        other_device = self.loader.device != self.device
        if other_device:  # `to` is slow even if the model is already there
            model.to(self.loader.device)
        model.eval()
        seed_generators(self.device, "evaluate", self.seed, epoch)
        outputs, targets = zip(
            *(self.predict(model, batch, rows) for batch, rows in self.loader.evaluation(part)), strict=True
        )
        if other_device:
            model.to(self.device)
        return outputs, targets

    def scores(
        self, part: str, outputs: Sequence[Tensor], targets: Sequence[Any], epoch: int | None
    ) -> dict[str, float]:
        """Computes loss and metrics.

        Args:
            part: name of the part, for messages.
            outputs: outputs of each batch.
            targets: targets of each batch.
            epoch: number of the epoch, for messages.

        Raises:
            Diverged: an output or the loss is not finite.
            RunFailure: the metric is not defined on these targets.
        """
        if not bool(torch.stack([output.isfinite().all() for output in outputs]).all()):  # waits for the device once
            raise Diverged(f"outputs on {part} are not finite in epoch {epoch}")
        scores = self.task.evaluate(list(outputs), list(targets))
        if not math.isfinite(scores["loss"]):
            raise Diverged(f"the loss on {part} is {scores['loss']} in epoch {epoch}")
        # no later epoch would count as better than NaN
        if not math.isfinite(value := scores[self.task.metric]):
            raise RunFailure(f"{self.task.metric} on {part} is {value} in epoch {epoch}: it is not defined there")
        return scores
