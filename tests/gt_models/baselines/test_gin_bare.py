"""GIN without a Linear before or after its layers: its equation, symmetries, invalid input."""

import pytest
import torch
from torch import nn

from gt_models import create_model
from gt_models.batch import GraphBatch
from tests.gt_models import checks
from tests.gt_models.baselines.cases import redrawn


def graphs(sizes=(5, 3, 6)) -> list[GraphBatch]:
    return checks.random_graphs(sizes)


def build(level: str = "node", **arguments) -> nn.Module:
    """A model whose running statistics affect the output."""
    model = create_model(
        "gin-bare", **{"in_dim": 4, "out_dim": 2, "level": level, "hidden_dim": 8, "num_layers": 2} | arguments
    ).double()
    return redrawn(model, vectors=False)


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("pooling", ["sum", "mean"])
def test_is_its_equation(layers, pooling):
    graph, model = graphs((6,))[0], build(num_layers=layers).eval()
    w, x = model.state_dict(), graph.x
    for i in range(layers):
        summed = x.clone()
        for source, target in graph.edge_index.T.tolist():
            summed[target] += x[source]
        h = summed @ w[f"mlps.{i}.0.weight"].T + w[f"mlps.{i}.0.bias"]
        scale = (w[f"mlps.{i}.1.running_var"] + 1e-5).sqrt()
        h = (h - w[f"mlps.{i}.1.running_mean"]) / scale * w[f"mlps.{i}.1.weight"] + w[f"mlps.{i}.1.bias"]
        x = torch.relu(h) @ w[f"mlps.{i}.3.weight"].T + w[f"mlps.{i}.3.bias"]
        x = torch.relu(x) if i < layers - 1 else x
    torch.testing.assert_close(model(graph), x, rtol=1e-10, atol=1e-10)
    whole = build("graph", num_layers=layers, pooling=pooling).eval()
    whole.load_state_dict(w)
    torch.testing.assert_close(whole(graph), getattr(x, pooling)(0, keepdim=True), rtol=1e-10, atol=1e-10)
