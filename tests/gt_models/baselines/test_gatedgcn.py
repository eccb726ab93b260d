"""GatedGCN: its equations node by node, symmetries, invalid input."""

import pytest
import torch
from torch import Tensor, nn

from gt_models import create_model
from gt_models.batch import GraphBatch
from tests.gt_models import checks
from tests.gt_models.baselines.cases import batch_normed, linear


def graphs(sizes=(5, 3, 6)) -> list[GraphBatch]:
    return checks.random_graphs(sizes)


def build(level: str = "graph", **arguments) -> nn.Module:
    """A model whose running statistics affect the output."""
    torch.manual_seed(0)
    model = create_model(
        "gatedgcn",
        **{"in_dim": 4, "edge_dim": 3, "out_dim": 2, "level": level, "hidden_dim": 8, "num_layers": 2} | arguments,
    ).double()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2.0)
            nn.init.normal_(module.weight)
    return model


def normed(w: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    return batch_normed(w, name, x) if f"{name}.weight" in w else x


@pytest.mark.parametrize("batch_norm", [False, True])
@pytest.mark.parametrize(("edge_dim", "edge_features"), [(None, True), (3, True), (3, False)])
def test_is_its_equations(batch_norm, edge_dim, edge_features):
    graph, model = (
        graphs((6,))[0],
        build("node", batch_norm=batch_norm, edge_dim=edge_dim, edge_features=edge_features).eval(),
    )
    w = model.state_dict()
    h = linear(w, "encoder.linear", graph.x)
    one = torch.ones(graph.num_edges, 1, dtype=h.dtype)
    e = (
        linear(w, "edge_start", one)
        if edge_dim is None or not edge_features
        else linear(w, "edge_encoder.linear", graph.edge_attr)
    )
    for layer in ("layers.0", "layers.1"):
        gates = torch.stack(
            [
                linear(w, f"{layer}.C", e[k]) + linear(w, f"{layer}.D", h[j]) + linear(w, f"{layer}.E", h[i])
                for k, (j, i) in enumerate(graph.edge_index.T.tolist())
            ]
        )
        rows = []
        for node in range(graph.num_nodes):
            into = [(k, j) for k, (j, i) in enumerate(graph.edge_index.T.tolist()) if i == node]
            above = sum(
                (torch.sigmoid(gates[k]) * linear(w, f"{layer}.B", h[j]) for k, j in into),
                torch.zeros(8, dtype=h.dtype),
            )
            below = sum((torch.sigmoid(gates[k]) for k, _ in into), torch.zeros(8, dtype=h.dtype))
            rows.append(linear(w, f"{layer}.A", h[node]) + above / (below + 1e-6))
        h = h + normed(w, f"{layer}.node_norm", torch.stack(rows)).clamp(min=0)
        e = e + normed(w, f"{layer}.edge_norm", gates).clamp(min=0)
    for number, name in enumerate(name for name in w if name.startswith("head") and name.endswith("weight")):
        h = linear(w, name.removesuffix(".weight"), h.clamp(min=0) if number else h)
    torch.testing.assert_close(model(graph), h, rtol=1e-10, atol=1e-10)
