"""Small graphs that experiments share, as adjacency matrices [n, n] in float64, and relabelled copies."""

import torch
from torch import Tensor

from gt_models.batch import GraphBatch


def from_edges(n: int, edges: list[tuple[int, int]]) -> Tensor:
    """Returns the adjacency matrix of an undirected graph of n nodes."""
    adjacency = torch.zeros(n, n, dtype=torch.float64)
    for i, j in edges:
        adjacency[i, j] = adjacency[j, i] = 1
    return adjacency


def circular_skip_link(n: int, skip: int) -> Tensor:
    """Returns a cycle of n nodes with chords over `skip` of them (CSL; Murphy et al. 2019)."""
    return from_edges(n, [(i, (i + step) % n) for i in range(n) for step in (1, skip)])


def decalin() -> Tensor:
    """Returns two rings of six nodes that share an edge."""
    return from_edges(10, [*((i, (i + 1) % 10) for i in range(10)), (0, 5)])


def bicyclopentyl() -> Tensor:
    """Returns two rings of five nodes, joined by an edge."""
    return from_edges(10, [*((5 * r + i, 5 * r + (i + 1) % 5) for r in (0, 1) for i in range(5)), (0, 5)])


def relabelled(adjacency: Tensor, seed: int) -> Tensor:
    """Returns the same graph with permuted nodes."""
    order = torch.randperm(len(adjacency), generator=torch.Generator().manual_seed(seed))
    return adjacency[order][:, order]


def as_batch(adjacency: Tensor) -> GraphBatch:
    """Returns a batch of one graph whose nodes all have the feature 1 in float64."""
    n = len(adjacency)
    return GraphBatch(torch.ones(n, 1, dtype=torch.float64), adjacency.nonzero().T.contiguous(), torch.tensor([0, n]))


def sorted_rows(x: Tensor) -> Tensor:
    """Returns the rows of x [n, d] in lexicographic order. Entries that differ by rounding only count as equal."""
    keys = (x / x.abs().max().clamp(min=1e-300) * 1e8).round()
    order = sorted(range(len(x)), key=lambda i: keys[i].tolist())
    return x[order]
