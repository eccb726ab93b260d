"""Sampled neighbourhoods of nodes of one large graph, as GraphSAGE trains (Hamilton et al. 2017, Algorithm 2).

torch_geometric's NeighborLoader draws the same subgraphs, but needs pyg-lib or torch-sparse.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from gt_bench.data.readers import distinct
from gt_models.batch import GraphBatch


class NeighborSampler:
    """Draws subgraphs around nodes of a graph.

    Args:
        batch: one or more graphs, on any device.
    """

    def __init__(self, batch: GraphBatch):
        self.batch = batch
        self.source, target = batch.edge_index.cpu().numpy()
        self.incoming = np.argsort(target, kind="stable")  # edges, sorted by their target
        self.ptr = np.concatenate([[0], np.bincount(target, minlength=batch.num_nodes).cumsum()])

    def around(self, targets: Tensor, neighbors: Sequence[int], rng: np.random.Generator) -> GraphBatch:
        """Returns the sampled subgraph around nodes, as one graph.

        Its first nodes are the targets, in their order. Each node that hop h reached gets up to `neighbors[h]` of its
        incoming edges, drawn without replacement. Only drawn edges are in the subgraph.

        Args:
            targets: rows of different nodes, long [n].
            neighbors: largest number of drawn edges per node of each hop.
            rng: random numbers.
        """
        frontier = targets.cpu().numpy()
        position = np.full(self.batch.num_nodes, -1)
        nodes, edges, count = [frontier], [], 0
        for limit in (*neighbors, 0):
            position[frontier] = np.arange(count, count + len(frontier))
            count += len(frontier)
            edges.append(self._drawn(frontier, limit, rng))
            reached = distinct(self.source[edges[-1]])
            frontier = reached[position[reached] < 0]
            nodes.append(frontier)
        device = self.batch.x.device
        kept = torch.from_numpy(np.sort(np.concatenate(edges))).to(device)  # in the order of the graph
        rows, places = (torch.from_numpy(array).to(device) for array in (np.concatenate(nodes), position))
        batch = self.batch
        return GraphBatch(
            batch.x[rows],
            places[batch.edge_index[:, kept]],
            torch.tensor([0, len(rows)], device=device),
            None if batch.edge_attr is None else batch.edge_attr[kept],
            None if batch.y is None else batch.y[rows],
            {name: value[rows] for name, value in batch.encodings.items()},
        )

    def _drawn(self, nodes: np.ndarray, limit: int, rng: np.random.Generator) -> np.ndarray:
        """Return up to `limit` incoming edges of each node: those with the smallest of uniform random numbers."""
        degrees = self.ptr[nodes + 1] - self.ptr[nodes]
        starts = degrees.cumsum() - degrees
        owner = np.repeat(np.arange(len(nodes)), degrees)
        places = np.arange(len(owner)) - np.repeat(starts - self.ptr[nodes], degrees)
        order = np.lexsort((rng.random(len(owner)), owner))
        rank = np.arange(len(owner)) - np.repeat(starts, degrees)  # in `order`, within each node
        return self.incoming[places[order[rank < limit]]]
