"""Batches of subgraphs around the nodes of one large graph: Node2Subgraph (PPGT, Appendix B.4)."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import LongTensor, Tensor

from gt_bench.training.interfaces import SplitData
from gt_bench.training.loader import joined, seed_of
from gt_models.batch import GraphBatch
from gt_models.encodings import compute
from gt_models.layers.subgraphs import Subgraphs


class SubgraphLoader:
    """A loader with the interface of `Loader`, for datasets with node splits.

    The subgraph of a node depends only on the seed of the run and the node. It is the same in all epochs and is cached.

    Args:
        data: a split of a dataset. A batch has `section.graphs` subgraphs. Its encodings are not used: they are
            computed on the subgraphs.
        subgraphs: `subgraphs:` of the recipe.
        encodings: `encodings:` of the recipe, computed on the subgraphs of each batch.

    Raises:
        ValueError: the dataset is not split by nodes.
    """

    def __init__(self, data: SplitData, *, subgraphs: Any, encodings: dict[str, dict[str, Any]]):
        packed = data.packed
        if packed.header.split_kind != "node":
            raise ValueError(
                f"subgraphs: requires one large graph split by nodes; {packed.header.name!r} is split by "
                f"{packed.header.split_kind}"
            )
        self.packed, self.section, self.encodings = packed, data.section, encodings
        self.seed, self.device, self.dtype = data.seed, data.device, data.dtype
        self.ids = {part: packed.split(part, data.split) for part in ("train", "val", "test")}
        self.by_node = False
        self.subgraphs = Subgraphs(
            packed.batch(torch.arange(packed.num_graphs)), subgraphs.hops, subgraphs.max_nodes, data.seed
        )

    def training(self, epoch: int) -> Iterator[tuple[GraphBatch, Tensor | None]]:
        """Yields the batches of a training epoch in random order."""
        ids = self.ids["train"]
        order = torch.randperm(len(ids), generator=torch.Generator().manual_seed(seed_of("batches", self.seed, epoch)))
        for targets in self._steps(ids[order]):
            yield self.load(targets), None

    def _steps(self, ids: Tensor) -> list[Tensor]:
        batches = ids.split(self.section.graphs)
        return joined(batches) if self.section.last is None else list(batches)

    def evaluation(self, part: str) -> Iterator[tuple[GraphBatch, Tensor | None]]:
        """Yields the batches of a part (train, val, test) in fixed order."""
        for targets in self.ids[part].split(self.section.graphs):
            yield self.load(targets), None

    def order(self, part: str) -> LongTensor:
        """Returns the ids of the nodes of a part in the order of `evaluation`, long [N]."""
        return self.ids[part]

    @property
    def steps_per_epoch(self) -> int:
        """Number of optimiser steps per epoch."""
        return len(self._steps(self.ids["train"]))

    def num_batches(self, part: str) -> int:
        """Returns the number of batches of a part in evaluation."""
        return -(-len(self.ids[part]) // self.section.graphs)

    def load(self, targets: Tensor) -> GraphBatch:
        """Returns the subgraphs around these nodes, with encodings. `y` has the targets of the nodes."""
        batch = self.subgraphs.around(targets).to(self.device)
        for name, arguments in self.encodings.items():
            batch.encodings |= compute(name, batch, graphs=targets, **arguments)
        return batch.to(self.device, self.dtype)
