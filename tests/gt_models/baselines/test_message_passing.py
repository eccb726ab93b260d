"""GAT, GraphSAGE, GIN and GCNII: their equations, and checks of every model."""

import pytest
import torch
from torch import nn

from gt_models import create_model
from gt_models.batch import GraphBatch, MissingEncoding
from tests.gt_models import checks
from tests.gt_models.reference import message_passing as reference

VARIANTS = [
    ("gat", {}),
    ("gat", {"edge_dim": 3, "num_heads": 2, "residual": True}),
    ("gat", {"version": "v2", "edge_dim": 3, "num_heads": 4, "normalisation": "layer"}),
    ("gat", {"version": "v2", "self_loops": False, "rrwp_dim": 2}),
    ("sage", {}),
    ("sage", {"aggregation": "max", "residual": True, "normalisation": "layer"}),
    ("sage", {"aggregation": "sum", "unit_norm": True, "activation": "gelu", "pooling": "max"}),
    ("gin", {"mlp_norm": False, "normalisation": "none"}),
    ("gin", {"mlp_norm": False, "normalisation": "layer", "edge_dim": 3, "train_eps": True, "readout": "all"}),
    ("gcnii", {}),
    ("gcnii", {"shared_weights": False, "residual": True, "normalisation": "layer"}),
]
NAMES = sorted({name for name, _ in VARIANTS})


def graphs(sizes=(5, 3, 6)) -> list[GraphBatch]:
    return checks.random_graphs(sizes, pair_encodings=(("rrwp", 3),))


def build(name: str, level: str = "node", **arguments) -> nn.Module:
    return create_model(
        name, **{"in_dim": 4, "out_dim": 2, "level": level, "hidden_dim": 8, "num_layers": 2} | arguments
    ).double()


@pytest.mark.slow
@pytest.mark.parametrize("level", ["node", "graph"])
@pytest.mark.parametrize(("name", "arguments"), VARIANTS)
def test_sound(name, arguments, level):
    checks.assert_sound(lambda: build(name, level, **arguments), graphs(), level, ("rrwp",))


@pytest.mark.parametrize("name", NAMES)
def test_batch_norm(name):
    model = build(name, "graph", normalisation="batch", num_layers=3)
    model(checks.collate(graphs()))
    assert model.norms[2].running_mean.abs().max() > 0
    checks.assert_batch_equals_singles(model, graphs())
    checks.assert_equivariant(model, graphs()[0], "graph", ("rrwp",))


def layer(model: nn.Module, index: int) -> dict[str, torch.Tensor]:
    return model.convs[index].state_dict()


def by_equations(model: nn.Module, graph: GraphBatch, convolution) -> torch.Tensor:
    """Encoder, `convolution(weights, layer, x, x_0, edges)` and ReLU twice, head."""
    w = model.state_dict()
    first = x = graph.x @ w["encoder.linear.weight"].T + w["encoder.linear.bias"]
    edges = None
    if model.edge_encoder is not None:
        edges = graph.edge_attr @ w["edge_encoder.linear.weight"].T + w["edge_encoder.linear.bias"]
    states = [x]
    for i in range(2):
        x = torch.relu(convolution(layer(model, i), i, x, first, edges))
        states.append(x)
    return (torch.cat(states, 1) if model.all_layers else x) @ w["head.weight"].T + w["head.bias"]


@pytest.mark.parametrize("edge_dim", [None, 3])
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_gat_is_its_equations(version, edge_dim):
    graph, model = graphs((6,))[0], build("gat", num_heads=2, version=version, edge_dim=edge_dim)
    nn.init.normal_(model.convs[0].bias)
    form = reference.gat if version == "v1" else reference.gatv2
    expected = by_equations(model, graph, lambda w, _, x, __, edges: form(w, x, graph.edge_index, edges, 2))
    torch.testing.assert_close(model(graph), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("aggregation", "unit_norm"), [("mean", False), ("sum", True), ("max", False)])
