"""Regression targets in units of their spread: a dataset whose targets have mean 0 and deviation 1, column by column."""

from typing import Any, Literal

import torch
from torch import Tensor

from gt_bench.training.interfaces import Packed
from gt_models.batch import GraphBatch


class StandardisedTargets:
    """The face of `PackedDataset`, with y - mean over deviation (unbiased; unlabelled entries do not count) in place of y.

    Args:
        packed: a dataset of a regression.
        statistics: of the training part of split `split` ("train"), or of all graphs ("all"): a leak from the test part, for protocols
            that were published so.

    Raises ValueError for targets that are classes, and for a target that never varies.
    """

    def __init__(self, packed: Packed, statistics: Literal["train", "all"], split: int):
        if not packed.header.task.endswith("-regression"):
            raise ValueError(
                f"targets are standardised for a regression; {packed.header.name!r} is {packed.header.task}"
            )
        self._packed = packed
        train = packed.split("train", split) if statistics == "train" else None
        of_nodes = packed.header.split_kind == "node"
        graphs = torch.arange(packed.num_graphs) if train is None or of_nodes else train
        y = torch.cat([_rows(packed.batch(part)) for part in graphs.split(10_000)])  # [rows, T]
        y = y[train] if train is not None and of_nodes else y
        known = ~y.isnan()
        count = known.sum(0)
        self.mean = y.nansum(0) / count
        self.deviation = (((y - self.mean) ** 2).nansum(0) / (count - 1)).sqrt()
        if constant := (~(self.deviation > 0)).nonzero().flatten().tolist():
            of = f"the train part of split {split}" if statistics == "train" else "all parts"
            raise ValueError(
                f"target {constant[0] + 1} of {packed.header.name!r} never varies in {of}: it cannot be standardised; take it out, or train on the data's own "
                "unit: targets: null (--set targets=null)"
            )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._packed, name)

    def batch(self, graphs: Tensor) -> GraphBatch:
        """As PackedDataset.batch."""
        batch = self._packed.batch(graphs)
        y = (_rows(batch) - self.mean) / self.deviation
        dtype = batch.y.dtype if batch.y.is_floating_point() else torch.float32  # type: ignore[union-attr]
        batch.y = y.view_as(batch.y).to(dtype)  # type: ignore[arg-type]
        return batch


def _rows(batch: GraphBatch) -> Tensor:
    """Targets of a graph or node each, float64 [rows, T]."""
    assert batch.y is not None  # packed data of a regression have them
    return batch.y.double().view(len(batch.y), -1)
