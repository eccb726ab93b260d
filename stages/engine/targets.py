"""Regression targets in units of their spread: a dataset whose targets have mean 0 and deviation 1, column by column."""

from typing import Any, Literal

import torch
from torch import Tensor

from gt_models.batch import GraphBatch
from stages.engine.faces import Packed


class StandardisedTargets:
    """The face of `PackedDataset`, with y - mean over deviation (unbiased; unlabelled entries do not count) in place of y.

    Args:
        packed: a dataset with targets per graph.
        statistics: of the training graphs of split `split` ("train"), or of all graphs ("all"): a leak from the test part, for protocols
            that were published so.

    Raises ValueError for targets that are classes or per node, and for a target that never varies.
    """

    def __init__(self, packed: Packed, statistics: Literal["train", "all"], split: int):
        if packed.header.task != "graph-regression":
            raise ValueError(f"targets are standardised for graph-regression; {packed.header.name!r} is {packed.header.task}")
        self._packed = packed
        graphs = packed.split("train", split) if statistics == "train" else torch.arange(packed.num_graphs)
        y = torch.cat([_targets(packed.batch(part)).double().view(len(part), -1) for part in graphs.split(10_000)])  # [B, T]
        known = ~y.isnan()
        count = known.sum(0)
        self.mean = y.nansum(0) / count
        self.deviation = (((y - self.mean) ** 2).nansum(0) / (count - 1)).sqrt()
        if not bool((self.deviation > 0).all()):
            raise ValueError(f"a target of {packed.header.name!r} never varies: it cannot be standardised")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._packed, name)

    def batch(self, graphs: Tensor) -> GraphBatch:
        """As PackedDataset.batch."""
        batch = self._packed.batch(graphs)
        given = _targets(batch)
        y = (given.double().view(len(graphs), -1) - self.mean) / self.deviation
        batch.y = y.view(given.shape).to(given.dtype)
        return batch


def _targets(batch: GraphBatch) -> Tensor:
    assert batch.y is not None  # packed data of a regression have them
    return batch.y
