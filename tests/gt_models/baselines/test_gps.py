"""GraphGPS: its equations, the authors' outputs, torch_geometric's layer, the parameter count."""

import pytest
import torch
from torch import nn
from torch_geometric.nn import GINEConv, GPSConv

from gt_models import create_model
from gt_models.baselines.gps import GPSLayer, pack
from gt_models.batch import GraphBatch, MissingEncoding
from tests.gt_models import checks
from tests.gt_models.reference import gps as reference

VARIANTS = [
    {},
    {"edge_dim": None, "num_layers": 1, "head_layers": 0},
    {"local_layer": "gat", "head": "constant"},
    {"local_layer": "gcn", "attention": "performer", "num_features": 3, "activation": "gelu"},
    {"local_layer": "none"},
    {"attention": "none", "pooling": "mean"},
    {"rwse_dim": 3, "pe_dim": 2},
]


def graphs(sizes=(5, 3, 6)) -> list[GraphBatch]:
    made = checks.random_graphs(sizes, node_encodings=(("rwse", 3), ("laplacian_eigenvectors", 4)))
    for graph in made:
        graph.encodings["laplacian_eigenvalues"] = torch.rand(1, 4, dtype=torch.float64)
    return made


def build(level: str = "graph", **arguments) -> nn.Module:
    small = {
        "in_dim": 4,
        "out_dim": 2,
        "edge_dim": 3,
        "hidden_dim": 8,
        "num_layers": 2,
        "num_heads": 2,
        "norm": "layer",
        "head_layers": 1,
    }
    return create_model("gps", **small | {"level": level} | arguments).double()


def layer_of(norm: str = "batch") -> GPSLayer:
    """A layer in which all parameters and running statistics affect the output."""
    layer = GPSLayer(
        8,
        2,
        "gin",
        with_edges=True,
        attention="softmax",
        num_features=None,
        redraw_interval=None,
        dropout=0.0,
        attn_dropout=0.0,
        activation="relu",
        norm=norm,
    )
    layer = layer.double().eval()
    for name, value in [*layer.named_parameters(), *layer.named_buffers()]:
        if value.is_floating_point() and not name.endswith("eps"):
            nn.init.normal_(value, 1.0 if "var" in name else 0.0, 0.1 if "var" in name else 0.5)
    return layer


def graph_wise(graph: GraphBatch) -> GraphBatch:
    """All checks, without encodings of graphs, which `checks.permute` does not support."""
    graph.encodings.pop("laplacian_eigenvalues")
    return graph


@pytest.mark.slow
@pytest.mark.parametrize("level", ["graph", "node"])
@pytest.mark.parametrize("arguments", VARIANTS)
def test_sound(arguments, level):
    if arguments.get("attention") == "performer" or arguments.get("rwse_dim"):
        # random features are drawn for each model, and a batch norm removes constants
        checks.assert_batch_equals_singles(build(level, **arguments), graphs())
        checks.assert_gradients_reach(build(level, **arguments), checks.collate(graphs()))
        checks.assert_equivariant(build(level, **arguments), graph_wise(graphs()[0]), level)
    else:
        checks.assert_sound(lambda: build(level, **arguments), [graph_wise(g) for g in graphs()], level)


@pytest.mark.parametrize("level", ["graph", "node"])
def test_batch_norm(level):
    model = build(level, norm="batch", laplacian_dim=3, pe_dim=2)
    checks.assert_deterministic(lambda: build(level, norm="batch"), checks.collate(graphs()))
    model(checks.collate(graphs()))
    checks.assert_batch_equals_singles(model, graphs())


def test_layer_is_its_equations():
    layer, graph = layer_of(), graphs((5,))[0]
    x, edges = torch.randn(5, 8, dtype=torch.float64), torch.randn(graph.num_edges, 8, dtype=torch.float64)
    expected = reference.layer(layer.state_dict(), x, edges, graph.edge_index, 2)
    torch.testing.assert_close(layer(x, edges, graph, pack(graph)), expected, rtol=1e-10, atol=1e-10)


