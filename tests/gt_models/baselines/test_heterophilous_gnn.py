"""The GNNs of the heterophilous benchmark: their equations node by node, symmetries, invalid input."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gt_models import create_model
from gt_models.baselines.heterophilous_gnn import LAYERS
from gt_models.batch import GraphBatch
from tests.gt_models import checks
from tests.gt_models.baselines.cases import linear, redrawn

HEADS = 2


def graphs(sizes=(5, 3, 6)) -> list[GraphBatch]:
    return checks.random_graphs(sizes)


def build(layer: str, **arguments) -> nn.Module:
    torch.manual_seed(0)
    sizes = {"in_dim": 4, "out_dim": 2, "hidden_dim": 8, "num_layers": 2, "num_heads": HEADS, "dropout": 0.0}
    model = create_model("heterophilous-gnn", **sizes | {"layer": layer} | arguments).double()
    return redrawn(model)


def feed_forward(w: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    return linear(w, f"{name}out", F.gelu(linear(w, f"{name}hidden", x)))


def aggregated(w: dict[str, Tensor], name: str, layer: str, x: Tensor, into: list[list[int]]) -> Tensor:
    """The output of the equations, node by node; into[i] lists the senders of i."""
    if layer == "resnet":
        return feed_forward(w, name, x)
    leave = [sum(j in senders for senders in into) for j in range(len(x))]
    if layer.startswith("gat"):
        x = linear(w, f"{name}linear", x)
    rows = []
    for i, senders in enumerate(into):
        message = torch.zeros_like(x[i])
        if layer == "gcn":
            message = sum(x[j] / (leave[i] * leave[j]) ** 0.5 for j in senders)
        elif layer == "sage":
            message = sum((x[j] for j in senders), message) / max(len(senders), 1)
        elif senders:
            if layer.startswith("gat"):
                values = x
                scores = torch.stack(
                    [
                        F.leaky_relu(linear(w, f"{name}source", x[j]) + linear(w, f"{name}target", x[i]), 0.2)
                        for j in senders
                    ]
                )
            else:
                values = linear(w, f"{name}value", x)
                key = linear(w, f"{name}key", x[i]).view(HEADS, -1)
                queries = [linear(w, f"{name}query", x[j]).view(HEADS, -1) for j in senders]
                scores = torch.stack([(query * key).sum(1) / key.size(1) ** 0.5 for query in queries])
            share = scores.exp() / scores.exp().sum(0)  # [senders, heads]
            message = sum(share[k][:, None] * values[j].view(HEADS, -1) for k, j in enumerate(senders)).flatten()
        rows.append(torch.cat([x[i], message]) if layer == "sage" or layer.endswith("sep") else message)
    if layer.startswith("gt"):
        return linear(w, f"{name}out", torch.stack(rows))
    return feed_forward(w, f"{name}feed_forward." if layer.startswith("gat") else name, torch.stack(rows))


@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("layer", LAYERS)
def test_is_its_equations(layer, loops):
    graph, model = graphs((6,))[0], build(layer).eval()
    if loops:  # and a node without incoming edges
        heard = graph.edge_index[:, graph.edge_index[1] != 5]
        graph = GraphBatch(graph.x, torch.cat([heard, torch.tensor([[2, 4], [2, 4]])], 1), graph.ptr)
    w = model.state_dict()
    pairs = [(j, i) for j, i in graph.edge_index.T.tolist() if j != i or layer not in ("gcn", "gat", "gt")]
    if layer in ("gcn", "gat", "gt"):
        pairs += [(i, i) for i in range(6)]
    into = [[j for j, i in pairs if i == node] for node in range(6)]
    x = F.gelu(linear(w, "encoder.linear", graph.x))
    for number in range(len(model.layers)):
        kind = "resnet" if layer.startswith("gt") and number % 2 else layer
        normed = F.layer_norm(x, (8,), w[f"norms.{number}.weight"], w[f"norms.{number}.bias"])
        x = x + aggregated(w, f"layers.{number}.", kind, normed, into)
    x = F.layer_norm(x, (8,), w[f"norms.{len(model.layers)}.weight"], w[f"norms.{len(model.layers)}.bias"])
    torch.testing.assert_close(model(graph), linear(w, "head", x), rtol=1e-10, atol=1e-10)
