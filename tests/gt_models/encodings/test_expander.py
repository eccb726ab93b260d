"""Random regular graphs: degrees, the spectral gap compared with networkx, seeds, small graphs."""

import networkx as nx
import numpy as np
import pytest
import torch

from gt_models.batch import GraphBatch
from gt_models.encodings import compute
from gt_models.encodings import expander as module


def of_sizes(*sizes: int) -> GraphBatch:
    ptr = torch.tensor([0, *sizes]).cumsum(0)
    return GraphBatch(torch.ones(int(ptr[-1]), 1), torch.empty(2, 0, dtype=torch.long), ptr)


def drawn(neighbours: torch.Tensor) -> nx.MultiGraph:
    graph = nx.MultiGraph()
    graph.add_nodes_from(range(len(neighbours)))
    graph.add_edges_from((i, j) for i, row in enumerate(neighbours.tolist()) for j in row if j >= 0)
    return graph


def test_a_regular_graph_and_its_gap():
    """A self-loop counts twice in the degree of its node."""
    batch = of_sizes(30, 17)
    found = compute("expander", batch, degree=3, dtype=torch.float64)
    for b, n in enumerate((30, 17)):
        graph = drawn(found["expander"][batch.batch == b])
        assert set(dict(graph.degree).values()) == {6}
        assert graph.number_of_nodes() == n
        eigenvalues = np.linalg.eigvalsh(nx.laplacian_matrix(graph).toarray())
        assert found["expander_gap"][b].item() == pytest.approx(eigenvalues[1])
        assert found["expander_gap"][b] >= 6 - 2 * 5**0.5 - 0.1


@pytest.mark.slow
def test_a_large_graph_has_the_gap_of_the_dense_way(monkeypatch):
    dense = compute("expander", of_sizes(400), degree=2)
    monkeypatch.setattr(module, "_DENSE_SIZE", 100)
    sparse = compute("expander", of_sizes(400), degree=2)
    assert torch.equal(dense["expander"], sparse["expander"])
    torch.testing.assert_close(dense["expander_gap"], sparse["expander_gap"], rtol=1e-2, atol=0)


def test_the_best_draw_stays_where_none_suffices(monkeypatch):
    monkeypatch.setattr(module, "_DRAWS", 3)
    rng = np.random.default_rng((5, 0))
    expected = [rng.permutation(12) for _ in range(3)]
    monkeypatch.setattr(
        module, "_gap", lambda neighbours: {expected[1].tobytes(): -0.2}.get(neighbours[0].tobytes(), -0.6)
    )
    found = compute("expander", of_sizes(12), degree=1, seed=5)
    assert found["expander"][:, 0].tolist() == expected[1].tolist()
    assert found["expander_gap"].item() == pytest.approx(-0.2)


def test_a_draw_depends_on_seed_and_graph_alone():
    """A draw depends on the seed and the id of the graph, not on the batch."""
    ids = torch.tensor([3, 8])
    both = compute("expander", of_sizes(20, 20), degree=2, graphs=ids)["expander"]
    assert torch.equal(both[20:], compute("expander", of_sizes(20), degree=2, graphs=ids[1:])["expander"])
    assert not torch.equal(both[20:], both[:20])
    assert not torch.equal(both[20:], compute("expander", of_sizes(20), degree=2, seed=1, graphs=ids[1:])["expander"])


@pytest.mark.parametrize(
    ("n", "degree", "edges"), [(10, 5, 45), (9, 4, 36), (6, 3, 15), (4, 5, 6), (1, 3, 0), (10, 3, 30)]
)
def test_small_graphs_are_complete_where_the_degree_allows(n, degree, edges):
    found = compute("expander", of_sizes(n), degree=degree)
    graph = drawn(found["expander"])
    assert graph.number_of_edges() == edges == nx.Graph(graph).number_of_edges()
    assert nx.number_of_selfloops(graph) == 0
    if edges == n * (n - 1) // 2 > 0:
        assert found["expander_gap"].item() == pytest.approx(n)  # of the complete graph
