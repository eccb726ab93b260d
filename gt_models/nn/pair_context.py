"""Ordered pairs of a batch: where edges and nodes lie among them, and degrees; built once a forward."""

from typing import Literal

import torch
from torch import Tensor

from gt_models.batch import GraphBatch
from gt_models.nn.cached import cached_property


class PairContext:
    """All ordered pairs of each graph, P = sum n_b^2, row-major within a graph.

    An edge belongs to the pair whose query is its source and whose key is its target; with `query_end` "target" the other way round.

    Attributes:
        query, key: nodes of each pair, long [P].
        edge_rows: pair of each edge, long [E].
        diagonal: pair (i, i) of each node, long [N].
    """

    def __init__(self, batch: GraphBatch, query_end: Literal["source", "target"] = "source"):
        self.batch = batch
        self.query, self.key = batch.pair_nodes
        row = batch.pair_ptr[batch.batch] + batch.local * batch.sizes[batch.batch]  # first pair of each node's row, [N]
        first, second = batch.edge_index if query_end == "source" else batch.edge_index.flip(0)
        self.edge_rows, self.diagonal = row[first] + batch.local[second], row + batch.local

    @cached_property
    def degree(self) -> Tensor:
        """Edges that leave each node, as the random walk counts them (a self-loop once), float [N]."""
        ones = torch.ones(self.batch.num_edges, device=self.batch.ptr.device)
        return ones.new_zeros(self.batch.num_nodes).index_add(0, self.batch.edge_index[0], ones)

    @cached_property
    def num_neighbours(self) -> Tensor:
        """Nodes that an edge joins to each node, either way (a self-loop to itself), float [N]."""
        nodes = self.batch.num_nodes
        first, second = torch.cat([self.batch.edge_index, self.batch.edge_index.flip(0)], 1)
        return torch.bincount((first * nodes + second).unique() // max(1, nodes), minlength=nodes).float()
