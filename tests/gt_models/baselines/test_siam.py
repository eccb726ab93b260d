"""SIAM: its equations pair by pair, symmetries, invalid input."""

import pytest
import torch
from torch import nn

from gt_models import create_model
from tests.gt_models import checks
from tests.gt_models.baselines.cases import redrawn

VARIANTS = [{}, {"normalisation": "batch", "last_activation": False}]


def build(**arguments) -> nn.Module:
    """A model whose running statistics affect the output."""
    torch.manual_seed(0)
    model = create_model(
        "siam", **{"in_dim": 4, "out_dim": 1, "set_dims": (8, 6), "pair_dims": (5,)} | arguments
    ).double()
    return redrawn(model, vectors=False)


@pytest.mark.parametrize("arguments", VARIANTS)
def test_is_its_equations(arguments):
    graph, model = checks.random_graphs((4,))[0], build(**arguments).eval()
    w = model.state_dict()
    elements = []
    for u in graph.x:
        for i, name in enumerate(["encoder.linear", "linears.0"]):
            u = w[f"{name}.weight"] @ u + w[f"{name}.bias"]
            if arguments:
                u = (
                    (u - w[f"norms.{i}.running_mean"])
                    / (w[f"norms.{i}.running_var"] + 1e-5).sqrt()
                    * w[f"norms.{i}.weight"]
                )
                u = u + w[f"norms.{i}.bias"]
            else:
                u = u / u.square().sum().sqrt()
            u = u.clamp(min=0) if i == 0 or not arguments else u
        elements.append(u)
    rows = []
    for i in range(4):
        for j in range(4):
            hidden = w["head.0.weight"] @ torch.cat([elements[j], elements[i]]) + w["head.0.bias"]
            rows.append(w["head.3.weight"] @ hidden.clamp(min=0) + w["head.3.bias"])
    torch.testing.assert_close(model(graph), torch.stack(rows), rtol=1e-10, atol=1e-10)
