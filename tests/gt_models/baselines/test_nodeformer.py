"""NodeFormer: its equations node by node, its edge loss, sampling, symmetries, invalid input."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gt_models import create_model
from gt_models.batch import GraphBatch
from tests.gt_models import checks
from tests.gt_models.baselines.cases import linear


def build(**arguments) -> nn.Module:
    torch.manual_seed(0)
    sizes = {
        "in_dim": 4,
        "out_dim": 3,
        "hidden_dim": 6,
        "num_heads": 2,
        "num_features": 5,
        "redraw_interval": None,
        "samples": 0,
    }
    model = create_model("nodeformer", **sizes | {"temperature": 0.5, "bias_order": 2} | arguments).double()
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1 or name.endswith(".bias"):
            nn.init.normal_(parameter)
    return model


def with_loops(n: int = 6) -> GraphBatch:
    """Two stored self-loops of a node count once."""
    graph = checks.random_graphs((n,), density=0.3)[0]
    return GraphBatch(graph.x, torch.cat([graph.edge_index, torch.tensor([[2, 4], [2, 4]])], 1), graph.ptr)


def normed(w: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    return F.layer_norm(x, (6,), w[f"{name}.weight"], w[f"{name}.bias"])


def kernel(u: Tensor, projection: Tensor, peak) -> Tensor:
    """Random features of width 6, of queries or keys divided by sqrt(0.5)."""
    u = u / 0.5**0.5 / 6**0.25
    rows = u @ projection.T
    return ((rows - u.square().sum(1, keepdim=True) / 2 - peak(rows)).exp() + 1e-6) / 5**0.5


def transcribed(
    model: nn.Module, graph: GraphBatch, transform: str = "sigmoid", noise=None, **options
) -> tuple[Tensor, list[Tensor]]:
    """The output, and for each layer the mean of log(p_uv) / d_u.

    Args:
        noise: the drawn noise of each layer, [samples, heads, n].
    """
    w, n, t = dict(model.state_dict(keep_vars=True)), graph.num_nodes, 0.5
    near = torch.eye(n, dtype=torch.float64)
    near[graph.edge_index[1], graph.edge_index[0]] = 1
    matrices = [near, (near @ near > 0).double()]
    matrices = [m / (m.sum(1)[:, None] * m.sum(0)).sqrt() for m in matrices]
    states, logs = [F.elu(normed(w, "norms.0", linear(w, "encoder.linear", graph.x)))], []
    for layer in range(2):
        name, x = f"attentions.{layer}", states[-1]
        projection = w[f"{name}.features.projection"]
        q, k, v = (linear(w, f"{name}.{part}", x).view(n, 2, 6) for part in ("query", "key", "value"))
        heads, log = [], torch.zeros((), dtype=torch.float64)
        for h in range(2):
            phi_q = kernel(q[:, h], projection, lambda rows: rows.amax(1, keepdim=True))
            phi_k = kernel(k[:, h], projection, torch.max)
            found = []
            for g in [torch.zeros(n, dtype=torch.float64)] if noise is None else noise[layer][:, h]:
                rows = []
                for i in range(n):
                    s = torch.stack([(g[j] / t).exp() * (phi_q[i] @ phi_k[j]) for j in range(n)])
                    rows.append(sum(s[j] * v[j, h] for j in range(n)) / s.sum())
                found.append(torch.stack(rows))
            z = sum(found) / len(found)
            for i, matrix in enumerate(matrices):
                b = w[f"{name}.bias"][i, h]
                z = z + (b.sigmoid() if transform == "sigmoid" else b) * (matrix @ v[:, h])
            heads.append(z)
            for i in range(n):
                for j in range(n):
                    if near[i, j]:
                        p = phi_q[i] @ phi_k[j] / sum(phi_q[i] @ phi_k[m] for m in range(n))
                        log = log + p.log() / near[i].sum()
        logs.append(log / (near.sum() * 2))
        x = normed(w, f"norms.{layer + 1}", linear(w, f"{name}.out", torch.cat(heads, 1)) + x)
        states.append(F.elu(x) if options.get("activation") else x)
    return linear(w, "head", torch.cat(states, 1) if options.get("all_layers") else states[-1]), logs


@pytest.mark.parametrize("options", [{}, {"activation": True, "all_layers": True, "bias_transform": "identity"}])
def test_is_its_equations(options):
    graph, model = with_loops(), build(**options).eval()
    expected, _ = transcribed(model, graph, options.get("bias_transform", "sigmoid"), **options)
    torch.testing.assert_close(model(graph), expected, rtol=1e-8, atol=1e-8)


def test_its_loss_joins_the_gradient_in_training():
    graph, target = with_loops(), torch.tensor([0, 1, 2, 0, 1, 2])
    model = build(edge_loss=0.7).train()
    F.cross_entropy(model(graph), target).backward()
    found = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    output, logs = transcribed(model, graph)
    (F.cross_entropy(output, target) - 0.7 * sum(logs) / 2).backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad, rtol=1e-7, atol=1e-9, msg=name)
    without = build(edge_loss=0.0).train()
    F.cross_entropy(without(graph), target).backward()
    assert not torch.allclose(without.attentions[0].key.weight.grad, found["attentions.0.key.weight"])


def test_noise_of_the_gumbel_distribution(monkeypatch):
    graph, model = with_loops(), build(samples=3, edge_loss=0.0).train()
    drawn, exponential = [], torch.Tensor.exponential_

    def kept(tensor: Tensor) -> Tensor:
        drawn.append(-exponential(tensor).log())
        return tensor

    monkeypatch.setattr(torch.Tensor, "exponential_", kept)
    output = model(graph)
    noise = [torch.cat(drawn[:3]), torch.cat(drawn[3:])]
    torch.testing.assert_close(output, transcribed(model, graph, noise=noise)[0], rtol=1e-8, atol=1e-8)
    count = len(drawn)
    model.eval()(graph)
    assert len(drawn) == count == 6


def test_features_are_drawn_in_each_training_step():
    model, graph = build(redraw_interval=1), with_loops()
    model.train()(graph)
    before = model.attentions[0].features.projection.clone()
    model.eval()(graph)
    assert torch.equal(before, model.attentions[0].features.projection)
    model.train()(graph)
    assert not torch.equal(before, model.attentions[0].features.projection)
