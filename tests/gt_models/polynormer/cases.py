"""Small Polynormers and graphs for them."""

import itertools

import torch
from torch import nn

from gt_models import create_model
from gt_models.batch import GraphBatch
from tests.gt_models import checks

ATTENTION = ("local", "global", "local-to-global", "local-and-global")


def build(level="node", name="polynormer", **arguments):
    settings = {
        "in_dim": 4,
        "out_dim": 3,
        "level": level,
        "hidden_dim": 8,
        "num_heads": 2,
        "num_local_layers": 2,
        "num_global_layers": 2,
    }
    return create_model(name, **settings | arguments).double()


def redraw(model: nn.Module) -> nn.Module:
    """Draw weights so that every bias, norm, gate and statistic affects the output."""
    with torch.no_grad():
        for tensor in itertools.chain(model.parameters(), model.buffers()):
            if tensor.is_floating_point():
                tensor.add_(0.3 * torch.rand_like(tensor))
    return model


def graphs(sizes=(5, 3, 7)) -> list[GraphBatch]:
    return checks.random_graphs(sizes, node_encodings=(("second_eigenvector", 1),))


def messy_graph() -> GraphBatch:
    """Six nodes: a triangle, a self-loop (twice), a parallel edge, a directed edge, and an isolated node 5."""
    pairs = [(0, 1), (1, 0), (1, 2), (2, 1), (2, 0), (0, 2), (0, 0), (0, 0), (0, 1), (3, 4)]
    x, v2 = torch.randn(6, 4, dtype=torch.float64), torch.randn(6, 1, dtype=torch.float64)
    return GraphBatch(x, torch.tensor(pairs).T.contiguous(), torch.tensor([0, 6]), encodings={"second_eigenvector": v2})
