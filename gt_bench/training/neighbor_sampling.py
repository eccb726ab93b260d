"""Sampled neighbourhoods of nodes of one large graph, as GraphSAGE trains (Hamilton et al. 2017, Algorithm 2).

torch_geometric's NeighborLoader draws the same subgraphs, but needs pyg-lib or torch-sparse.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from gt_bench.data.readers import distinct
from gt_models.batch import GraphBatch


def by_graph(batch: GraphBatch, nodes: Tensor) -> tuple[Tensor, Tensor]:
    """Sorts nodes by their graph, so that a part of several graphs is a batch of several graphs.

    Args:
        batch: one or more graphs.
        nodes: rows of different nodes, long [n].

    Returns:
        The rows, in their order within a graph, and the offsets of the graphs that have any of them, long [B + 1].
    """
    if batch.num_graphs == 1:
        return nodes, torch.tensor([0, len(nodes)], device=nodes.device)
    nodes = nodes[batch.batch[nodes].argsort(stable=True)]
    counts = batch.batch[nodes].bincount()
    return nodes, torch.cat([counts.new_zeros(1), counts[counts > 0].cumsum(0)])


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

    def around(self, targets: Tensor, neighbors: Sequence[int], rng: np.random.Generator) -> tuple[GraphBatch, Tensor]:
        """Returns the sampled subgraph around nodes of each graph, and the rows of `targets` in it, long [n].

        Each node that hop h reached gets up to `neighbors[h]` of its incoming edges, drawn without replacement. Only
        drawn edges are in the subgraph.

        Args:
            targets: rows of different nodes, long [n].
            neighbors: largest number of drawn edges per node of each hop.
            rng: random numbers.
        """
        frontier = targets.cpu().numpy()
        visited = np.zeros(self.batch.num_nodes, dtype=bool)
        nodes, edges = [frontier], []
        for limit in (*neighbors, 0):
            visited[frontier] = True
            edges.append(self._drawn(frontier, limit, rng))
            reached = distinct(self.source[edges[-1]])
            frontier = reached[~visited[reached]]
            nodes.append(frontier)
        device = self.batch.x.device
        kept = torch.from_numpy(np.sort(np.concatenate(edges))).to(device)  # in the order of the graph
        batch = self.batch
        rows, ptr = by_graph(batch, torch.from_numpy(np.concatenate(nodes)).to(device))
        places = torch.full((batch.num_nodes,), -1, device=device)
        places[rows] = torch.arange(len(rows), device=device)
        part = GraphBatch(
            batch.x[rows],
            places[batch.edge_index[:, kept]],
            ptr,
            None if batch.edge_attr is None else batch.edge_attr[kept],
            None if batch.y is None else batch.y[rows],
            {name: value[rows] for name, value in batch.encodings.items()},
        )
        return part, places[targets.to(device)]

    def _drawn(self, nodes: np.ndarray, limit: int, rng: np.random.Generator) -> np.ndarray:
        """Return up to `limit` incoming edges of each node: those with the smallest of uniform random numbers."""
        degrees = self.ptr[nodes + 1] - self.ptr[nodes]
        starts = degrees.cumsum() - degrees
        owner = np.repeat(np.arange(len(nodes)), degrees)
        places = np.arange(len(owner)) - np.repeat(starts - self.ptr[nodes], degrees)
        order = np.lexsort((rng.random(len(owner)), owner))
        rank = np.arange(len(owner)) - np.repeat(starts, degrees)  # in `order`, within each node
        return self.incoming[places[order[rank < limit]]]
