"""Shortest paths against networkx, random identifiers by their defining properties, counts, and the registry's face."""

import networkx as nx
import pytest
import torch
from torch_geometric.data import Batch, Data

from gt_models import GraphBatch
from gt_models.encodings import ENCODINGS, EncodingError, compute, shortest_path
from tests.gt_models.checks import collate, random_graphs
from tests.gt_models.encodings.graphs import of_networkx


def paths(batch, **arguments):
    out = compute("shortest-path", batch, **arguments)
    return out["shortest_path_distance"][:, 0], out["shortest_path_edges"]


@pytest.mark.parametrize("search_size", [256, 2])
@pytest.mark.parametrize("chunk", [2**23, 7])
def test_distances_and_paths_against_networkx(monkeypatch, search_size, chunk):
    monkeypatch.setattr(shortest_path, "_SEARCH_SIZE", search_size)
    monkeypatch.setattr(shortest_path, "_CHUNK", chunk)
    originals = [nx.gnp_random_graph(n, 0.25, seed=n, directed=n % 2 == 0) for n in (6, 9, 12, 1)]
    batch = collate([of_networkx(g) for g in originals])
    distance, edges = paths(batch, path_length=20)
    for b, graph in enumerate(originals):
        n = len(graph)
        expected = dict(nx.all_pairs_shortest_path_length(graph))
        for i in range(n):
            for j in range(n):
                row = int(batch.pair_ptr[b]) + i * n + j
                hops = expected[i].get(j, -1)
                assert distance[row] == hops
                taken = edges[row][edges[row] >= 0]
                assert len(taken) == max(hops, 0)
                if hops > 0:
                    walked = batch.edge_index[:, taken] - batch.ptr[b]
                    assert walked[0, 0] == i
                    assert walked[1, -1] == j
                    assert torch.equal(walked[1, :-1], walked[0, 1:])


def test_long_distances_are_cut_and_paths_keep_their_start():
    distance, edges = paths(of_networkx(nx.path_graph(8, create_using=nx.DiGraph)), max_distance=4, path_length=3)
    assert distance.view(8, 8)[0].tolist() == [0, 1, 2, 3, 4, 4, 4, 4]
    assert distance.view(8, 8)[7].tolist() == [-1] * 7 + [0]
    assert edges.view(8, 8, 3)[1, 7].tolist() == [1, 2, 3]
    assert edges.view(8, 8, 3)[0, 2].tolist() == [0, 1, -1]


def identifiers(name, batch, graphs=None, **arguments):
    return compute(name, batch, graphs=graphs, dtype=torch.float64, **arguments)["node_identifiers"]


def test_orthogonal_rows_and_columns():
    graphs = random_graphs((5, 8, 12, 8))
    rows = identifiers("orthogonal", collate(graphs), k=8).split([5, 8, 12, 8])
    for part in (rows[0], rows[1], rows[3]):
        torch.testing.assert_close(part @ part.T, torch.eye(len(part), dtype=torch.float64))
    torch.testing.assert_close(rows[2].T @ rows[2], torch.eye(8, dtype=torch.float64))
    assert not rows[0][:, 5:].any()
    assert (rows[1] - rows[3]).abs().max() > 0.1  # graphs of one size differ


def test_near_orthogonal_entries_and_angles():
    rows = identifiers("near-orthogonal", random_graphs((400,), density=0.0)[0], k=64)
    assert set(rows.unique().tolist()) == {-1 / 64, 1 / 64}
    assert abs(float(rows.sign().mean())) < 0.03
    cosine = rows @ rows.T * 64
    torch.testing.assert_close(cosine.diagonal(), torch.ones(400, dtype=torch.float64))
    assert cosine.triu(1).square().sum() / (400 * 399 / 2) == pytest.approx(1 / 64, rel=0.05)


def test_random_numbers_are_normal():
    rows = identifiers("random", random_graphs((500,), density=0.0)[0], k=40)
    assert float(rows.mean()) == pytest.approx(0, abs=0.03)
    assert float(rows.std()) == pytest.approx(1, abs=0.03)
    assert float((rows**4).mean()) == pytest.approx(3, abs=0.2)
    assert float((rows[:, 1:] * rows[:, :-1]).mean()) == pytest.approx(0, abs=0.03)
    assert float((rows[1:] * rows[:-1]).mean()) == pytest.approx(0, abs=0.03)


