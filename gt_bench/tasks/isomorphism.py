"""Pairs of non-isomorphic graphs that a model distinguishes with random weights (sr25: 15 graphs, 105 pairs).

Nothing is trained: if the embeddings of two graphs are equal for random weights, they are equal for all weights up to a
set of measure zero. A pair counts as distinguished if its embeddings differ by more than a tolerance, and by more than
ten times the change that a relabelling of the nodes causes (rounding, or a model or an encoding that is not invariant).
All numbers, encodings included, are float64.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from gt_bench.config.schema import RecipeError
from gt_bench.tasks.base import Task
from gt_bench.training.checkpoint import with_plain_state
from gt_bench.training.failures import TimedOut
from gt_bench.training.loader import seed_of
from gt_bench.training.runner import Runner
from gt_models.batch import GraphBatch

if TYPE_CHECKING:
    from gt_bench.config.recipe import Recipe
from gt_models.encodings import compute

# relative to the largest absolute entry of all embeddings
TOLERANCE = 1e-10
CURVES = ("distinguished", "gap", "noise")


class IsomorphismRun(Runner):
    """Draws random weights once per epoch of the recipe and compares embeddings.

    The first draw is the model's own initialisation, the others are wider (`widen`). A pair is distinguished if any
    draw distinguishes it.

    Additional curves: `distinguished` (number of pairs distinguished so far), `gap` (largest difference of two
    embeddings), `noise` (largest change by relabelling). The last two are relative to the largest absolute entry.

    Raises:
        RecipeError: the recipe does not have `precision: float64`.
    """

    stops_between_epochs = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.recipe.precision != "float64":
            raise RecipeError("the task isomorphism requires float64", place="precision", value=self.recipe.precision)
        self.outcome.curves |= {name: [] for name in CURVES}

    @staticmethod
    def seconds(recipe: "Recipe", durations: Mapping[str, Sequence[float]]) -> float:
        """Estimates the duration of a run from two draws; see `Task.runner`. The first draw is a warm-up."""
        first, usual = durations["eval"]
        return first + (recipe.total_epochs - 1) * usual

    def _train(self) -> None:
        # unstated: no paper prints a protocol for sr25. The usual one trains a classifier of the 15 graphs; here, the
        # embeddings of models with random weights are compared
        packed, size = self.loader.packed, self.recipe.batch.graphs
        parts = torch.arange(packed.num_graphs).split(size or packed.num_graphs)
        rng = torch.Generator().manual_seed(seed_of("relabelling", self.seed))
        batches = [packed.batch(part) for part in parts]
        relabelled = [relabel(batch, rng) for batch in batches]
        batches, relabelled = (
            [self._encode(b, part) for b, part in zip(some, parts, strict=True)] for some in (batches, relabelled)
        )
        self.found = torch.zeros(packed.num_graphs, packed.num_graphs, dtype=torch.bool)
        total = self.recipe.total_epochs
        # without checkpoints: a draw takes as long as two forward passes
        while self.epoch < total:
            torch.manual_seed(seed_of("init", self.seed, self.epoch))
            with self.meter.timing("eval"):
                model = with_plain_state(self.build()).to(self.device, self.loader.dtype)
                if self.epoch:  # the first draw helps models that wide weights make chaotic
                    widen(model)
                apart, gap, noise = compare(model, batches, relabelled)
            self.outcome.parameters = sum(p.numel() for p in model.parameters())
            self.found |= apart
            self._report({
                "epoch": self.epoch + 1, "lr": 0.0, "train_loss": None, "val_loss": None, "val": None,
                "distinguished": pairs(self.found), "gap": gap, "noise": noise,
            })  # fmt: skip
            if self.epoch < total and self._over_time():
                raise TimedOut(f"{self.epoch} of {total} draws took longer than the limit of {self.time_limit:.0f} s")

    def _encode(self, batch: GraphBatch, graphs: Tensor) -> GraphBatch:
        """Computes encodings in float64. Stored ones are float32, whose rounding high-frequency sines would amplify."""
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
    """Compares the embeddings of all pairs of graphs.

    Args:
        model: the model; its output is [graphs, d].
        batches: B graphs in batches.
        relabelled: the same graphs with their nodes in another order.

    Returns:
        Which pairs are distinguished, bool [B, B]; the largest relative difference of two embeddings; the largest
        relative change by relabelling.
    """
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
    """Draws every parameter again: matrices from N(0, 1 / fan-in), vectors from N(0, 1/4).

    With the small initial weights of some models, differences would be smaller than rounding.
    """
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5 if parameter.dim() < 2 else parameter.size(-1) ** -0.5)


def relabel(batch: GraphBatch, rng: torch.Generator) -> GraphBatch:
    """Returns the same graphs with their nodes in random order, without encodings."""
    new = torch.cat(
        [
            a + torch.randperm(b - a, generator=rng)
            for a, b in zip(batch.ptr[:-1].tolist(), batch.ptr[1:].tolist(), strict=True)
        ]
    )
    position = torch.empty_like(new).index_copy(0, new, torch.arange(len(new)))  # new[i]: old index of the i-th node
    return GraphBatch(batch.x[new], position[batch.edge_index], batch.ptr, batch.edge_attr, batch.y)


def pairs(apart: Tensor) -> int:
    """Returns the number of pairs in a symmetric relation, bool [B, B]."""
    return int(apart.triu(1).sum())


class Isomorphism(Task):
    """The number of distinguished pairs. `IsomorphismRun` implements the protocol, which has no training."""

    default_loss = "none"
    losses: Mapping[str, Any] = {"none": None}
    directions: Mapping[str, str] = {"pairs-distinguished": "max"}
    runner = IsomorphismRun
