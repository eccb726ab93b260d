"""Which pairs of a set of non-isomorphic graphs a model can tell apart, with random weights (sr25: 15 graphs, 105 pairs).

A model whose embeddings of two graphs agree for random weights does not separate them after training either, up to weights of measure
zero; so nothing is trained. A pair counts where two embeddings differ by more than a tolerance, and by more than ten times what another
order of a graph's nodes changes (rounding, or a model or an encoding that is not invariant). All in float64, encodings too.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from gt_bench.tasks.base import Task
from gt_bench.training.failures import TimedOut
from gt_bench.training.interfaces import Batches
from gt_bench.training.loader import seed_of
from gt_bench.training.trainer import Run
from gt_models.batch import GraphBatch
from gt_models.encodings import compute

# relative to the largest absolute entry of all embeddings
TOLERANCE = 1e-10
CURVES = ("distinguished", "gap", "noise")


class IsomorphismRun(Run):
    """As many draws of the weights as the recipe has epochs, the first as the model begins, the others wide (`widen`), each one entry of the
    curves; a pair is distinguished if one draw does it.

    Curves besides the loop's: `distinguished` (pairs by this draw or an earlier one), `gap` (largest difference of two embeddings), `noise`
    (largest change by relabelling); both relative to the largest absolute entry.
    """

    stops_between_epochs = False

    def __init__(self, recipe: Any, task: Task, loader: Batches, *others: Any, **named: Any):
        super().__init__(recipe, task, loader, *others, **named)
        if recipe.precision != "float64":
            raise ValueError("the task isomorphism compares embeddings: set precision: float64")
        self.outcome.curves |= {name: [] for name in CURVES}

    @staticmethod
    def seconds(recipe: Any, stretches: Mapping[str, Sequence[float]]) -> float:
        """See `Task.runner`. Two draws of the weights are timed; the first warms up."""
        first, usual = stretches["eval"]
        return first + (recipe.total_epochs - 1) * usual

    def _train(self) -> None:
        # unstated: no paper prints a protocol for sr25. The usual one trains a classifier of the 15 graphs; this asks the same untrained
        packed, size = self.loader.packed, self.recipe.batch.graphs
        parts = torch.arange(packed.num_graphs).split(size or packed.num_graphs)
        rng = torch.Generator().manual_seed(seed_of("relabelling", self.seed))
        batches = [packed.batch(part) for part in parts]
        relabelled = [relabel(batch, rng) for batch in batches]
        batches, relabelled = (
            [self._encoded(b, part) for b, part in zip(some, parts, strict=True)] for some in (batches, relabelled)
        )
        self.found = torch.zeros(packed.num_graphs, packed.num_graphs, dtype=torch.bool)
        total = self.recipe.total_epochs
        # a draw takes as long as two forward passes: a run that was stopped begins again
        while self.epoch < total:
            torch.manual_seed(seed_of("init", self.seed, self.epoch))
            with self.meter.timing("eval"):
                model = self.build().to(self.device, self.loader.dtype)
                if self.epoch:  # a model that wide weights make chaotic still has its own, and one whose own are small the wide ones
                    widen(model)
                apart, gap, noise = compare(model, batches, relabelled)
            self.outcome.parameters = sum(p.numel() for p in model.parameters())
            self.found |= apart
            values = {
                "epoch": self.epoch + 1, "lr": 0.0, "train_loss": None, "val_loss": None, "val": None,
                "distinguished": pairs(self.found), "gap": gap, "noise": noise,
            }  # fmt: skip
            for name, value in values.items():
                self.outcome.curves[name].append(value)
            if self.on_epoch:
                self.on_epoch(self.epoch, {k: v for k, v in values.items() if v is not None and k != "epoch"})
            if self.time_limit is not None and self.meter.totals["eval"] > self.time_limit and self.epoch < total:
                raise TimedOut(f"{self.epoch} of {total} draws took longer than the limit of {self.time_limit:.0f} s")

    def _encoded(self, batch: GraphBatch, graphs: Tensor) -> GraphBatch:
        """With its encodings computed now, since the stored ones have float32's rounding, which sines of high frequency make large."""
        batch = batch.to(self.device, torch.float64)
        for name, arguments in self.recipe.encodings.items():
            batch.encodings |= compute(name, batch, graphs=graphs, dtype=torch.float64, **arguments)
        return batch

    def _test(self) -> None:
        count, graphs = pairs(self.found), len(self.found)
        self.outcome.test_metrics = {
            "pairs-distinguished": count,
            "accuracy": count / (graphs * (graphs - 1) / 2),
            "noise": min(self.outcome.curves["noise"]),
        }
        self.outcome.test = self.outcome.test_metrics[self.task.metric]


@torch.no_grad()
def compare(model: nn.Module, batches: list[GraphBatch], relabelled: list[GraphBatch]) -> tuple[Tensor, float, float]:
    """(which pairs are apart [B, B], largest relative difference of two embeddings, largest relative change by relabelling)."""
    model.eval()
    first, second = (
        torch.cat([model(batch) for batch in graphs]).double().cpu() for graphs in (batches, relabelled)
    )  # [B, d]
    scale = float(first.abs().max())
    if not math.isfinite(scale) or scale == 0.0:
        return torch.zeros(len(first), len(first), dtype=torch.bool), 0.0, 0.0
    difference = (first[:, None] - first[None]).abs().amax(-1) / scale  # [B, B]
    noise = float((first - second).abs().max()) / scale
    return difference > max(TOLERANCE, 10 * noise), float(difference.max()), noise


def widen(model: nn.Module) -> None:
    """Draws every parameter anew, matrices N(0, 1 / fan-in), vectors N(0, 1/4): the small initial weights of some models would leave less of a
    difference than rounding does."""
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5 if parameter.dim() < 2 else parameter.size(-1) ** -0.5)


def relabel(batch: GraphBatch, rng: torch.Generator) -> GraphBatch:
    """The same graphs with their nodes in another order, without encodings."""
    new = torch.cat(
        [
            a + torch.randperm(b - a, generator=rng)
            for a, b in zip(batch.ptr[:-1].tolist(), batch.ptr[1:].tolist(), strict=True)
        ]
    )
    place = torch.empty_like(new).index_copy(
        0, new, torch.arange(len(new))
    )  # new[i] is the old node that comes to place i
    return GraphBatch(batch.x[new], place[batch.edge_index], batch.ptr, batch.edge_attr, batch.y)


def pairs(apart: Tensor) -> int:
    """Pairs of a symmetric relation [B, B]."""
    return int(apart.triu(1).sum())


class Isomorphism(Task):
    """Metric pairs-distinguished. Nothing is trained and nothing validates."""

    default_loss = "none"
    losses: Mapping[str, Any] = {"none": None}
    directions: Mapping[str, str] = {"pairs-distinguished": "max"}
    runner = IsomorphismRun


TASK = Isomorphism