NAMES = {
    "local_model.": "local.",
    "self_attn.in_proj_": "attention.qkv.",
    "self_attn.out_proj.": "attention.out.",
    "norm1_local.": "local_norm.",
    "norm1_attn.": "attn_norm.",
    "norm2.": "ffn_norm.",
    "ff_linear1.": "ffn_in.",
    "ff_linear2.": "ffn_out.",
}


def renamed(case: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    out = {}
    for name, value in case.items():
        for old, new in NAMES.items():
            if name.startswith(prefix + old):
                out[new + name.removeprefix(prefix + old)] = value
    return out


def test_equals_the_authors(parity):
    case = parity("gps_layer_gine_transformer")
    layer = layer_of()
    layer.load_state_dict(renamed(case, "w."))
    ptr = torch.cat([torch.zeros(1, dtype=torch.long), case["in.batch"].bincount().cumsum(0)])
    graph = GraphBatch(case["in.x"], case["in.edge_index"], ptr)
    y = layer(case["in.x"], case["in.edge_attr"], graph, pack(graph))
    torch.testing.assert_close(y, case["out.y"], rtol=1e-10, atol=1e-10)
    loss = (y * case["in.loss_weight"]).sum()
    torch.testing.assert_close(loss, case["out.loss"], rtol=1e-10, atol=1e-10)
    loss.backward()
    grads = renamed(case, "g.")
    own = {name: p.grad for name, p in layer.named_parameters()}
    assert own.keys() == grads.keys()
    for name, grad in grads.items():
        torch.testing.assert_close(own[name], grad, rtol=1e-9, atol=1e-10)


def test_equals_torch_geometric():
    """The layer equals torch_geometric's GPSConv, whose weights have other names."""
    layer = layer_of()
    mlp = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    theirs = GPSConv(8, GINEConv(mlp), heads=2, norm="batch_norm", attn_type="multihead").double().eval()
    pairs = [
        (theirs.conv, layer.local),
        (theirs.attn.out_proj, layer.attention.out),
        (theirs.mlp[0], layer.ffn_in),
        (theirs.mlp[3], layer.ffn_out),
    ]
    pairs += [
        (theirs.norm1.module, layer.local_norm),
        (theirs.norm2.module, layer.attn_norm),
        (theirs.norm3.module, layer.ffn_norm),
    ]
    for other, own in pairs:
        other.load_state_dict(own.state_dict())
    theirs.attn.in_proj_weight.data, theirs.attn.in_proj_bias.data = (
        layer.attention.qkv.weight.data,
        layer.attention.qkv.bias.data,
    )
    batch = checks.collate(graphs())
    x, edges = (
        torch.randn(batch.num_nodes, 8, dtype=torch.float64),
        torch.randn(batch.num_edges, 8, dtype=torch.float64),
    )
    expected = theirs(x, batch.edge_index, batch.batch, edge_attr=edges)
    torch.testing.assert_close(layer(x, edges, batch, pack(batch)), expected, rtol=1e-10, atol=1e-10)


def test_encodings():
    graph, model = graphs((3,))[0], build("node", rwse_dim=3, laplacian_dim=4, pe_dim=2, hidden_dim=10).eval()
    model.rwse_norm.running_mean.normal_()
    w, walk = model.state_dict(), graph.encodings["rwse"]
    walk = (walk - w["rwse_norm.running_mean"]) / (1 + 1e-5) ** 0.5
    spectral = torch.zeros(3, 2, dtype=torch.float64)
    for node in range(3):
        for i in range(3):  # the fourth is padding
            pair = torch.stack(
                [graph.encodings["laplacian_eigenvectors"][node, i], graph.encodings["laplacian_eigenvalues"][0, i]]
            )
            hidden = torch.relu(w["laplacian_encoder.0.0.weight"] @ pair + w["laplacian_encoder.0.0.bias"])
            spectral[node] += torch.relu(w["laplacian_encoder.0.3.weight"] @ hidden + w["laplacian_encoder.0.3.bias"])
    features = graph.x @ w["node_encoder.linear.weight"].T + w["node_encoder.linear.bias"]
    expected = torch.cat([features, walk @ w["rwse_encoder.weight"].T + w["rwse_encoder.bias"], spectral], 1)
    torch.testing.assert_close(model.encode(graph), expected, rtol=1e-10, atol=1e-10)
    model.train()
    assert any(not torch.equal(model.encode(graph)[:, 8:], expected[:, 8:]) for _ in range(8))  # signs


def test_parameter_count():
    """423,465: GINE and softmax attention, 10 layers, width 64, RWSE of 20 steps, on ZINC."""
    zinc = {"in_dim": [21], "out_dim": 1, "edge_dim": [4], "rwse_dim": 20, "pe_dim": 28}
    assert sum(p.numel() for p in create_model("gps", **zinc).parameters()) == 423_465


@pytest.mark.parametrize("arguments", [{}, {"local_layer": "gat"}, {"attention": "performer"}])
def test_unusual_graphs_and_dropout(arguments):
    def graph(n: int, pairs: list[tuple[int, int]]) -> GraphBatch:
        edges = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).T
        return GraphBatch(
            torch.randn(n, 4, dtype=torch.float64),
            edges,
            torch.tensor([0, n]),
            torch.randn(len(pairs), 3, dtype=torch.float64),
        )

    unusual = [graph(0, []), graph(1, []), graph(3, []), graph(4, [(0, 0), (0, 1), (2, 3), (2, 3)])]
    model = build("node", **arguments)
    checks.assert_batch_equals_singles(model, unusual[1:])
    model.train()(checks.collate(unusual)).sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())
    model = build("node", dropout=0.5, **arguments)
    assert not torch.equal(model(unusual[3]), model(unusual[3]))


