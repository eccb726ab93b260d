"""SGFormer: its equations node by node, symmetries, invalid input."""

import torch
from torch import nn
from torch.nn import functional as F

from gt_models import create_model
from gt_models.batch import GraphBatch
from tests.gt_models import checks
from tests.gt_models.baselines.cases import batch_normed, linear, redrawn


def build(**arguments) -> nn.Module:
    """A model whose running statistics affect the output."""
    torch.manual_seed(0)
    rates = {"dropout": 0.0, "attention_branch_dropout": 0.0}
    sizes = {
        "in_dim": 4,
        "out_dim": 3,
        "hidden_dim": 6,
        "num_heads": 2,
        "num_layers": 2,
        "num_attention_layers": 2,
        "graph_weight": 0.3,
    }
    model = create_model("sgformer", **sizes | rates | arguments).double()
    return redrawn(model)


def test_is_its_equations():
    """Two stored self-loops of a node count once."""
    graph, model, n = checks.random_graphs((6,))[0], build().eval(), 6
    graph = GraphBatch(graph.x, torch.cat([graph.edge_index, torch.tensor([[2, 4], [2, 4]])], 1), graph.ptr)
    w = model.state_dict()
    t = linear(w, "attention_encoder.linear", graph.x)
    t = F.layer_norm(t, (6,), w["attention_norms.0.weight"], w["attention_norms.0.bias"]).clamp(min=0)
    for layer in range(2):
        q, k, v = (linear(w, f"{name}.{layer}", t).view(n, 2, 6) for name in ("queries", "keys", "values"))
        q, k = q / q.square().sum().sqrt(), k / k.square().sum().sqrt()
        rows = []
        for i in range(n):
            heads = []
            for h in range(2):
                s = [q[i, h] @ k[j, h] for j in range(n)]
                heads.append((n * v[i, h] + sum(s[j] * v[j, h] for j in range(n))) / (n + sum(s)))
            rows.append((sum(heads) / 2 + t[i]) / 2)
        t = F.layer_norm(
            torch.stack(rows), (6,), w[f"attention_norms.{layer + 1}.weight"], w[f"attention_norms.{layer + 1}.bias"]
        )
    near = torch.eye(n, dtype=torch.float64)
    near[graph.edge_index[1], graph.edge_index[0]] = 1
    near = near / (near.sum(1)[:, None] * near.sum(1)).sqrt()
    g = first = batch_normed(w, "graph_norms.0", linear(w, "graph_encoder.linear", graph.x)).clamp(min=0)
    for layer in range(2):
        g = batch_normed(w, f"graph_norms.{layer + 1}", linear(w, f"convs.{layer}", near @ g)).clamp(min=0) + first
    torch.testing.assert_close(model(graph), linear(w, "head", 0.3 * g + 0.7 * t), rtol=1e-10, atol=1e-10)