def test_sage_is_its_equations(aggregation, unit_norm):
    graph, model = graphs((6,))[0], build("sage", aggregation=aggregation, unit_norm=unit_norm)
    expected = by_equations(
        model, graph, lambda w, _, x, __, ___: reference.sage(w, x, graph.edge_index, aggregation, unit_norm)
    )
    torch.testing.assert_close(model(graph), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("edge_dim", "eps", "readout"), [(None, 0.0, "last"), (3, 0.0, "all"), (3, 0.7, "last")])
def test_gin_is_its_equations(edge_dim, eps, readout):
    arguments = {"edge_dim": edge_dim, "train_eps": eps > 0, "readout": readout}
    graph, model = graphs((6,))[0], build("gin", mlp_norm=False, normalisation="none", **arguments)
    for conv in model.convs:
        conv.eps.data.fill_(eps)
    expected = by_equations(model, graph, lambda w, _, x, __, edges: reference.gin(w, x, graph.edge_index, edges, eps))
    torch.testing.assert_close(model(graph), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("shared", [True, False])
def test_gcnii_is_its_equations(shared):
    graph, model = graphs((6,))[0], build("gcnii", alpha=0.3, theta=1.0, shared_weights=shared)
    expected = by_equations(
        model, graph, lambda w, i, x, first, _: reference.gcnii(w, x, first, graph.edge_index, i + 1, 0.3, 1.0)
    )
    torch.testing.assert_close(model(graph), expected, rtol=1e-10, atol=1e-10)


def test_gin_counts_where_gat_averages():
    """Attention and means do not distinguish one neighbour from two equal ones, sums do (Xu et al. 2019, Section 5)."""
    one = GraphBatch(torch.ones(2, 4, dtype=torch.float64), torch.tensor([[1], [0]]), torch.tensor([0, 2]))
    two = GraphBatch(torch.ones(3, 4, dtype=torch.float64), torch.tensor([[1, 2], [0, 0]]), torch.tensor([0, 3]))
    for name, same in (("gat", True), ("sage", True), ("gin", False)):
        model = build(name).eval()
        assert torch.allclose(model(one)[0], model(two)[0]) is same


@pytest.mark.parametrize("name", NAMES)
def test_unusual_graphs(name):
    def graph(n: int, pairs: list[tuple[int, int]]) -> GraphBatch:
        edges = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).T
        return GraphBatch(
            torch.randn(n, 4, dtype=torch.float64),
            edges,
            torch.tensor([0, n]),
            torch.randn(len(pairs), 3, dtype=torch.float64),
        )

    # empty, one node, isolated nodes, a self-loop with a directed and a doubled edge
    unusual = [graph(0, []), graph(1, []), graph(3, []), graph(4, [(0, 0), (0, 1), (2, 3), (2, 3)])]
    edges = {"edge_dim": 3} if name in ("gat", "gin") else {}
    for level, rows in (("node", 8), ("graph", 4)):
        model = build(name, level, **edges)
        assert model(checks.collate(unusual)).shape == (rows, 2)
        assert model(checks.collate(unusual)).isfinite().all()
        checks.assert_batch_equals_singles(model, unusual)


def test_categorical_features():
    model = build("gin", "graph", in_dim=[5, 2], edge_dim=[4])
    graph = graphs((5,))[0]
    graph.x, graph.edge_attr = torch.tensor([[4, 1]] * 5), torch.zeros(graph.num_edges, 1, dtype=torch.long)
    assert model(graph).shape == (1, 2)


def test_bad_arguments_and_input():
    for name in NAMES:
        with pytest.raises(ValueError, match="it predicts: node, graph"):
            build(name, "pair")
        with pytest.raises(ValueError, match="at least one layer"):
            build(name, num_layers=0)
        with pytest.raises(MissingEncoding, match="compute it wider"):
            build(name, rrwp_dim=4)(graphs()[0])
    with pytest.raises(ValueError, match="does not split into 3 heads"):
        build("gat", num_heads=3)
    with pytest.raises(ValueError, match="known: v1, v2"):
        build("gat", version="v3")
    with pytest.raises(ValueError, match="known: mean, max, sum"):
        build("sage", aggregation="median")
    with pytest.raises(ValueError, match="known: last, all"):
        build("gin", readout="first")
    graph = graphs()[0]
    graph.edge_attr = None
    with pytest.raises(ValueError, match="the batch has no edge_attr"):
        build("gin", edge_dim=3)(graph)