@pytest.mark.parametrize("attention", ["softmax", "performer"])
def test_reset_parameters_draws_everything_again(attention):
    model = build(attention=attention, norm="layer")
    before = {name: value.clone() for name, value in model.named_parameters()}
    model.reset_parameters()
    same = {name for name, value in model.named_parameters() if torch.equal(value, before[name])}
    assert all("norm" in name for name in same)


def test_random_features_are_drawn_again_after_their_interval():
    model, batch = build(attention="performer", redraw_interval=2).train(), checks.collate(graphs())
    drawn = []
    for _ in range(5):
        model(batch)
        drawn.append([layer.attention.features.projection.clone() for layer in model.layers])
    changed = [
        not torch.equal(a, b)
        for one, other in zip(drawn, drawn[1:], strict=False)
        for a, b in zip(one, other, strict=True)
    ]
    assert any(changed)
    assert not all(changed)


def test_bad_arguments_and_input():
    with pytest.raises(ValueError, match="does not split into 3 heads"):
        build(num_heads=3)
    with pytest.raises(ValueError, match="does not split into 3 heads"):
        build(num_heads=3, local_layer="gat")
    with pytest.raises(ValueError, match="known are gin, gat, gcn, none"):
        build(local_layer="gatedgcn")
    with pytest.raises(ValueError, match="neither message passing nor attention"):
        build(local_layer="none", attention="none")
    with pytest.raises(ValueError, match="set attn_dropout to 0"):
        build(attention="performer", attn_dropout=0.1)
    with pytest.raises(ValueError, match="lower pe_dim"):
        build(rwse_dim=3, pe_dim=8)
    with pytest.raises(ValueError, match="known: halving, constant"):
        build(head="linear")
    with pytest.raises(MissingEncoding, match="compute it wider"):
        build(rwse_dim=4, pe_dim=2)(graphs()[0])
    with pytest.raises(ValueError, match="cannot predict at level 'edge'"):
        build("edge")
