"""Graphs of a batch as dense blocks of similar size, for batched matrix operations."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from gt_models.batch import GraphBatch


@dataclass
class Block:
    """G graphs padded to n nodes.

    Attributes:
        batch: the batch that contains them.
        graphs: their numbers in it, long [G].
        n: nodes of the largest.
        edges: numbers of their edges in the batch, long [E'].
        full: True when all have exactly n nodes.
    """

    batch: GraphBatch
    graphs: Tensor
    n: int
    edges: Tensor
    full: bool

    @property
    def mask(self) -> Tensor:
        """True at real nodes, bool [G, n]."""
        return torch.arange(self.n, device=self.graphs.device)[None] < self.batch.sizes[self.graphs, None]

    def adjacency(self, dtype: torch.dtype) -> Tensor:
        """[G, n, n], 1 at (source, target) of each edge. Repeated edges count once; self-loops are on the diagonal."""
        source, target = self.batch.edge_index[:, self.edges]
        place = torch.zeros(self.batch.num_graphs, dtype=torch.long, device=source.device)
        place[self.graphs] = torch.arange(len(self.graphs), device=source.device)
        rows = place[self.batch.batch[source]] * self.n + self.batch.local[source]
        out = torch.zeros(len(self.graphs) * self.n * self.n, dtype=dtype, device=source.device)
        out[rows * self.n + self.batch.local[target]] = 1
        return out.view(-1, self.n, self.n)

    def node_rows(self) -> Tensor:
        """Rows of the real nodes in per-node arrays, long [sum n_g], in the order of `mask`."""
        rows = self.batch.ptr[self.graphs, None] + torch.arange(self.n, device=self.graphs.device)
        return rows.flatten() if self.full else rows[self.mask]

    def put_nodes(self, out: Tensor, values: Tensor) -> None:
        """Writes padded [G, n, C] into the rows of `out` [N, C]."""
        flat = values.flatten(0, 1) if self.full else values[self.mask]
        out.index_copy_(0, self.node_rows(), flat.to(out.dtype))

    def put_pairs(self, out: Tensor, values: Tensor) -> None:
        """Writes padded [G, n, n, C] into the rows of `out` [sum n_b^2, C]."""
        start = self.batch.pair_ptr[self.graphs]
        if self.full and not out.is_cuda:
            # one strided copy per graph, straight from whatever layout `values` has: half the memory traffic of an
            # index
            rows = [out.narrow(0, at, self.n * self.n).view(self.n, self.n, -1) for at in start.tolist()]
            torch._foreach_copy_(rows, list(values.unbind()))
            return
        if self.full:
            rows = (start[:, None] + torch.arange(self.n * self.n, device=start.device)).flatten()
            out.index_copy_(0, rows, values.flatten(0, 2).to(out.dtype))
            return
        real = self.mask
        i = torch.arange(self.n, device=start.device)
        rows = start[:, None, None] + i[None, :, None] * self.batch.sizes[self.graphs, None, None] + i
        real = real[:, :, None] & real[:, None]
        out.index_copy_(0, rows[real], values[real].to(out.dtype))


def blocks(batch: GraphBatch, fill: float = 1.0, entries: int = 2**24) -> Iterator[Block]:
    """The non-empty graphs of `batch` in blocks, largest first.

    Args:
        batch: B graphs.
        fill: the smallest graph of a block has at least this share of the largest one's nodes; 1 means equal sizes, no
            padding.
        entries: bound on G n^2 of a block of more than one graph.
    """
    sizes, order = batch.sizes.cpu().sort(descending=True, stable=True)
    device = batch.ptr.device
    count = int((sizes > 0).sum())
    cuts, start = [], 0
    while start < count:
        n = int(sizes[start])
        # sizes fall, so the first one below the wanted share ends the block
        end = int(torch.searchsorted(-sizes[:count], -(fill * n - 1e-9), right=True))
        cuts.append((start, min(max(end, start + 1), start + max(1, entries // (n * n)))))
        start = cuts[-1][1]
    number = torch.zeros(batch.num_graphs, dtype=torch.long)
    for i, (start, end) in enumerate(cuts):
        number[order[start:end]] = i
    # edges sorted by block once, instead of searched for once per block
    of_edge = (
        number.to(device)[batch.batch[batch.edge_index[0]]]
        if batch.num_edges
        else torch.zeros(0, dtype=torch.long, device=device)
    )
    edges = of_edge.argsort(stable=True).split(torch.bincount(of_edge, minlength=len(cuts)).tolist()) if cuts else ()
    for (start, end), numbers in zip(cuts, edges, strict=True):
        yield Block(
            batch, order[start:end].to(device), int(sizes[start]), numbers, bool(sizes[start] == sizes[end - 1])
        )
