"""Graphormer: its equations, the parameter count, and graphs that it distinguishes."""

import networkx as nx
import pytest
import torch
from torch import nn

from gt_models import create_model
from gt_models.baselines.graphormer import with_tokens
from gt_models.batch import GraphBatch
from gt_models.encodings import compute
from tests.gt_models.reference import graphormer as reference


def encoded(graph: GraphBatch, **arguments) -> GraphBatch:
    graph.encodings = compute("shortest-path", graph, **{"path_length": 3} | arguments)
    return graph


def of(edges: list[tuple[int, int]], n: int, seed: int = 0) -> GraphBatch:
    """A graph with both directions of `edges` and random features."""
    rng = torch.Generator().manual_seed(seed)
    both = torch.tensor([*edges, *((b, a) for a, b in edges)], dtype=torch.long).reshape(-1, 2).T
    attr = torch.randn(both.size(1), 3, generator=rng, dtype=torch.float64)
    return encoded(GraphBatch(torch.randn(n, 4, generator=rng, dtype=torch.float64), both, torch.tensor([0, n]), attr))


def build(level: str = "graph", **arguments) -> nn.Module:
    small = {
        "in_dim": 4,
        "out_dim": 2,
        "edge_dim": 3,
        "hidden_dim": 8,
        "num_layers": 2,
        "num_heads": 2,
        "max_distance": 3,
        "max_degree": 3,
    }
    model = create_model("graphormer", **small | {"level": level, "path_length": 2} | arguments).double()
    for parameter in model.parameters():  # all parameters affect the output
        nn.init.normal_(parameter, std=0.5)
    return model


@pytest.mark.slow
@pytest.mark.parametrize(
    ("edges", "arguments"),
    [(True, {}), (False, {}), (True, {"norm": "pre"}), (True, {"path_length": 3, "max_distance": 2})],
)
def test_is_its_equations(edges, arguments):
    """A cycle of five with a tail, and an isolated node; distances by networkx."""
    graph = of([(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (4, 5)], 7)
    for level in ("graph", "node"):
        model = build(level, edge_dim=3 if edges else None, **arguments).eval()
        w, pairs = model.state_dict(), graph.edge_index.T.tolist()
        search = nx.DiGraph(pairs)
        search.add_nodes_from(range(7))
        hops = dict(nx.all_pairs_shortest_path_length(search))
        distance = [[hops[i].get(j, -1) for j in range(7)] for i in range(7)]
        stored = graph.encodings["shortest_path_edges"].view(7, 7, 3)
        paths = {(i, j): [e for e in stored[i, j].tolist() if e >= 0] for i in range(7) for j in range(7)}
        for (i, j), path in paths.items():  # the encoding's paths are paths
            assert len(path) == max(0, min(3, distance[i][j]))
            assert all(pairs[a][1] == pairs[b][0] for a, b in zip(path, path[1:], strict=False))
            assert not path or pairs[path[0]][0] == i
        features = (
            graph.edge_attr @ w["edge_encoder.linear.weight"].T + w["edge_encoder.linear.bias"] if edges else None
        )
        bias = reference.bias(w, 7, distance, paths, features, model.path_length)
        torch.testing.assert_close(
            model.bias(graph, *with_tokens(graph)[:2]).view(8, 8, 2), bias, rtol=1e-10, atol=1e-10
        )
        nodes = graph.x @ w["node_encoder.linear.weight"].T + w["node_encoder.linear.bias"]
        x = reference.model(w, nodes, graph.edge_index, bias, 2, 2, arguments.get("norm") == "pre")
        expected = reference.head(w, x[:1] if level == "graph" else x[1:])
        torch.testing.assert_close(model(graph), expected, rtol=1e-10, atol=1e-10)


def test_parameter_count():
    """Graphormer-slim (12 layers, width 80) has 631,393 parameters.

    The implementation's tables have a row for padding each (and 512 types of atom, 1,536 of edge, 512 degrees, 512
    distances). Its unused pooler and the unused weights of 123 positions on a path count, too.
    """
    slim = {"in_dim": [513], "out_dim": 1, "edge_dim": [1537], "max_distance": 510, "max_degree": 511}
    assert sum(p.numel() for p in create_model("graphormer", **slim, build_unused=True).parameters()) == 631_393
    assert sum(p.numel() for p in create_model("graphormer", **slim).parameters()) == 631_393 - 6_480 - 123 * 64


@pytest.mark.slow
def test_separates_by_distances():
    """Two triangles and a cycle of six are equal for 1-WL and differ in distances (Section 3.4 and Figure 2)."""
    two = of([(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3)], 6)
    six = of([(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0)], 6)
    model = build(edge_dim=None).eval()
    two.x, six.x = torch.ones(6, 4).double(), torch.ones(6, 4).double()
    assert (model(two) - model(six)).abs().max() > 1e-6


def test_categorical_edges_are_averaged():
    graph = of([(0, 1), (1, 2)], 3)
    graph.edge_attr = torch.tensor([[1, 0], [2, 1], [0, 1], [1, 1]])
    model = build(edge_dim=[3, 2])
    table = model.edge_encoder.embedding.weight
    features = torch.stack([(table[a] + table[3 + b]) / 2 for a, b in graph.edge_attr.tolist()])
    stored = graph.encodings["shortest_path_edges"].view(3, 3, 3)
    first, second = stored[0, 2, :2].tolist()
    expected = (
        model.distance_bias.weight[2]
        + (features[first] @ model.path_weight[0] + features[second] @ model.path_weight[1]) / 2
    )
    torch.testing.assert_close(model.pair_bias(graph).view(3, 3, 2)[0, 2], expected)
