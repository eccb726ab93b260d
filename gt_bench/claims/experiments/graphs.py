"""Graphs that findings share, by adjacency matrices [n, n] in float64, and their relabelled copies."""

import torch
from torch import Tensor

from gt_models.batch import GraphBatch


def from_edges(n: int, edges: list[tuple[int, int]]) -> Tensor:
    """Undirected."""
    adjacency = torch.zeros(n, n, dtype=torch.float64)
    for i, j in edges:
        adjacency[i, j] = adjacency[j, i] = 1
    return adjacency


def circular_skip_link(n: int, skip: int) -> Tensor:
    """A cycle of n nodes with chords over `skip` of them (CSL; Murphy et al. 2019)."""
    return from_edges(n, [(i, (i + step) % n) for i in range(n) for step in (1, skip)])


def decalin() -> Tensor:
    """Two rings of six that share a bond."""
    return from_edges(10, [*((i, (i + 1) % 10) for i in range(10)), (0, 5)])


def bicyclopentyl() -> Tensor:
    """Two rings of five, joined by a bond."""
    return from_edges(10, [*((5 * r + i, 5 * r + (i + 1) % 5) for r in (0, 1) for i in range(5)), (0, 5)])


def relabelled(adjacency: Tensor, seed: int) -> Tensor:
    """The same graph with its nodes permuted."""
    order = torch.randperm(len(adjacency), generator=torch.Generator().manual_seed(seed))
    return adjacency[order][:, order]


def as_batch(adjacency: Tensor, features: int = 1) -> GraphBatch:
    """One graph whose nodes all have `features` ones in float64."""
    n = len(adjacency)
    return GraphBatch(
        torch.ones(n, features, dtype=torch.float64), adjacency.nonzero().T.contiguous(), torch.tensor([0, n])
    )


def sorted_rows(x: Tensor) -> Tensor:
    """The rows of [n, d] as a multiset: ordered by their entries, of which those that differ by rounding count as equal."""
    keys = (x / x.abs().max().clamp(min=1e-300) * 1e8).round()
    order = sorted(range(len(x)), key=lambda i: keys[i].tolist())
    return x[order]