@pytest.mark.parametrize("name", ["orthogonal", "near-orthogonal", "random"])
def test_draws_depend_on_seed_and_graph_id_alone(name):
    graphs = random_graphs((6, 4, 6))
    whole = identifiers(name, collate(graphs), k=5)
    torch.testing.assert_close(identifiers(name, graphs[2], torch.tensor([2]), k=5), whole[10:], rtol=0, atol=1e-12)
    assert not torch.allclose(identifiers(name, graphs[2], torch.tensor([0]), k=5), whole[10:])
    assert not torch.allclose(identifiers(name, collate(graphs), k=5, seed=1), whole)


def test_counts():
    graph = of_networkx(nx.star_graph(3, create_using=nx.DiGraph))
    batch = collate([graph, of_networkx(nx.path_graph(2))])
    assert compute("degree", batch)["degree"].tolist() == [[0, 3], [1, 0], [1, 0], [1, 0], [1, 1], [1, 1]]
    assert compute("order", batch)["order"].tolist() == [[4], [2]]


MINIMAL = {
    "laplacian": {"k": 3},
    "rrwp": {"steps": 3},
    "position": {"count": 1},
    "rwse": {"steps": 3},
    "orthogonal": {"k": 3},
    "near-orthogonal": {"k": 3},
    "random": {"k": 3},
}


@pytest.mark.parametrize("name", ENCODINGS)
def test_what_an_encoding_states_is_what_it_returns(name):
    batch = collate(random_graphs((4, 2, 6), density=0.5))
    encoding, arguments = ENCODINGS[name], MINIMAL.get(name, {})
    batch.x = torch.randn(12, 3)
    out = compute(name, batch, **arguments)
    rows = {"node": 12, "pair": 16 + 4 + 36, "edge": batch.num_edges, "graph": 3}
    widths = encoding.widths(**encoding.arguments(arguments))
    assert {k: tuple(v.shape) for k, v in out.items()} == {k: (rows[level], widths[k]) for k, level in encoding.arrays.items()}
    assert encoding.num_bytes(arguments, batch.sizes, batch.num_edges) == sum(4 * v.numel() for v in out.values())
    assert encoding.__class__.key(encoding, arguments) == encoding.key(encoding.arguments(arguments))


@pytest.mark.parametrize("name", ENCODINGS)
def test_a_torch_geometric_graph_without_edges(name):
    """Data and Batch are taken as they are; a set has no `edge_index` at all."""
    given, arguments = Batch.from_data_list([Data(x=torch.ones(3, 1)), Data(x=torch.ones(2, 1))]), MINIMAL.get(name, {})
    expected = compute(name, GraphBatch(torch.ones(5, 1), torch.zeros(2, 0, dtype=torch.long), torch.tensor([0, 3, 5])), **arguments)
    for array, values in compute(name, given, **arguments).items():
        assert torch.equal(values, expected[array])
    for array, values in compute(name, Data(x=torch.ones(5, 1)), **arguments).items():
        assert values.shape[1] == expected[array].shape[1]


def test_positions_are_columns_of_the_features():
    batch = collate(random_graphs((4, 2), density=0.5))
    batch.x = torch.arange(18.0).view(6, 3)
    torch.testing.assert_close(compute("position", batch, count=2)["position"], batch.x[:, 1:])
    with pytest.raises(EncodingError, match="last 4 columns; the node features have 3"):
        compute("position", batch, count=4)


def test_key_spells_name_and_sorted_complete_arguments():
    assert ENCODINGS["laplacian"].key({"which": "both", "k": 8}) == "laplacian-k=8-normalization=sym-which=both"
    assert ENCODINGS["order"].key({}) == "order"


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("laplace", {}, r"no encoding named 'laplace' \(did you mean 'laplacian'\?\); known: degree, "),
        ("laplacian", {"k": 3, "normalisation": "sym"}, r"has no argument 'normalisation' \(did you mean 'normalization'\?\)"),
        ("laplacian", {}, "needs the argument 'k'"),
        ("laplacian", {"k": 3.0}, "k must be int, not 3.0"),
        ("laplacian", {"k": -1}, "k must be at least 1, not -1"),
        ("rrwp", {"steps": 2, "identity": 1}, "identity must be bool, not 1"),
        ("random", {"k": 2, "seed": -1}, "seed must be at least 0, not -1"),
        ("rrwp", {"steps": 2, "dtype": "x"}, "dtype"),
    ],
)
def test_bad_requests(name, arguments, message):
    with pytest.raises((EncodingError, TypeError), match=message):
        compute(name, random_graphs((3,))[0], **arguments) if "dtype" not in arguments else ENCODINGS[name].arguments(arguments)
