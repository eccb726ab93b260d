"""Standardised regression targets: each column has mean 0 and standard deviation 1."""

from typing import Any, Literal

import torch
from torch import Tensor

from gt_bench.training.interfaces import Packed
from gt_models.batch import GraphBatch


class StandardisedTargets:
    """A dataset with the interface of `PackedDataset` and (y - mean) / deviation as targets.

    The deviation is the unbiased estimate. Unlabelled entries (NaN) do not count.

    Args:
        packed: a regression dataset.
        statistics: "train" for mean and deviation of the training part. "all" for those of all graphs, which leaks
            information from the test part and is used only by protocols that were published this way.
        split: index of the split.

    Raises:
        ValueError: the dataset is not a regression, or a target is constant.
    """

    def __init__(self, packed: Packed, statistics: Literal["train", "all"], split: int):
        if not packed.header.task.endswith("-regression"):
            raise ValueError(
                f"targets: only regression targets can be standardised; {packed.header.name!r} is {packed.header.task}"
            )
        self._packed = packed
        train = packed.split("train", split) if statistics == "train" else None
        if packed.header.split_kind == "edge":
            y = _table(packed.array("y"))
        else:
            of_nodes = packed.header.split_kind == "node"
            graphs = torch.arange(packed.num_graphs) if train is None or of_nodes else train
            y = torch.cat([_table(packed.batch(part).y) for part in graphs.split(10_000)])  # [rows, T]
        y = y[train] if train is not None and packed.header.split_kind in ("node", "edge") else y
        known = ~y.isnan()
        count = known.sum(0)
        self.mean = y.nansum(0) / count
        self.deviation = (((y - self.mean) ** 2).nansum(0) / (count - 1)).sqrt()
        if constant := (~(self.deviation > 0)).nonzero().flatten().tolist():
            of = f"the train part of split {split}" if statistics == "train" else "all parts"
            raise ValueError(
                f"targets: target {constant[0] + 1} of {packed.header.name!r} is constant in {of} and cannot be "
                "standardised; remove it, or train on raw targets: targets: null (--set targets=null)"
            )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._packed, name)

    def batch(self, graphs: Tensor) -> GraphBatch:
        """Returns the graphs with these ids, with standardised targets."""
        batch = self._packed.batch(graphs)
        if batch.y is not None:  # targets of edges are not in a batch
            batch.y = self._standardised(batch.y)
        return batch

    def array(self, name: str) -> Tensor:
        """Returns a whole array by name; targets are standardised."""
        array = self._packed.array(name)
        return self._standardised(array) if name == "y" else array

    def _standardised(self, y: Tensor) -> Tensor:
        scaled = (_table(y) - self.mean) / self.deviation
        return scaled.view_as(y).to(y.dtype if y.is_floating_point() else torch.float32)


def _table(y: Tensor | None) -> Tensor:
    """Returns targets as float64 [rows, T], where a row is a graph, a node or an edge."""
    assert y is not None  # every regression dataset has targets
    return y.double().view(len(y), -1)
