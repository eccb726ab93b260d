"""Colour refinement: which pairs of graphs can a class of methods distinguish at all, without training?

A multiset {(a_w, b_w)} is hashed to sum_w f(a_w) g(b_w), with f and g random in a prime field. This is one matrix
product. By the Schwartz-Zippel lemma two different multisets collide with probability 2/p per draw, and CHANNELS
draws are made. If a pair is distinguished, its graphs are certainly different. If it is not distinguished, the
colours agree, except with probability below 1e-12.
"""

# mypy: disable-error-code="arg-type, assignment"

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

PRIME = 4_194_301  # below 2^22: products of two numbers sum over 500 nodes exactly in float64
CHANNELS = 2
Adjacency = NDArray[np.float64]  # [n, n]
Colours = NDArray[np.int64]  # [n] of nodes, [n, n] of ordered pairs


def one_wl(first: Adjacency, second: Adjacency) -> bool:
    """Test whether 1-WL distinguishes two graphs, given as adjacency matrices [n, n] and [m, m]."""
    return gd_wl(first, second, lambda adjacency: adjacency.astype(np.int64))


def gd_wl(first: Adjacency, second: Adjacency, distance: Callable[[Adjacency], Colours]) -> bool:
    """Test whether GD-WL (Zhang et al. 2023) distinguishes two graphs.

    In each round the colour of a node becomes the multiset of (distance, colour) over all nodes.

    Args:
        first: adjacency matrix [n, n].
        second: adjacency matrix [m, m].
        distance: maps an adjacency matrix [n, n] to integers [n, n] or [n, n, k], equal where distances are equal.

    Returns:
        Whether it does.
    """
    if first.shape != second.shape:
        return True
    distances = [distance(graph) for graph in (first, second)]
    labels = _relabel([label if label.ndim == 3 else label[..., None] for label in distances])
    colours = [np.diagonal(label).astype(np.int64) for label in labels]

    def refine(rng: np.random.Generator) -> list[Adjacency]:
        f, g = _random_field(labels, rng), _random_field(colours, rng)
        return [
            np.stack([(f[c][label] @ g[c][colour]) % PRIME for c in range(CHANNELS)], -1)
            for label, colour in zip(labels, colours, strict=True)
        ]

    return _distinguished(colours, refine)


def three_wl(first: Adjacency, second: Adjacency) -> bool:
    """Test whether 3-WL distinguishes two graphs, by the equally powerful 2-FWL.

    In each round the colour of (u, v) becomes the multiset of (colour of (u, w), colour of (w, v)) over w.

    Args:
        first: adjacency matrix [n, n].
        second: adjacency matrix [m, m].

    Returns:
        Whether it does.
    """
    if first.shape != second.shape:
        return True
    colours = [(graph + 2 * np.eye(len(graph))).astype(np.int64) for graph in (first, second)]

    def refine(rng: np.random.Generator) -> list[Adjacency]:
        f, g = _random_field(colours, rng), _random_field(colours, rng)
        return [np.stack([(f[c][colour] @ g[c][colour]) % PRIME for c in range(CHANNELS)], -1) for colour in colours]

    return _distinguished(colours, refine)


def shortest_paths(adjacency: Adjacency) -> Colours:
    """Compute shortest-path distances.

    Args:
        adjacency: [n, n].

    Returns:
        Number of edges [n, n]; -1 if there is no path.
    """
    from scipy.sparse.csgraph import shortest_path

    hops = shortest_path(np.ascontiguousarray(adjacency), unweighted=True)
    return np.where(np.isinf(hops), -1, hops).astype(np.int64)


def random_walks(steps: int) -> Callable[[Adjacency], Colours]:
    """Make a distance function of relative random-walk probabilities (RRWP).

    The probabilities are exact in a prime field, so that no rounding error distinguishes graphs.

    Args:
        steps: number of powers I, P, P^2, ... of P = D^-1 A.

    Returns:
        A function from an adjacency matrix [n, n] to integers [n, n, steps].
    """

    def distance(adjacency: Adjacency) -> Colours:
        degrees = adjacency.sum(1).astype(np.int64)
        inverse = np.array([pow(int(d), -1, PRIME) if d else 0 for d in degrees], float)
        step = inverse[:, None] * adjacency
        powers = [np.eye(len(adjacency))]
        for _ in range(steps - 1):
            powers.append((powers[-1] @ step) % PRIME)
        return np.stack(powers, -1).astype(np.int64)

    return distance


def _distinguished(colours: list[Colours], refine: Callable[[np.random.Generator], list[Adjacency]]) -> bool:
    """Refine `colours` in place until their counts differ (True) or they are stable (False)."""
    rng, num_colours = np.random.default_rng(0), 0
    while True:
        counts = [np.bincount(colour.ravel(), minlength=max(int(c.max()) for c in colours) + 1) for colour in colours]
        if not np.array_equal(*counts):
            return True
        if np.count_nonzero(counts[0]) == num_colours:
            return False
        num_colours = np.count_nonzero(counts[0])
        # the previous colour is part of the new one, so that colours only become finer
        refined = refine(rng)
        colours[:] = _relabel(
            [np.concatenate([c[..., None], r.astype(np.int64)], -1) for c, r in zip(colours, refined, strict=True)]
        )


def _random_field(colours: list[Colours], rng: np.random.Generator) -> Adjacency:
    return rng.integers(1, PRIME, (CHANNELS, max(int(c.max()) for c in colours) + 1)).astype(float)


def _relabel(labels: list[Colours]) -> list[Colours]:
    """Number the distinct rows [..., k] of both graphs from 0, with one numbering for both."""
    rows = np.concatenate([label.reshape(-1, label.shape[-1]) for label in labels])
    records = np.ascontiguousarray(rows).view([("", rows.dtype)] * rows.shape[1]).ravel()  # sorts faster than rows
    _, number = np.unique(records, return_inverse=True)
    shapes = [label.shape[:-1] for label in labels]
    sizes = np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1]
    return [part.reshape(shape) for part, shape in zip(np.split(number, sizes), shapes, strict=True)]
