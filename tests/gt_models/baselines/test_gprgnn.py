"""GPR-GNN and APPNP: equations with dense matrices, torch_geometric's APPNP, symmetries, invalid input."""

import pytest
import torch
from torch import nn

from tests.gt_models.baselines.gprgnn_cases import NAMES, build, perceptron, with_loops


@pytest.mark.parametrize("name", NAMES)
def test_is_its_equations(name):
    graph, model = with_loops(), build(name).eval()
    if name == "gprgnn":
        nn.init.normal_(model.gamma)
    near = torch.eye(6, dtype=torch.float64)
    near[graph.edge_index[1], graph.edge_index[0]] = 1
    near = near / (near.sum(1)[:, None] * near.sum(1)).sqrt()
    h = z = perceptron(model, graph.x)
    if name == "gprgnn":
        z = sum(model.gamma[k] * torch.linalg.matrix_power(near, k) @ h for k in range(4))
    else:
        for _ in range(3):
            z = 0.8 * near @ z + 0.2 * h
    torch.testing.assert_close(model(graph), z, rtol=1e-7, atol=1e-7)  # gamma is float32


def test_only_gprgnn_learns_gamma():
    assert "gamma" in dict(build("gprgnn").named_parameters())
    assert "gamma" not in dict(build("appnp").named_parameters())
    model = build("gprgnn", alpha=0.0)
    assert model.gamma.tolist() == [0, 0, 0, 1]
    nn.init.normal_(model.gamma)
    model.reset_parameters()
    assert model.gamma.tolist() == [0, 0, 0, 1]
