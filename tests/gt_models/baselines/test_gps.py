"""GraphGPS: the authors' outputs, torch_geometric's layer, the parameter count."""

import torch
from torch import nn
from torch_geometric.nn import GINEConv, GPSConv

from gt_models import create_model
from gt_models.baselines.gps import GPSLayer, pack
from gt_models.batch import GraphBatch
from tests.gt_models import checks


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
