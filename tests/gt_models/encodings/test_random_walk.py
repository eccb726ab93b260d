"""RRWP and RWSE: powers of matrices, the official values of GRIT, and the closed form of a cycle."""

from math import comb

import networkx as nx
import pytest
import torch

from gt_models import GraphBatch
from gt_models.encodings import EncodingError, compute, random_walk
from tests.gt_models.checks import collate, random_graphs
from tests.gt_models.encodings.graphs import dense, of_networkx


def rrwp(batch, **arguments):
    return compute("rrwp", batch, dtype=torch.float64, **arguments)["rrwp"]


def by_loops(batch, exponents, identity=True, reverse=False):
    """RRWP [n^2, channels], one matrix power at a time."""
    adjacency = dense(batch).T if reverse else dense(batch)
    transition = torch.zeros_like(adjacency)
    for i, row in enumerate(adjacency):
        if row.sum() > 0:
            transition[i] = row / row.sum()
    powers = [torch.eye(len(adjacency), dtype=torch.float64)] if identity else []
    powers += [torch.linalg.matrix_power(transition, e) for e in exponents]
    return torch.stack(powers, -1).flatten(0, 1)


@pytest.mark.parametrize("graph", ["g0", "g1"])
def test_official_grit_values(parity, graph):
    case = parity("grit_rrwp")
    n, length = int(case[f"in.{graph}.n"]), int(case["meta.walk_length"])
    batch = GraphBatch(torch.zeros(n, 1), case[f"in.{graph}.edge_index"], torch.tensor([0, n]))
    values = rrwp(batch, steps=length - 1).view(n, n, length)
    column, row = case[f"out.{graph}.rrwp_index"]
    listed = torch.zeros(n, n, length, dtype=torch.float64)
    listed[row, column] = case[f"out.{graph}.rrwp_val"]
    torch.testing.assert_close(values, listed, rtol=0, atol=1e-14)
    torch.testing.assert_close(values.diagonal().T, case[f"out.{graph}.rrwp"], rtol=0, atol=1e-14)


def test_cycle_by_hand():
    # k steps left or right on a long cycle: j - i = 2 r - k with r steps to the right, chance comb(k, r) / 2^k
    n, steps = 11, 4
    values = rrwp(of_networkx(nx.cycle_graph(n)), steps=steps).view(n, n, steps + 1)
    for k in range(steps + 1):
        for r in range(k + 1):
            for i in range(n):
                assert values[i, (i + 2 * r - k) % n, k] == pytest.approx(comb(k, r) / 2**k, abs=1e-15)
    torch.testing.assert_close(values.sum(1), torch.ones(n, steps + 1, dtype=torch.float64))


@pytest.mark.parametrize("many", [0, 256])
@pytest.mark.parametrize("dual", [False, True])
@pytest.mark.parametrize("normalization", ["rw", "sym"])
def test_dense_products_as_on_a_gpu_give_the_same(monkeypatch, many, dual, normalization):
    monkeypatch.setattr(random_walk, "_MANY_GRAPHS", many)  # with and without padding
    batch = collate([of_networkx(nx.gnp_random_graph(n, 0.3, seed=n, directed=True)) for n in (5, 3, 7, 7, 1, 12, 5)])
    expected = rrwp(batch, steps=6, dual=dual, normalization=normalization)
    found = torch.empty_like(expected)
    random_walk._write_products(found, batch, 6, True, False, dual, normalization)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-14)


def test_the_number_of_threads_changes_nothing():
    batch = collate(random_graphs((30, 8, 41, 0, 25, 60), density=0.2))
    threads = torch.get_num_threads()
    try:
        found = []
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            found.append(compute("rrwp", batch, steps=12)["rrwp"])
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_no_graph_and_empty_graphs():
    nothing = torch.zeros(2, 0, dtype=torch.long)
    for ptr in ([0], [0, 0], [0, 0, 1]):
        values = rrwp(GraphBatch(torch.zeros(ptr[-1], 1), nothing, torch.tensor(ptr)), steps=3)
        assert values.shape == (ptr[-1], 4)
        assert values[:, 0].tolist() == [1.0] * ptr[-1]
        assert not values[:, 1:].any()


def test_edges_may_be_in_any_order():
    batch = collate(random_graphs((6, 9, 4), density=0.4))
    order = torch.randperm(batch.num_edges, generator=torch.Generator().manual_seed(0))
    mixed = GraphBatch(batch.x, batch.edge_index[:, order], batch.ptr)
    assert torch.equal(rrwp(mixed, steps=5), rrwp(batch, steps=5))


