"""Small message-passing baselines, and their outputs by the reference."""

import torch
from torch import nn

from gt_models import create_model
from gt_models.batch import GraphBatch
from tests.gt_models import checks


def graphs(sizes=(5, 3, 6)) -> list[GraphBatch]:
    return checks.random_graphs(sizes, pair_encodings=(("rrwp", 3),))


def build(name: str, level: str = "node", **arguments) -> nn.Module:
    return create_model(
        name, **{"in_dim": 4, "out_dim": 2, "level": level, "hidden_dim": 8, "num_layers": 2} | arguments
    ).double()


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
