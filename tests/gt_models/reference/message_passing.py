"""Layers of message-passing baselines, edge by edge and node by node."""

import math

import torch
from torch import Tensor


def incoming(edge_index: Tensor, node: int) -> list[tuple[int, int]]:
    """(number, source) of the edges into `node`."""
    return [(e, int(s)) for e, (s, t) in enumerate(edge_index.T.tolist()) if t == node]


def gat(w: dict[str, Tensor], x: Tensor, edge_index: Tensor, edges: Tensor | None, num_heads: int) -> Tensor:
    """Velickovic et al. 2018, Eqs. 1 to 5, with self-loops, whose edge features are the mean of the incoming ones."""
    z = (x @ w["lin.weight"].T).view(len(x), num_heads, -1)
    out = torch.zeros_like(z)
    for i in range(len(x)):
        into = incoming(edge_index, i)
        for h in range(num_heads):
            scores, values = [], []
            for e, j in [*into, (None, i)]:
                score = z[j, h] @ w["att_src"][0, h] + z[i, h] @ w["att_dst"][0, h]
                if edges is not None:
                    features = (
                        edges[e]
                        if e is not None
                        else sum((edges[k] for k, _ in into), edges.new_zeros(edges.size(1))) / max(1, len(into))
                    )
                    score = score + (features @ w["lin_edge.weight"].T).view(num_heads, -1)[h] @ w["att_edge"][0, h]
                scores.append(score if score > 0 else 0.2 * score)
                values.append(z[j, h])
            weights = torch.stack(scores).softmax(0)
            out[i, h] = sum(a * v for a, v in zip(weights, values, strict=True))
    return out.flatten(1) + w["bias"]


def gatv2(w: dict[str, Tensor], x: Tensor, edge_index: Tensor, edges: Tensor | None, num_heads: int) -> Tensor:
    """Brody et al. 2022, Eq. 7: the nonlinearity is applied before the attention vector."""
    left, right = ((x @ w[f"lin_{s}.weight"].T + w[f"lin_{s}.bias"]).view(len(x), num_heads, -1) for s in "lr")
    out = torch.zeros_like(left)
    for i in range(len(x)):
        into = incoming(edge_index, i)
        for h in range(num_heads):
            scores, values = [], []
            for e, j in [*into, (None, i)]:
                both = left[j, h] + right[i, h]
                if edges is not None:
                    features = (
                        edges[e]
                        if e is not None
                        else sum((edges[k] for k, _ in into), edges.new_zeros(edges.size(1))) / max(1, len(into))
                    )
                    both = both + (features @ w["lin_edge.weight"].T).view(num_heads, -1)[h]
                scores.append(torch.where(both > 0, both, 0.2 * both) @ w["att"][0, h])
                values.append(left[j, h])
            weights = torch.stack(scores).softmax(0)
            out[i, h] = sum(a * v for a, v in zip(weights, values, strict=True))
    return out.flatten(1) + w["bias"]


def sage(w: dict[str, Tensor], x: Tensor, edge_index: Tensor, aggregation: str, unit_norm: bool) -> Tensor:
    """Hamilton et al. 2017, Algorithm 1, lines 4, 5 and 7 without the nonlinearity; W = [W_root, W_neighbours]."""
    rows = []
    for i in range(len(x)):
        near = [x[j] for _, j in incoming(edge_index, i)] or [torch.zeros_like(x[0])]
        seen = {"mean": sum(near) / len(near), "sum": sum(near), "max": torch.stack(near).amax(0)}[aggregation]
        row = w["lin_l.weight"] @ seen + w["lin_l.bias"] + w["lin_r.weight"] @ x[i]
        rows.append(row / row.norm() if unit_norm else row)
    return torch.stack(rows)


def gin(w: dict[str, Tensor], x: Tensor, edge_index: Tensor, edges: Tensor | None, eps: float = 0.0) -> Tensor:
    """Xu et al. 2019, Eq. 4.1 with an MLP of two layers; Hu et al. 2020 with edge features."""
    rows = []
    for i in range(len(x)):
        row = (1 + eps) * x[i]
        for e, j in incoming(edge_index, i):
            row = row + (x[j] if edges is None else torch.relu(x[j] + edges[e]))
        hidden = torch.relu(w["nn.0.weight"] @ row + w["nn.0.bias"])
        rows.append(w["nn.3.weight"] @ hidden + w["nn.3.bias"])
    return torch.stack(rows)


def gcnii(
    w: dict[str, Tensor], x: Tensor, first: Tensor, edge_index: Tensor, layer: int, alpha: float, theta: float
) -> Tensor:
    """Chen et al. 2020, Eq. 5, or Eq. 6 if there is a second matrix."""
    n, beta = len(x), math.log(theta / layer + 1)
    adjacency = torch.eye(n, dtype=x.dtype)
    adjacency[edge_index[1], edge_index[0]] = 1.0
    scale = adjacency.sum(1).rsqrt()
    mixed, kept = (1 - alpha) * (scale[:, None] * adjacency * scale) @ x, alpha * first
    one = torch.eye(w["weight1"].size(0), dtype=x.dtype)
    second = w.get("weight2", w["weight1"])
    return mixed @ ((1 - beta) * one + beta * w["weight1"]) + kept @ ((1 - beta) * one + beta * second)
