"""GCN, GAT and GraphSAGE as tuned by Luo et al.: equations with dense matrices, symmetries, invalid input."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gt_models import create_model
from tests.gt_models import checks
from tests.gt_models.baselines.cases import redrawn

VARIANTS = [
    ("gcn", {}),
    ("gcn", {"normalisation": "layer", "residual": True}),
    ("gat", {"normalisation": "batch", "residual": True, "input_layer": True}),
    ("gat", {"num_heads": 2, "all_layers": True}),
    ("sage", {"normalisation": "layer"}),
    ("sage", {"normalisation": "batch", "residual": True, "all_layers": True}),
]


def graphs(sizes=(5, 3, 6)):
    return checks.random_graphs(sizes)


def build(convolution: str, **arguments) -> nn.Module:
    """A model whose running statistics affect the output."""
    torch.manual_seed(0)
    sizes = {"in_dim": 4, "out_dim": 2, "level": "node", "hidden_dim": 8, "num_layers": 2}
    model = create_model("classic-gnn", **sizes | {"convolution": convolution} | arguments).double()
    return redrawn(model)


def convolved(w: dict[str, Tensor], name: str, x: Tensor, neighbours: Tensor, heads: int) -> Tensor:
    """One convolution with dense matrices; neighbours [N, N] bool: (i, j) if j sends to i; with all self-loops."""
    adjacency = neighbours.to(x.dtype)
    if name == "gcn":
        scale = adjacency.sum(1).rsqrt()
        return (scale[:, None] * adjacency * scale) @ x @ w["lin.weight"].T + w["bias"]
    if name == "sage":
        mean = adjacency @ x / adjacency.sum(1, keepdim=True)
        return mean @ w["lin_l.weight"].T + w["lin_l.bias"] + x @ w["lin_r.weight"].T
    out = []
    for z, to, here in zip((x @ w["lin.weight"].T).chunk(heads, 1), w["att_dst"][0], w["att_src"][0], strict=True):
        scores = F.leaky_relu((z @ to)[:, None] + (z @ here), 0.2).masked_fill(~neighbours, -torch.inf)
        out.append(scores.softmax(1) @ z)
    return torch.cat(out, 1)


def by_equations(model: nn.Module, graph, convolution: str, heads: int) -> Tensor:
    w, neighbours = model.state_dict(), torch.eye(graph.num_nodes, dtype=torch.bool)
    neighbours[graph.edge_index[1], graph.edge_index[0]] = True
    x = graph.x if model.input_layer is None else graph.x @ w["input_layer.weight"].T + w["input_layer.bias"]
    states = []
    for i, norm in enumerate(model.norms):
        prefix = f"convs.{i}."
        update = convolved(
            {k.removeprefix(prefix): v for k, v in w.items() if k.startswith(prefix)}, convolution, x, neighbours, heads
        )
        if model.residuals is not None:
            update = update + x @ w[f"residuals.{i}.weight"].T + w[f"residuals.{i}.bias"]
        if isinstance(norm, nn.LayerNorm):
            update = (update - update.mean(1, keepdim=True)) / (
                update.var(1, unbiased=False, keepdim=True) + 1e-5
            ).sqrt()
        if isinstance(norm, nn.BatchNorm1d):
            update = (update - w[f"norms.{i}.running_mean"]) / (w[f"norms.{i}.running_var"] + 1e-5).sqrt()
        if not isinstance(norm, nn.Identity):
            update = update * w[f"norms.{i}.weight"] + w[f"norms.{i}.bias"]
        x = update.clamp(min=0)
        states.append(x)
    return (sum(states) if model.all_layers else x) @ w["head.weight"].T + w["head.bias"]


@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize(("convolution", "arguments"), VARIANTS)
def test_is_its_equations(convolution, arguments, loops):
    graph, model = graphs((6,))[0], build(convolution, **arguments).eval()
    if loops:  # a stored self-loop counts once
        graph.edge_index = torch.cat([graph.edge_index, torch.tensor([[2, 4], [2, 4]])], 1)
        graph.edge_attr = None
    expected = by_equations(model, graph, convolution, arguments.get("num_heads", 1))
    torch.testing.assert_close(model(graph), expected, rtol=1e-10, atol=1e-10)
