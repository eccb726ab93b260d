"""DIFFormer: its equations node by node, symmetries, invalid input."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from gt_models import create_model
from gt_models.batch import GraphBatch
from tests.gt_models import checks
from tests.gt_models.baselines.cases import linear, redrawn


def build(kernel: str = "simple", **arguments) -> nn.Module:
    torch.manual_seed(0)
    sizes = {"in_dim": 4, "out_dim": 3, "hidden_dim": 6, "num_heads": 2, "alpha": 0.3, "dropout": 0.0}
    model = create_model("difformer", **sizes | {"kernel": kernel} | arguments).double()
    return redrawn(model)


@pytest.mark.parametrize("kernel", ["simple", "sigmoid"])
def test_is_its_equations(kernel):
    """Two stored self-loops of a node count once."""
    graph, model = checks.random_graphs((6,))[0], build(kernel).eval()
    graph = GraphBatch(graph.x, torch.cat([graph.edge_index, torch.tensor([[2, 4], [2, 4]])], 1), graph.ptr)
    w, n = model.state_dict(), 6
    near = torch.eye(n, dtype=torch.float64)
    near[graph.edge_index[1], graph.edge_index[0]] = 1
    degree = near.sum(1)
    x = F.layer_norm(linear(w, "encoder.linear", graph.x), (6,), w["norms.0.weight"], w["norms.0.bias"]).clamp(min=0)
    for layer in range(2):
        q, k, v = (linear(w, f"{name}.{layer}", x).view(n, 2, 6) for name in ("queries", "keys", "values"))
        if kernel == "simple":
            q, k = q / q.square().sum().sqrt(), k / k.square().sum().sqrt()
        rows = []
        for i in range(n):
            heads = []
            for h in range(2):
                s = torch.stack([q[i, h] @ k[j, h] for j in range(n)])
                s = 1 + s if kernel == "simple" else s.sigmoid()
                everyone = sum(s[j] * v[j, h] for j in range(n)) / s.sum()
                heads.append(everyone + sum(near[i, j] * v[j, h] / (degree[i] * degree[j]).sqrt() for j in range(n)))
            rows.append(sum(heads) / 2)
        x = 0.3 * torch.stack(rows) + 0.7 * x
        x = F.layer_norm(x, (6,), w[f"norms.{layer + 1}.weight"], w[f"norms.{layer + 1}.bias"])
    torch.testing.assert_close(model(graph), linear(w, "head", x), rtol=1e-10, atol=1e-10)
