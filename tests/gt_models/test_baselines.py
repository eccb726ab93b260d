"""The MLP and GCN baselines."""

import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import MLP as TorchGeometricMLP

from gt_models import create_model, model_info
from gt_models.batch import GraphBatch, MissingEncoding
from tests.gt_models import checks

GCN_VARIANTS = [
    {},
    {"normalisation": "batch", "residual": True, "pooling": "sum", "num_layers": 3},
    {"normalisation": "layer", "activation": "gelu", "pooling": "max"},
    {"rrwp_dim": 3},
    {"rrwp_dim": 2, "normalisation": "layer", "residual": True},
]


def graphs(sizes=(5, 3, 6)) -> list[GraphBatch]:
    return checks.random_graphs(sizes, pair_encodings=(("rrwp", 3),), node_encodings=(("laplacian_eigenvectors", 4),))


def build(name="gcn", level="node", **arguments) -> nn.Module:
    return create_model(name, **{"in_dim": 4, "out_dim": 2, "level": level, "hidden_dim": 8} | arguments).double()


@pytest.mark.parametrize("level", ["node", "graph"])
@pytest.mark.parametrize("arguments", GCN_VARIANTS)
def test_gcn_sound(arguments, level):
    # a bias before a batch norm has no gradient, so every parameter is asked for in the other variants only
    if arguments.get("normalisation") == "batch":
        checks.assert_gradients_reach(
            build(level=level, **arguments), checks.collate(graphs()), except_for=tuple(f"convs.{i}.bias" for i in range(3))
        )
        checks.assert_batch_equals_singles(build(level=level, **arguments), graphs())
        checks.assert_equivariant(build(level=level, **arguments), graphs()[0], level, ("rrwp",))
    else:
        checks.assert_sound(lambda: build(level=level, **arguments), graphs(), level, ("rrwp",))


@pytest.mark.parametrize("level", ["node", "graph"])
@pytest.mark.parametrize("arguments", [{}, {"num_layers": 1}, {"num_layers": 3, "activation": "gelu", "pooling": "sum"}])
def test_mlp_sound(arguments, level):
    checks.assert_sound(lambda: build("mlp", level, **arguments), graphs(), level, ("rrwp",))


def test_gcn_is_its_equation():
    """X <- relu(D^-1/2 (A + I) D^-1/2 X W + b), D the degrees of A + I (Kipf and Welling 2017, Eq. 2)."""
    graph, model = graphs((6,))[0], build(num_layers=2, rrwp_dim=2).eval()
    w, n = model.state_dict(), 6
    adjacency = torch.eye(n, dtype=torch.float64)
    adjacency[graph.edge_index[1], graph.edge_index[0]] = 1.0
    scale = adjacency.sum(1).rsqrt()
    walk = graph.encodings["rrwp"].view(n, n, 3)[range(n), range(n), :2]
    x = (
        torch.cat([graph.x, walk], 1) @ torch.cat([w["encoder.linear.weight"], w["encoding_encoder.weight"]], 1).T
        + w["encoder.linear.bias"]
    )
    for i in range(2):
        x = torch.relu((scale[:, None] * adjacency * scale) @ x @ w[f"convs.{i}.lin.weight"].T + w[f"convs.{i}.bias"])
    torch.testing.assert_close(model(graph), x @ w["head.weight"].T + w["head.bias"], rtol=1e-10, atol=1e-10)


def test_mlp_is_torch_geometrics():
    graph, model = graphs((6,))[0], build("mlp", num_layers=2).eval()
    theirs = TorchGeometricMLP([4, 8, 8, 2], norm=None).double().eval()
    for i, ours in enumerate((model.encoder.linear, model.mlp[0], model.head)):
        theirs.lins[i].load_state_dict(ours.state_dict())
    torch.testing.assert_close(model(graph), theirs(graph.x))


def test_mlp_ignores_edges():
    graph, model = graphs((6,))[0], build("mlp")
    without = GraphBatch(graph.x, graph.edge_index[:, :0], graph.ptr)
    assert torch.equal(model(graph), model(without))


def test_laplacian_signs_are_flipped_in_training_only():
    batch = checks.collate(graphs())
    model = build(laplacian_dim=3)
    assert any(not torch.equal(model(batch), model(batch)) for _ in range(5))
    model.eval()
    assert torch.equal(model(batch), model(batch))
    checks.assert_batch_equals_singles(model, graphs())


@pytest.mark.parametrize("name", ["mlp", "gcn"])
def test_unusual_graphs(name):
    def graph(n: int, pairs: list[tuple[int, int]]) -> GraphBatch:
        return GraphBatch(
            torch.randn(n, 4, dtype=torch.float64), torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).T, torch.tensor([0, n])
        )

    # empty, one node, isolated nodes, a self-loop with a directed and a doubled edge
    unusual = [graph(0, []), graph(1, []), graph(3, []), graph(4, [(0, 0), (0, 1), (2, 3), (2, 3)])]
    for level, rows in (("node", 8), ("graph", 4)):
        model = build(name, level)
        assert model(checks.collate(unusual)).shape == (rows, 2)
        assert model(checks.collate(unusual)).isfinite().all()
        checks.assert_batch_equals_singles(model, unusual)


def test_face():
    assert model_info("gcn").encodings == ("rrwp", "laplacian_eigenvectors")
    graph = graphs((4,))[0]
    data = Data(x=graph.x, edge_index=graph.edge_index)
    for name in ("mlp", "gcn"):
        model = build(name, dropout=0.5)
        before = model.head.weight.clone()
        model.reset_parameters()
        assert not torch.equal(before, model.head.weight)
        assert not torch.equal(model(data), model(data))
        model.eval()
        assert torch.equal(model(data), model(graph))


def test_bad_arguments_and_input():
    for name in ("mlp", "gcn"):
        with pytest.raises(ValueError, match="it predicts: node, graph"):
            build(name, "pair")
        with pytest.raises(ValueError, match="known: sum, mean, max"):
            build(name, pooling="median")
        with pytest.raises(ValueError, match="at least one layer"):
            build(name, num_layers=0)
        with pytest.raises(ValueError, match="unknown activation"):
            build(name, activation="rely")
    with pytest.raises(ValueError, match="known: none, batch, layer"):
        build(normalisation="group")
    with pytest.raises(MissingEncoding, match="compute it wider"):
        build(rrwp_dim=4)(graphs()[0])
    with pytest.raises(MissingEncoding, match="needs the encoding 'laplacian_eigenvectors'"):
        build(laplacian_dim=4)(checks.random_graphs((4,))[0])
