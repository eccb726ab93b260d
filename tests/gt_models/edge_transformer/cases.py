"""Small Edge Transformers and graphs for them."""

import itertools

import torch
from torch import nn

from gt_models import create_model
from gt_models.batch import GraphBatch
from tests.gt_models import checks, oracles

RELEASED = {"name": "edge-transformer-released"}


def build(level="graph", name="edge-transformer", **arguments):
    settings = {
        "in_dim": 4,
        "out_dim": 3,
        "level": level,
        "edge_dim": 3,
        "hidden_dim": 8,
        "num_layers": 2,
        "num_heads": 2,
    }
    return create_model(name, **settings | arguments).double()


def redraw(model: nn.Module) -> nn.Module:
    """Draw weights so that every bias, norm and statistic affects the output."""
    with torch.no_grad():
        for tensor in itertools.chain(model.parameters(), model.buffers()):
            if tensor.is_floating_point():
                tensor.add_(0.3 * torch.rand_like(tensor))
    return model


def graphs(sizes=(5, 3, 6)) -> list[GraphBatch]:
    return checks.random_graphs(sizes, pair_encodings=(("rrwp", 3),))


def directed_graph(pairs: list[tuple[int, int]]) -> GraphBatch:
    """Graphs with edges in one direction, or with different features in each direction."""
    n = 1 + max(map(max, pairs))
    x, attr, rrwp = (
        torch.randn(rows, width, dtype=torch.float64) for rows, width in ((n, 4), (len(pairs), 3), (n * n, 3))
    )
    return GraphBatch(x, torch.tensor(pairs).T, torch.tensor([0, n]), attr, encodings={"rrwp": rrwp})


def embeddings(model: nn.Module, pair) -> torch.Tensor:
    model.eval()
    return torch.cat([model(oracles.to_batch(graph)) for graph in pair])


def tells_apart(model: nn.Module, pair) -> bool:
    first, second = embeddings(model, pair)
    gap, scale = float((first - second).abs().max()), float(first.abs().max())
    assert not 1e-11 < gap / scale < 1e-7, f"neither equal nor different: {gap} of {scale}"
    return gap / scale >= 1e-7
