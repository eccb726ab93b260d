"""Colour refinement on pairs of graphs with known results."""

import networkx as nx
import numpy as np
import pytest

from gt_bench.claims.checks.brec import refinement

METHODS = ("1-wl", "gd-wl-shortest-paths", "gd-wl-rrwp", "3-wl")


def pairs():
    rook = nx.line_graph(nx.complete_bipartite_graph(4, 4))
    shrikhande = nx.Graph(
        ((a, b), ((a + x) % 4, (b + y) % 4)) for a in range(4) for b in range(4) for x, y in ((0, 1), (1, 0), (1, 1))
    )
    skips = [nx.circulant_graph(11, [1, skip]) for skip in (2, 3)]
    triangles = nx.disjoint_union(nx.cycle_graph(3), nx.cycle_graph(3))
    return {
        "two triangles and a hexagon": (triangles, nx.cycle_graph(6), (False, True, True, True)),
        "CSL 2 and 3": (*skips, (False, True, True, True)),
        "Shrikhande and rook": (shrikhande, rook, (False, False, False, False)),
        "path and star": (nx.path_graph(4), nx.star_graph(3), (True, True, True, True)),
    }


@pytest.mark.parametrize("name", list(pairs()))
def test_refinement_distinguishes_the_known_pairs_and_never_a_relabelled_graph(name):
    first, second, expected = pairs()[name]
    first, second = nx.to_numpy_array(first), nx.to_numpy_array(second)
    assert tuple(refinement(method)(first, second) for method in METHODS) == expected
    order = np.random.default_rng(0).permutation(len(first))
    assert not any(refinement(method)(first, first[order][:, order]) for method in METHODS)
