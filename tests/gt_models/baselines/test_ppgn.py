"""PPGN: its equations with dense matrices, symmetries, expressivity, invalid input."""

import pytest
import torch
from torch import nn

from gt_models import create_model
from gt_models.batch import GraphBatch
from tests.gt_models import checks
from tests.gt_models.baselines.cases import redrawn

VARIANTS = [{}, {"edge_dim": None}, {"features": False, "normalisation": "batch"}]


def build(**arguments) -> nn.Module:
    torch.manual_seed(0)
    sizes = {"in_dim": 4, "edge_dim": 3, "out_dim": 2, "hidden_dim": 8, "num_layers": 2}
    model = create_model("ppgn", **sizes | arguments).double()
    for parameter in model.parameters():
        if parameter.dim() == 1:
            nn.init.normal_(parameter)
    return model


def statistics(model: nn.Module) -> nn.Module:
    return redrawn(model, vectors=False)


@pytest.mark.parametrize("arguments", VARIANTS)
def test_is_its_equations(arguments):
    graph, model = checks.random_graphs((5,))[0], statistics(build(**arguments)).eval()
    w, n = model.state_dict(), 5
    x = torch.zeros(n, n, 1, dtype=torch.float64)
    for i, j in graph.edge_index.T.tolist():
        x[i, j] = 1
    if not arguments.get("features", True):
        x = x + torch.eye(n)[..., None]
    else:
        if arguments.get("edge_dim", 3):
            e = torch.zeros(n, n, 3, dtype=torch.float64)
            for k, (i, j) in enumerate(graph.edge_index.T.tolist()):
                e[i, j] = graph.edge_attr[k]
            x = torch.cat([x, e], 2)
        x = torch.cat([x, torch.stack([torch.diag(column) for column in graph.x.T], 2)], 2)
    score = torch.zeros(2, dtype=torch.float64)
    for b in range(2):
        sides = []
        for side in ("first", "second"):
            m = x
            for layer in range(2):
                m = (m @ w[f"blocks.{b}.{side}.{layer}.weight"].T + w[f"blocks.{b}.{side}.{layer}.bias"]).clamp(min=0)
            sides.append(m)
        product = torch.stack([sides[0][..., c] @ sides[1][..., c] for c in range(8)], 2)
        x = torch.cat([x, product], 2) @ w[f"blocks.{b}.skip.weight"].T + w[f"blocks.{b}.skip.bias"]
        if model.norms is not None:
            x = (x - w[f"norms.{b}.running_mean"]) / (w[f"norms.{b}.running_var"] + 1e-5).sqrt()
        on = torch.stack([x[i, i] for i in range(n)]).amax(0)
        off = torch.stack([x[i, j] for i in range(n) for j in range(n) if i != j]).amax(0)
        score = score + w[f"heads.{b}.weight"] @ torch.cat([on, off]) + w[f"heads.{b}.bias"]
    if model.norms is not None:
        score = (score - w["out_norm.running_mean"]) / (w["out_norm.running_var"] + 1e-5).sqrt()
    torch.testing.assert_close(model(graph)[0], score, rtol=1e-10, atol=1e-10)


def circulant(n: int, steps: tuple[int, ...]) -> GraphBatch:
    edges = torch.tensor([[i, (i + s) % n] for i in range(n) for s in (*steps, *(-s for s in steps))]).T
    return GraphBatch(torch.ones(n, 1, dtype=torch.float64), edges, torch.tensor([0, n]))


def test_distinguishes_what_colour_refinement_does_not():
    """A hexagon and two triangles have different outputs, a relabelled hexagon has the same."""
    model = build(in_dim=1, edge_dim=None, features=False)
    one, hexagon = circulant(3, (1,)), circulant(6, (1,))
    two = GraphBatch(torch.cat([one.x] * 2), torch.cat([one.edge_index, one.edge_index + 3], 1), hexagon.ptr)
    assert (model(hexagon) - model(two)).abs().max() > 1e-3 * model(two).abs().max()
    torch.testing.assert_close(model(checks.permute(hexagon, torch.randperm(6))), model(hexagon))


def test_categories_are_embedded():
    batch = checks.collate(checks.random_graphs())
    batch.x, batch.edge_attr = (
        torch.zeros(batch.num_nodes, 2, dtype=torch.long),
        torch.ones(batch.num_edges, 1, dtype=torch.long),
    )
    assert build(in_dim=[3, 4], edge_dim=[5])(batch).shape == (3, 2)
