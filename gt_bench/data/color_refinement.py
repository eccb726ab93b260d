"""Colour refinement on pairs of graphs, without training: which pairs can a method of a class tell apart at all?

A multiset {(a_w, b_w)} is hashed to sum_w f(a_w) g(b_w) with f, g random in a prime field, which is one matrix product (Schwartz-Zippel: two
unequal multisets meet with probability 2/p, and CHANNELS draws are made). So a pair that is told apart is different for certain, and one that is not is
equal but for chance below 1e-12.
"""

# mypy: disable-error-code="arg-type, assignment"

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

PRIME = 4_194_301  # below 2^22: products of two sum over 500 nodes exactly in float64
CHANNELS = 2
Adjacency = NDArray[np.float64]  # [n, n]
Colours = NDArray[np.int64]  # [n] of nodes, [n, n] of ordered pairs


def one_wl(first: Adjacency, second: Adjacency) -> bool:
    """Does 1-WL distinguish the graphs with adjacency matrices [n, n]?"""
    return gd_wl(first, second, lambda adjacency: adjacency.astype(np.int64))


def gd_wl(first: Adjacency, second: Adjacency, distance: Callable[[Adjacency], Colours]) -> bool:
    """By GD-WL (Zhang et al. 2023): a node's colour becomes the multiset of (distance, colour) over all nodes. `distance`: adjacency [n, n] to
    integers [n, n] or [n, n, k], equal where the distances are."""
    if first.shape != second.shape:
        return True
    labels = _joint([_flat(distance(graph)) for graph in (first, second)])
    colours = [np.diagonal(label).astype(np.int64) for label in labels]

    def refined(rng: np.random.Generator) -> list[Adjacency]:
        f, g = _field(labels, rng), _field(colours, rng)
        return [
            np.stack([(f[c][label] @ g[c][colour]) % PRIME for c in range(CHANNELS)], -1)
            for label, colour in zip(labels, colours, strict=True)
        ]

    return _told_apart(colours, refined)


def three_wl(first: Adjacency, second: Adjacency) -> bool:
    """By 3-WL, as 2-FWL (equally powerful): the colour of (u, v) becomes the multiset of (colour of (u, w), colour of (w, v)) over w."""
    if first.shape != second.shape:
        return True
    colours = [(graph + 2 * np.eye(len(graph))).astype(np.int64) for graph in (first, second)]

    def refined(rng: np.random.Generator) -> list[Adjacency]:
        f, g = _field(colours, rng), _field(colours, rng)
        return [np.stack([(f[c][colour] @ g[c][colour]) % PRIME for c in range(CHANNELS)], -1) for colour in colours]

    return _told_apart(colours, refined)


def shortest_paths(adjacency: Adjacency) -> Colours:
    """Hops [n, n]; -1 where there is no path."""
    from scipy.sparse.csgraph import shortest_path

    hops = shortest_path(np.ascontiguousarray(adjacency), unweighted=True)
    return np.where(np.isinf(hops), -1, hops).astype(np.int64)


def random_walks(steps: int) -> Callable[[Adjacency], Colours]:
    """RRWP: I, P, P^2, ... up to `steps` powers of P = D^-1 A, exact in a prime field, so that no rounding tells graphs apart."""

    def distance(adjacency: Adjacency) -> Colours:
        degrees = adjacency.sum(1).astype(np.int64)
        inverse = np.array([pow(int(d), -1, PRIME) if d else 0 for d in degrees], float)
        step = inverse[:, None] * adjacency
        powers = [np.eye(len(adjacency))]
        for _ in range(steps - 1):
            powers.append((powers[-1] @ step) % PRIME)
        return np.stack(powers, -1).astype(np.int64)

    return distance


def _told_apart(colours: list[Colours], refined: Callable[[np.random.Generator], list[Adjacency]]) -> bool:
    """Refines `colours` in place until they are stable, or their counts differ."""
    rng, kinds = np.random.default_rng(0), 0
    while True:
        both = [np.bincount(colour.ravel(), minlength=max(int(c.max()) for c in colours) + 1) for colour in colours]
        if not np.array_equal(*both):
            return True
        if np.count_nonzero(both[0]) == kinds:
            return False
        kinds = np.count_nonzero(both[0])
        # what a node or pair was is kept, so that colours only become finer
        colours[:] = _joint(
            [np.concatenate([c[..., None], r.astype(np.int64)], -1) for c, r in zip(colours, refined(rng), strict=True)]
        )


def _field(colours: list[Colours], rng: np.random.Generator) -> Adjacency:
    return rng.integers(1, PRIME, (CHANNELS, max(int(c.max()) for c in colours) + 1)).astype(float)


def _flat(labels: Colours) -> Colours:
    return labels if labels.ndim == 3 else labels[..., None]


def _joint(labels: list[Colours]) -> list[Colours]:
    """Rows [..., k] of both graphs numbered alike from 0: one word per row is hashed first, which sorts faster than rows."""
    rows = np.concatenate([label.reshape(-1, label.shape[-1]) for label in labels])
    _, number = np.unique(
        np.ascontiguousarray(rows).view([("", rows.dtype)] * rows.shape[1]).ravel(), return_inverse=True
    )
    shapes = [label.shape[:-1] for label in labels]
    sizes = np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1]
    return [part.reshape(shape) for part, shape in zip(np.split(number, sizes), shapes, strict=True)]
