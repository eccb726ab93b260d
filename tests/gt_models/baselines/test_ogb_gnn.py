"""OGB-LSC's GNNs with a virtual node: their equations node by node, symmetries, invalid input."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gt_models import create_model
from gt_models.baselines.ogb_gnn import CONVOLUTIONS
from gt_models.batch import GraphBatch
from tests.gt_models import checks
from tests.gt_models.baselines.cases import batch_normed, linear, redrawn


def graphs(sizes=(5, 3, 6)) -> list[GraphBatch]:
    return checks.random_graphs(sizes)


def build(convolution: str = "gin", **arguments) -> nn.Module:
    """A model whose running statistics affect the output."""
    torch.manual_seed(0)
    sizes = {"in_dim": 4, "edge_dim": 3, "out_dim": 2, "hidden_dim": 8, "num_layers": 3}
    model = create_model("ogb-gnn", **sizes | {"convolution": convolution} | arguments).double()
    return redrawn(model)


def convolved(
    w: dict[str, Tensor], name: str, convolution: str, h: Tensor, e: Tensor, edges: list[list[int]]
) -> Tensor:
    degree = [1 + sum(j == node for j, _ in edges) for node in range(len(h))]
    rows = []
    for i in range(len(h)):
        into = [(k, j) for k, (j, to) in enumerate(edges) if to == i]
        if convolution == "gcn":
            here = (linear(w, f"{name}.linear", h[i]) + w[f"{name}.root"]).clamp(min=0) / degree[i]
            sent = [
                (linear(w, f"{name}.linear", h[j]) + e[k]).clamp(min=0) / (degree[i] * degree[j]) ** 0.5
                for k, j in into
            ]
            rows.append(sum(sent, here))
        elif convolution == "gin":
            summed = sum(((h[j] + e[k]).clamp(min=0) for k, j in into), (1 + w[f"{name}.eps"]) * h[i])
            hidden = batch_normed(w, f"{name}.mlp.1", linear(w, f"{name}.mlp.0", summed)).clamp(min=0)
            rows.append(linear(w, f"{name}.mlp.3", hidden))
        else:
            sent = [linear(w, f"{name}.source", h[j]) for _, j in into] + [linear(w, f"{name}.source", h[i])]
            edge = [e[k] for k, _ in into] + [torch.zeros_like(h[i])]
            raw = [s + linear(w, f"{name}.target", h[i]) + b for s, b in zip(sent, edge, strict=True)]
            share = torch.stack([w[f"{name}.attention"] @ F.leaky_relu(r, 0.2) for r in raw]).exp()
            rows.append(sum(a * s for a, s in zip(share / share.sum(), sent, strict=True)) + w[f"{name}.bias"])
    return torch.stack(rows)


@pytest.mark.parametrize(
    ("virtual_node", "residual", "edge_dim"), [(True, False, 3), (True, True, None), (False, False, 3)]
)
@pytest.mark.parametrize("convolution", CONVOLUTIONS)
def test_is_its_equations(convolution, virtual_node, residual, edge_dim):
    graph = graphs((6,))[0]
    model = build(convolution, virtual_node=virtual_node, residual=residual, edge_dim=edge_dim).eval()
    w = model.state_dict()
    h, v = linear(w, "encoder.linear", graph.x), w.get("virtual", torch.zeros(8, dtype=torch.float64))
    for i in range(3):
        h = h + v
        e = (
            torch.zeros(graph.num_edges, 8)
            if edge_dim is None
            else linear(w, f"edge_encoders.{i}.linear", graph.edge_attr)
        )
        update = convolved(w, f"convs.{i}", convolution, h, e, graph.edge_index.T.tolist())
        update = batch_normed(w, f"norms.{i}", update)
        if i < 2:
            update = update.clamp(min=0)
        if virtual_node and i < 2:
            moved = h.sum(0) + v
            for k in range(2):
                moved = batch_normed(
                    w, f"virtual_mlps.{i}.norms.{k}", linear(w, f"virtual_mlps.{i}.linears.{k}", moved)
                ).clamp(min=0)
            v = v + moved if residual else moved
        h = h + update if residual else update
    torch.testing.assert_close(model(graph), linear(w, "head", h.sum(0))[None], rtol=1e-10, atol=1e-10)


def test_columns_of_categories_begin_as_ogbs_encoders():
    model = build(in_dim=[100, 2], edge_dim=[5, 6])
    first, second = model.encoder.embedding.weight.split([100, 2])
    assert first.abs().max() <= (6 / 108) ** 0.5 < second.abs().max() <= (6 / 10) ** 0.5


def test_a_norm_of_the_virtual_node_is_called():
    class Doubled(nn.BatchNorm1d):
        def forward(self, x):
            return 2 * super().forward(x)

    model = build().eval()
    batch = checks.collate(graphs())
    before = model(batch)
    old = model.virtual_mlps[0].norms[1]
    new = model.virtual_mlps[0].norms[1] = Doubled(8).double().eval()
    new.load_state_dict(old.state_dict())
    assert not torch.allclose(model(batch), before)


def test_another_norm_of_the_virtual_node_with_one_graph():
    model = build().train()
    model.virtual_mlps[0].norms[0] = nn.LayerNorm(8).double()
    assert model(graphs()[0]).isfinite().all()