def test_squaring_as_the_edge_transformer_does():
    graphs = random_graphs((5, 8), density=0.4)
    expected = torch.cat([by_loops(g, (1, 2, 4, 8), identity=False) for g in graphs])
    torch.testing.assert_close(
        rrwp(collate(graphs), steps=4, identity=False, squaring=True), expected, rtol=0, atol=1e-13
    )


def test_dual_direction_of_a_directed_graph():
    graph = of_networkx(nx.gn_graph(9, seed=1))
    values = rrwp(graph, steps=3, dual=True)
    along, against = by_loops(graph, (1, 2, 3)), by_loops(graph, (1, 2, 3), identity=False, reverse=True)
    torch.testing.assert_close(values, torch.cat([along, against], 1), rtol=0, atol=1e-14)
    assert not torch.allclose(values[:, 1:4], values[:, 4:])


def test_symmetric_normalisation():
    graph = random_graphs((8,), density=0.5)[0]
    adjacency = dense(graph)
    scale = adjacency.sum(1).clamp(min=1) ** -0.5
    matrix = scale[:, None] * adjacency * scale
    values = rrwp(graph, steps=3, normalization="sym").view(8, 8, 4)
    torch.testing.assert_close(values[..., 3], torch.linalg.matrix_power(matrix, 3), rtol=0, atol=1e-13)


def test_a_repeated_edge_counts_once():
    graph = of_networkx(nx.path_graph(5))
    twice = GraphBatch(graph.x, torch.cat([graph.edge_index, graph.edge_index[:, :3]], 1), graph.ptr)
    torch.testing.assert_close(rrwp(twice, steps=4), rrwp(graph, steps=4))


def test_large_sparse_graphs_take_the_same_values(monkeypatch):
    graph = of_networkx(nx.random_regular_graph(3, 60, seed=0))
    expected, diagonal = rrwp(graph, steps=6), compute("rwse", graph, steps=6, dtype=torch.float64)["rwse"]
    monkeypatch.setattr(random_walk, "_SPARSE_SIZE", 10)
    found = torch.empty_like(expected)
    random_walk._write_products(found, graph, 6, True, False, False, "rw")
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-14)
    both = collate([of_networkx(nx.cycle_graph(5)), graph])
    found = compute("rwse", both, steps=6, dtype=torch.float64)["rwse"]
    torch.testing.assert_close(found[5:], diagonal, rtol=0, atol=1e-14)


def test_rwse_is_the_diagonal():
    graphs = random_graphs((5, 3, 9, 1), density=0.4)
    expected = torch.cat(
        [by_loops(g, range(1, 6), identity=False).view(n, n, 5).diagonal().T for g, n in zip(graphs, (5, 3, 9, 1))]
    )
    torch.testing.assert_close(
        compute("rwse", collate(graphs), steps=5, dtype=torch.float64)["rwse"], expected, rtol=0, atol=1e-14
    )


def test_walks_along_the_bonds_of_a_completed_graph():
    molecules = random_graphs((6, 9, 4), density=0.3)
    whole = collate([of_networkx(nx.complete_graph(g.num_nodes)) for g in molecules])
    bonds = collate(molecules)
    pairs = {tuple(edge) for edge in bonds.edge_index.T.tolist()}
    whole.extras["bond"] = torch.tensor([tuple(edge) in pairs for edge in whole.edge_index.T.tolist()]).to(torch.uint8)
    assert torch.equal(rrwp(whole, steps=5, edges="bonds"), rrwp(bonds, steps=5))
    assert not torch.allclose(rrwp(whole, steps=5), rrwp(bonds, steps=5))
    with pytest.raises(EncodingError, match="mark the edges that are bonds"):
        rrwp(bonds, steps=5, edges="bonds")


def test_walks_both_ways_are_walks_on_the_undirected_graph():
    graph = nx.DiGraph([(0, 1), (1, 2), (2, 1), (3, 0), (0, 3), (2, 2)])
    directed, undirected = of_networkx(graph), of_networkx(graph.to_undirected())
    assert torch.equal(rrwp(directed, steps=5, edges="both-ways"), rrwp(undirected, steps=5))
    assert not torch.allclose(rrwp(directed, steps=5), rrwp(undirected, steps=5))
