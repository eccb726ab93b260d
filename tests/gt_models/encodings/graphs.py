"""Graphs with known spectra, as GraphBatch."""

import networkx as nx
import torch

from gt_models import GraphBatch


def of_networkx(graph: nx.Graph) -> GraphBatch:
    """Nodes in the graph's own order; both directions of an undirected edge."""
    place = {node: i for i, node in enumerate(graph.nodes)}
    edges = torch.tensor([(place[u], place[v]) for u, v in graph.edges], dtype=torch.long).reshape(-1, 2).T
    if not graph.is_directed():
        edges = torch.cat([edges, edges.flip(0)[:, edges[0] != edges[1]]], 1)
    return GraphBatch(torch.ones(len(place), 1), edges, torch.tensor([0, len(place)]))


def dense(batch: GraphBatch) -> torch.Tensor:
    """Binary adjacency of one graph, float64 [n, n]."""
    out = torch.zeros(batch.num_nodes, batch.num_nodes, dtype=torch.float64)
    out[batch.edge_index[0], batch.edge_index[1]] = 1
    return out
