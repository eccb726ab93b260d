"""Small GPR-GNNs and APPNPs, and a graph with self-loops."""

import torch
from torch import Tensor, nn

from gt_models import create_model
from gt_models.batch import GraphBatch
from tests.gt_models import checks

NAMES = ["gprgnn", "appnp"]


def build(name: str, **arguments) -> nn.Module:
    torch.manual_seed(0)
    rates = {"dropout": 0.0} | ({"step_dropout": 0.0} if name == "gprgnn" else {})
    return create_model(
        name, **{"in_dim": 4, "out_dim": 3, "hidden_dim": 6, "steps": 3, "alpha": 0.2} | rates | arguments
    ).double()


def perceptron(model: nn.Module, x: Tensor) -> Tensor:
    w = model.state_dict()
    hidden = (x @ w["encoder.linear.weight"].T + w["encoder.linear.bias"]).clamp(min=0)
    return hidden @ w["head.weight"].T + w["head.bias"]


def with_loops() -> GraphBatch:
    graph = checks.random_graphs((6,))[0]
    return GraphBatch(graph.x, torch.cat([graph.edge_index, torch.tensor([[2, 4], [2, 4]])], 1), graph.ptr)
