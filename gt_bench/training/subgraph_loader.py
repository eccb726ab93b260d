"""Node2Subgraph (PPGT, Appendix B.4): the nodes of one large graph as a dataset of small graphs, one around each node."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from gt_bench.training.interfaces import Encoded, Packed
from gt_bench.training.loader import joined, seed_of
from gt_models.batch import GraphBatch
from gt_models.encodings import compute
from gt_models.nn.subgraphs import Subgraphs


class SubgraphLoader:
    """The face of `Loader`, for a dataset with node splits. A node's subgraph depends on the run's seed and on the node alone: it is the
    same in all epochs, and is kept once it was drawn.

    Args:
        packed, split, section, seed, device, dtype: as for `Loader`; `section.graphs` subgraphs make a step.
        subgraphs: the recipe's `subgraphs:`. encodings: the recipe's `encodings:`, computed on the subgraphs of each batch.
    """

    def __init__(
        self,
        packed: Packed,
        encoded: Encoded,
        split: int,
        section: Any,
        seed: int,
        device: torch.device,
        dtype: torch.dtype,
        *,
        subgraphs: Any,
        encodings: dict[str, dict[str, Any]],
    ):
        if packed.header.split_kind != "node":
            raise ValueError(
                f"subgraphs are for one large graph split by nodes; {packed.header.name!r} is split by {packed.header.split_kind}"
            )
        self.packed, self.section, self.encodings = packed, section, encodings
        self.seed, self.device, self.dtype = seed, device, dtype
        self.ids = {part: packed.split(part, split) for part in ("train", "val", "test")}
        self.by_node = False
        self.subgraphs = Subgraphs(
            packed.batch(torch.arange(packed.num_graphs)), subgraphs.hops, subgraphs.max_nodes, seed
        )

    def training(self, epoch: int) -> Iterator[tuple[GraphBatch, Tensor | None]]:
        """Batches of training epoch `epoch` in random order."""
        ids = self.ids["train"]
        order = torch.randperm(len(ids), generator=torch.Generator().manual_seed(seed_of("batches", self.seed, epoch)))
        for targets in self._steps(ids[order]):
            yield self.load(targets), None

    def _steps(self, ids: Tensor) -> list[Tensor]:
        batches = ids.split(self.section.graphs)
        return joined(batches) if self.section.last is None else list(batches)

    def evaluation(self, part: str) -> Iterator[tuple[GraphBatch, Tensor | None]]:
        """Batches of "train", "val" or "test" in fixed order."""
        for targets in self.ids[part].split(self.section.graphs):
            yield self.load(targets), None

    @property
    def steps_per_epoch(self) -> int:
        """Optimiser steps of an epoch."""
        return len(self._steps(self.ids["train"]))

    def num_batches(self, part: str) -> int:
        """Batches of `part`."""
        return -(-len(self.ids[part]) // self.section.graphs)

    def load(self, targets: Tensor) -> GraphBatch:
        """The subgraphs around these nodes with their encodings, `y` the nodes' own."""
        batch = self.subgraphs.around(targets).to(self.device)
        for name, arguments in self.encodings.items():
            batch.encodings |= compute(name, batch, graphs=targets, **arguments)
        return batch.to(self.device, self.dtype)
