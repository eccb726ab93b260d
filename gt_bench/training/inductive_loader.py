"""Inductive batches of nodes: training sees neither the nodes of validation and test nor the edges that they have.

Validation sees the nodes of training and validation, test sees all. Nodes in no part appear as the table "seen" of the
dataset states. Encodings are computed on what a part sees: those of the whole graph would describe invisible edges.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import LongTensor, Tensor

from gt_bench.data.packed import PARTS, SEEN
from gt_bench.training.interfaces import SplitData
from gt_bench.training.loader import Loader
from gt_models.batch import GraphBatch
from gt_models.encodings import compute


class InductiveLoader(Loader):
    """A loader for one split of nodes, in which each part has its own graph.

    Args:
        data: a split of a dataset with the table "seen". Its encodings are not used: they are computed on the graph of
            each part.
        encodings: `encodings:` of the recipe.
    """

    def __init__(self, data: SplitData, *, encodings: dict[str, dict[str, Any]]):
        super().__init__(data)
        self.encodings = encodings
        self.seen = data.packed.array(SEEN)[data.split]
        self._graphs: dict[str, GraphBatch] = {}
        self.ids_in_part = {part: self._positions(part)[ids] for part, ids in self.ids.items()}

    def on(self, device: torch.device) -> "InductiveLoader":
        """Returns the same batches on another device."""
        other = super().on(device)
        assert isinstance(other, InductiveLoader)  # a copy of this one
        other._graphs = {}
        return other

    @property
    def whole(self) -> GraphBatch:
        """The graph that training sees."""
        return self.graph("train")

    def rows(self, part: str) -> LongTensor:
        """Returns the rows of the nodes of a part in `graph(part)`, long [n]."""
        return self.ids_in_part[part]  # type: ignore[return-value]

    def graph(self, part: str) -> GraphBatch:
        """Returns the graph that a part sees, with encodings, on the device. Computed on first use."""
        if part not in self._graphs:
            graphs, seen = torch.arange(self.packed.num_graphs), self.seen <= PARTS[part]
            batch = visible(self.packed.batch(graphs), seen)
            ids = graphs.repeat_interleave(self.packed.sizes)[seen].unique()
            for name, arguments in self.encodings.items():
                batch.encodings |= compute(name, batch, graphs=ids, **arguments)
            self._graphs[part] = batch.to(self.device, self.dtype)
        return self._graphs[part]

    def evaluation(self, part: str) -> Iterator[tuple[GraphBatch, Tensor | None]]:
        """Yields the graph that a part (train, val, test) sees."""
        yield self.graph(part), self.rows(part).to(self.device)

    def _positions(self, part: str) -> Tensor:
        """Returns the row of each node in `graph(part)`, long [N]; wrong for nodes that it does not see."""
        return (self.seen <= PARTS[part]).long().cumsum(0) - 1


def visible(batch: GraphBatch, seen: Tensor) -> GraphBatch:
    """Returns the part of a batch that some nodes induce; graphs without any of them are left out.

    Args:
        batch: one or more graphs without encodings.
        seen: which nodes, bool [N].
    """
    position = seen.long().cumsum(0) - 1
    kept = seen[batch.edge_index].all(0)
    counts = torch.stack([part.sum() for part in seen.split(batch.ptr.diff().tolist())])
    return GraphBatch(
        batch.x[seen],
        position[batch.edge_index[:, kept]],
        torch.cat([counts.new_zeros(1), counts[counts > 0].cumsum(0)]),
        None if batch.edge_attr is None else batch.edge_attr[kept],
        None if batch.y is None else batch.y[seen],
    )
