"""Exphormer: its equations link by link, symmetries, invalid input."""

import pytest
import torch
from torch import nn
from torch_geometric.nn import GATConv, GCNConv

from gt_models import create_model
from gt_models.batch import GraphBatch
from gt_models.encodings import compute
from tests.gt_models import checks
from tests.gt_models.baselines.cases import batch_normed, linear, redrawn


def build(**arguments) -> nn.Module:
    torch.manual_seed(0)
    sizes = {
        "in_dim": 4,
        "out_dim": 3,
        "level": "node",
        "hidden_dim": 6,
        "num_heads": 2,
        "num_layers": 2,
        "expander_degree": 2,
    }
    model = create_model("exphormer", **sizes | {"virtual_nodes": 2} | arguments).double()
    return redrawn(model)


def with_expander(sizes=(12, 3, 7)) -> list[GraphBatch]:
    graphs = checks.random_graphs(sizes)
    for graph in graphs:
        graph.encodings |= compute("expander", graph, degree=2) | compute("laplacian", graph, k=4, dtype=torch.float64)
    return graphs


@pytest.mark.parametrize("edge_dim", [None, 3])
@pytest.mark.parametrize(
    "arguments",
    [
        {"local_layer": "gat", "self_loops": True},
        {"local_layer": "gcn", "pre_layer": True},
        {"local_layer": "none"},
        {"local_layer": "gatedgcn", "laplacian_dim": 4, "pe_dim": 2},
    ],
)
def test_is_its_equations(edge_dim, arguments):
    graph, model, n = with_expander((12,))[0], build(edge_dim=edge_dim, **arguments).eval(), 12
    w, kinds = model.state_dict(), model.kinds.weight
    x = linear(w, "node_encoder.linear", graph.x)
    if "laplacian_dim" in arguments:
        vectors, values = (graph.encodings[f"laplacian_{name}"] for name in ("eigenvectors", "eigenvalues"))
        rows = []
        for i in range(n):
            pairs = [torch.stack([vectors[i, k], values[0, k]]) for k in range(4)]
            rows.append(
                sum(
                    linear(w, "laplacian_encoder.3", linear(w, "laplacian_encoder.0", p).clamp(min=0)).clamp(min=0)
                    for p in pairs
                )
            )
        x = torch.cat([x, torch.stack(rows)], 1)
    if "pre_layer" in arguments:
        x = batch_normed(w, "pre_norm", linear(w, "pre_linear", x)).clamp(min=0)
        x = x / x.square().sum(1, keepdim=True).sqrt()
    edges = (
        kinds[0].expand(graph.num_edges, 6) if edge_dim is None else linear(w, "edge_encoder.linear", graph.edge_attr)
    )
    links = [(j, i, edges[e]) for e, (j, i) in enumerate(graph.edge_index.T.tolist())]
    links += [(i, i, kinds[0]) for i in range(n)] * ("self_loops" in arguments)
    for i, row in enumerate(graph.encodings["expander"].tolist()):
        for j in row:
            links += [(j, i, kinds[1]), (i, j, kinds[1])]
    for v in range(2):
        links += [link for i in range(n) for link in ((i, n + v, kinds[2 + v]), (n + v, i, kinds[4 + v]))]
    state = torch.cat([x, w["virtual.weight"]])
    for layer in (f"layers.{i}" for i in range(2)):
        q, k, v = (linear(w, f"{layer}.attention.{name}", state).view(-1, 2, 3) for name in ("query", "key", "value"))
        heard = torch.zeros(n + 2, 2, 3, dtype=torch.float64)
        for i in range(n + 2):
            for h in range(2):
                above, below = torch.zeros(3, dtype=torch.float64), torch.tensor(0.0, dtype=torch.float64)
                for source, target, says in links:
                    if target == i:
                        e = linear(w, f"{layer}.attention.edge", says).view(2, 3)[h]
                        s = ((q[i, h] * k[source, h] * e).sum() / 3**0.5).clamp(-5, 5).exp()
                        above, below = above + s * v[source, h], below + s
                heard[i, h] = above / (below + 1e-6)
        heard, x = heard.flatten(1), state[:n]
        h = batch_normed(w, f"{layer}.attn_norm", x + heard[:n])
        if arguments["local_layer"] == "gatedgcn":
            nodes, edges = model.get_submodule(f"{layer}.local")(x, edges, graph.edge_index)
            h = h + batch_normed(w, f"{layer}.local_norm", nodes)
        elif arguments["local_layer"] != "none":
            kind = {"gat": lambda: GATConv(6, 3, 2, edge_dim=edge_dim and 6), "gcn": lambda: GCNConv(6, 6)}[
                arguments["local_layer"]
            ]
            local, attr = kind().double(), [edges] if edge_dim and arguments["local_layer"] == "gat" else []
            local.load_state_dict(model.get_submodule(f"{layer}.local").state_dict())
            h = h + batch_normed(w, f"{layer}.local_norm", x + local(x, graph.edge_index, *attr))
        h = batch_normed(
            w, f"{layer}.ffn_norm", h + linear(w, f"{layer}.ffn_out", linear(w, f"{layer}.ffn_in", h).clamp(min=0))
        )
        state = torch.cat([h, heard[n:]])
    torch.testing.assert_close(model(graph), linear(w, "head.0", state[:n]), rtol=1e-10, atol=1e-10)


def test_a_place_that_holds_no_node_is_no_edge():
    graph, model = with_expander((4,))[0], build().eval()
    assert (graph.encodings["expander"] < 0).any()
    links = [(i, j) for i, row in enumerate(graph.encodings["expander"].tolist()) for j in row if j >= 0]
    extra = torch.tensor(links + [(j, i) for i, j in links]).T
    plain = build(expander_degree=0, local_layer="none").eval()
    model = build(local_layer="none").eval()
    plain.load_state_dict(model.state_dict())
    with torch.no_grad():
        model.kinds.weight[1] = model.kinds.weight[0]
    joined = GraphBatch(graph.x, torch.cat([graph.edge_index, extra], 1), graph.ptr)
    torch.testing.assert_close(model(graph), plain(joined), rtol=1e-10, atol=1e-10)
