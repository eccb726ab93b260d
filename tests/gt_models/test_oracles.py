"""Colour refinements, compared with networkx and with known results."""

import itertools

import networkx as nx
import pytest

from tests.gt_models import oracles


@pytest.fixture(scope="module")
def small_graphs() -> list[nx.Graph]:
    """All graphs with five nodes."""
    return [g for g in nx.graph_atlas_g() if g.number_of_nodes() == 5]


def test_one_wl_agrees_with_networkx(small_graphs):
    hashes = [nx.weisfeiler_lehman_graph_hash(g, iterations=6) for g in small_graphs]
    histograms = oracles.one_wl([oracles.from_networkx(g) for g in small_graphs])
    pairs = list(itertools.combinations(range(len(small_graphs)), 2))
    assert [histograms[a] == histograms[b] for a, b in pairs] == [hashes[a] == hashes[b] for a, b in pairs]


def test_two_fwl_separates_all_small_graphs(small_graphs):
    graphs = [oracles.from_networkx(g) for g in small_graphs]
    assert len({frozenset(h.items()) for h in oracles.two_fwl(graphs)}) == len(graphs)


def test_a_permuted_graph_is_never_separated():
    graph = nx.gnp_random_graph(8, 0.4, seed=3)
    moved = nx.relabel_nodes(graph, dict(zip(range(8), [3, 1, 7, 0, 2, 6, 5, 4], strict=True)))
    ordered = nx.Graph()
    ordered.add_nodes_from(range(8))
    ordered.add_edges_from(moved.edges)
    pair = [oracles.from_networkx(graph), oracles.from_networkx(ordered)]
    for test in (oracles.one_wl, oracles.two_fwl, lambda g: oracles.gd_wl(g, oracles.shortest_paths)):
        assert not oracles.separates(test(pair))


def test_each_refinement_separates_its_pairs():
    hexagon = oracles.twins()
    assert not oracles.separates(oracles.one_wl(hexagon))
    assert oracles.separates(oracles.gd_wl(hexagon, oracles.shortest_paths))
    assert oracles.separates(oracles.gd_wl(hexagon, oracles.random_walks(4)))
    assert oracles.separates(oracles.two_fwl(hexagon))
    skips = oracles.skip_cycle(11, 2), oracles.skip_cycle(11, 3)
    assert not oracles.separates(oracles.one_wl(skips))
    assert oracles.separates(oracles.two_fwl(skips))
    regular = oracles.rook_and_shrikhande()
    assert [n for n, _ in regular] == [16, 16]
    assert [len(e) for _, e in regular] == [96, 96]
    assert not nx.is_isomorphic(*map(oracles.to_networkx, regular))
    assert not oracles.separates(oracles.two_fwl(regular))


def test_node_colours_are_used():
    path = (3, {(0, 1), (1, 0), (1, 2), (2, 1)})
    colours = [[0, 1, 0], [1, 0, 0]]
    for test in (oracles.one_wl, oracles.two_fwl):
        assert not oracles.separates(test([path, path]))
        assert oracles.separates(test([path, path], colours))
