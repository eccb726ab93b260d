"""Encodings with another algorithm for large graphs: at the limit, both algorithms give the same numbers.

Graphs of golden runs are below every limit, so golden values only protect the algorithm for small graphs.
"""

import networkx as nx
import numpy as np
import pytest
import torch

from gt_models import GraphBatch
from gt_models.encodings import compute, expander, laplacian, random_walk, shortest_path
from tests.gt_models.checks import collate
from tests.gt_models.encodings.graphs import of_networkx

NODES = 40


def connected() -> nx.DiGraph:
    """A graph with directed edges and self-loops; all eigenvalues of its Laplacian are simple."""
    graph = nx.connected_watts_strogatz_graph(NODES, 4, 0.5, seed=3)
    edges = [(a, b) for a, b in graph.edges if a % 3] + [(b, a) for a, b in graph.edges if b % 2 or not a % 3]
    directed = nx.DiGraph([*edges, (4, 4), (9, 9)])
    return nx.DiGraph((a, b) for a, b in sorted(directed.edges))


def with_isolated() -> nx.DiGraph:
    """A graph in which some nodes have no edge, or only a self-loop."""
    graph = nx.DiGraph()
    graph.add_nodes_from(range(NODES))
    graph.add_edges_from((a, b) for a, b in connected().edges if a not in (5, 6, 11) and b not in (5, 6, 11))
    graph.add_edge(6, 6)
    return graph


# encoding, arguments, module, its limit, the function for larger graphs, graph
FORMS = [
    ("laplacian", {"k": 5}, laplacian, "_DENSE_SIZE", "_large", connected),
    ("laplacian", {"k": 5, "normalization": "none"}, laplacian, "_DENSE_SIZE", "_large", connected),
    ("laplacian", {"k": 3, "which": "highest"}, laplacian, "_DENSE_SIZE", "_large", with_isolated),
    ("second-eigenvector", {}, laplacian, "_DENSE_SIZE", "_large", connected),
    ("rwse", {"steps": 7}, random_walk, "_SPARSE_SIZE", "_return_chances", connected),
    ("rwse", {"steps": 7}, random_walk, "_SPARSE_SIZE", "_return_chances", with_isolated),
    ("shortest-path", {"path_length": 5}, shortest_path, "_SEARCH_SIZE", "_searched", connected),
    ("shortest-path", {"path_length": 5}, shortest_path, "_SEARCH_SIZE", "_searched", with_isolated),
]


def spied(monkeypatch, module, name) -> list:
    """A list that receives the arguments of each further call of a function of the module."""
    calls, function = [], getattr(module, name)
    monkeypatch.setattr(module, name, lambda *arguments: calls.append(arguments) or function(*arguments))
    return calls


@pytest.mark.parametrize(("name", "arguments", "module", "limit", "large", "graph"), FORMS)
def test_both_forms_agree_at_the_limit(monkeypatch, name, arguments, module, limit, large, graph):
    batch = collate([of_networkx(nx.path_graph(4)), of_networkx(graph()), of_networkx(nx.path_graph(3))])
    calls, found = spied(monkeypatch, module, large), []
    for size in (NODES, NODES - 1):
        monkeypatch.setattr(module, limit, size)
        found.append(compute(name, batch, dtype=torch.float64, **arguments))
        assert len(calls) == (size < NODES)
    for key, small in found[0].items():
        torch.testing.assert_close(found[1][key], small, rtol=0, atol=1e-8)


@pytest.mark.parametrize("normalization", ["rw", "sym"])
def test_sparse_and_dense_powers_agree_at_the_limit(monkeypatch, normalization):
    monkeypatch.setattr(random_walk, "_MANY_GRAPHS", 0)
    graph = nx.DiGraph()
    graph.add_nodes_from(range(3 * NODES))
    graph.add_edges_from(with_isolated().edges)
    batch = of_networkx(graph)
    calls, found = spied(monkeypatch, random_walk, "_compressed"), []
    for size in (3 * NODES, 3 * NODES - 1):
        monkeypatch.setattr(random_walk, "_SPARSE_SIZE", size)
        out = torch.zeros(batch.num_pairs, 6, dtype=torch.float64)
        random_walk._write_products(out, batch, 5, True, False, False, normalization)
        found.append(out)
        assert len(calls) == (size < 3 * NODES)
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=1e-14)


def test_the_gap_of_an_expander_at_the_limit(monkeypatch):
    neighbours = np.stack([np.random.default_rng(seed).permutation(NODES) for seed in range(3)])
    gaps = []
    for size in (NODES, NODES - 1):
        monkeypatch.setattr(expander, "_DENSE_SIZE", size)
        gaps.append(expander._gap(neighbours))
    assert gaps[1] == pytest.approx(gaps[0], rel=1e-2)


def test_the_graphs_have_what_they_should():
    for graph, isolated in ((connected(), 0), (with_isolated(), 3)):
        batch: GraphBatch = of_networkx(graph)
        source, target = batch.edge_index
        edges = set(zip(source.tolist(), target.tolist()))
        assert any((b, a) not in edges for a, b in edges)
        assert any(a == b for a, b in edges)
        others = torch.cat([source[source != target], target[source != target]])
        assert NODES - others.unique().numel() == isolated
    assert not laplacian.laplacian_with_repeats(of_networkx(connected()), k=5, normalization="sym", which="lowest")[
        1
    ].any()
