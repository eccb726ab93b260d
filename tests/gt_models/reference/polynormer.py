"""Polynormer's equations as loops over nodes, heads and edges, in float64, with the weights of the model."""

import math

import torch
from torch import Tensor

from gt_models.batch import GraphBatch
from gt_models.polynormer import Polynormer


def linear(layer, x: list[Tensor]) -> list[Tensor]:
    return [layer.weight @ v + (layer.bias if layer.bias is not None else 0) for v in x]


def layer_norm(layer, v: Tensor) -> Tensor:
    mean = sum(v) / len(v)
    variance = sum((c - mean) ** 2 for c in v) / len(v)
    return (v - mean) / torch.sqrt(variance + layer.eps) * layer.weight + layer.bias


def incoming(n: int, edges: list[tuple[int, int]], target: int, self_loops: bool) -> list[int]:
    """Sources of the edges to `target`; with `self_loops` exactly one of them is the node itself."""
    sources = [s for s, t in edges if t == target]
    return [*[s for s in sources if s != target], target] if self_loops else sources


def gat(layer, value: list[Tensor], edges: list[tuple[int, int]]) -> list[Tensor]:
    heads, width = layer.att_source.shape
    out = []
    for i in range(len(value)):
        parts = []
        for h in range(heads):  # head-major: head h holds channels h * C .. (h + 1) * C
            own = [v[h * width : (h + 1) * width] for v in value]
            sources = incoming(len(value), edges, i, True)
            scores = [float(own[j] @ layer.att_source[h] + own[i] @ layer.att_target[h]) for j in sources]
            scores = [math.exp(e if e > 0 else 0.2 * e) for e in scores]
            parts.append(sum(w / sum(scores) * own[j] for w, j in zip(scores, sources, strict=True)))
        out.append(torch.cat(parts))
    return out


def gcn(layer, value: list[Tensor], edges: list[tuple[int, int]]) -> list[Tensor]:
    n = len(value)
    degree = [len(incoming(n, edges, i, True)) for i in range(n)]
    return [
        sum(value[j] / math.sqrt(degree[i] * degree[j]) for j in incoming(n, edges, i, True)) + layer.bias
        for i in range(n)
    ]


def random_walk(layer, value: list[Tensor], edges: list[tuple[int, int]]) -> list[Tensor]:
    degree = [sum(1 for s, _ in edges if s == j) for j in range(len(value))]
    zero = torch.zeros_like(value[0])
    return [sum((value[j] / degree[j] for j in incoming(len(value), edges, i, False)), zero) for i in range(len(value))]


def global_attention(heads: int, query: list[Tensor], key: list[Tensor], value: list[Tensor]) -> list[Tensor]:
    """Equation 6 in its quadratic form, with Listing 2's [N, D / H, H]: head h has channels h, h + H, h + 2H ..."""
    out = [torch.zeros_like(v) for v in value]
    for i in range(len(query)):
        for h in range(heads):
            weights = [float(query[i][h::heads] @ k[h::heads]) for k in key]
            out[i][h::heads] = sum(w / sum(weights) * v[h::heads] for w, v in zip(weights, value, strict=True))
    return out


def attention(layer, x: list[Tensor], value: list[Tensor] | None = None) -> list[Tensor]:
    key = [torch.sigmoid(k) for k in linear(layer.key, x)]
    query = key if layer.query is None else [torch.sigmoid(q) for q in linear(layer.query, x)]
    return global_attention(layer.num_heads, query, key, linear(layer.value, x) if value is None else value)


def beta(layer, v2: float | None) -> Tensor:
    """Equation 5's sigmoid of the parameter; the released code can also use the parameter itself, or a constant."""
    b = layer.weight if hasattr(layer, "weight") else torch.full((len(layer.like),), layer.init, dtype=torch.float64)
    b = b if v2 is None else v2 * b
    return b if hasattr(layer, "init") else 1 / (1 + torch.exp(-b))


def part(module, name: str):
    """An attribute that only the released form has."""
    return getattr(module, name, None)


def polynormer(model: Polynormer, graph: GraphBatch) -> Tensor:
    """Output of one graph in evaluation mode, computed from the weights and arguments of the model."""
    n = graph.num_nodes
    edges = list(zip(*graph.edge_index.tolist(), strict=True))
    v2 = graph.encodings["second_eigenvector"][:, 0].tolist() if model.version == "v2" else [None] * n
    x = list(graph.x)
    if model.input is not None:
        x = linear(model.input.linear, x)
    total = [torch.zeros(model.head.weight.size(1), dtype=torch.float64) for _ in range(n)]
    for layer in model.local_layers:
        if part(layer, "pre_norm") is not None:
            x = [layer_norm(layer.pre_norm, v) for v in x]
        h, value = linear(layer.gate, x), linear(layer.local.linear, x)
        kind = getattr(layer.local, "kind", "gat")
        a = {"gat": gat, "gcn": gcn, "random-walk": random_walk}[kind](layer.local, value, edges)
        if layer.parallel is not None:
            a = [u + w for u, w in zip(a, attention(layer.parallel, x, value), strict=True)]  # equation 15
        if part(layer, "skip") is not None:
            a = [u + w for u, w in zip(a, linear(layer.skip, x), strict=True)]
        if part(layer, "batch_norm") is not None:
            norm = layer.batch_norm
            a = [(u - norm.running_mean) / torch.sqrt(norm.running_var + norm.eps) * norm.weight + norm.bias for u in a]
        if layer.relu:
            h, a = [u.clamp(min=0) for u in h], [u.clamp(min=0) for u in a]
        x = []
        for i in range(n):
            b = beta(layer.beta, v2[i])
            if layer.norm is None:
                x.append(a[i] * (h[i] + b))  # equation 7
            else:
                x.append((1 - b) * layer_norm(layer.norm, h[i] * a[i]) + b * a[i])  # equation 17
        total = [t + v for t, v in zip(total, x, strict=True)]
    x = total if len(model.local_layers) else x
    if model.phase == "global":
        if part(model, "between_norm") is not None:
            x = [layer_norm(model.between_norm, v) for v in x]
        for layer in model.global_layers:
            y, h = attention(layer.attention, x), linear(layer.gate, x)
            if layer.norm is not None:
                y = [layer_norm(layer.norm, v) for v in y]
            x = [y[i] * (h[i] + beta(layer.beta, v2[i])) for i in range(n)]  # equation 8
            if part(model, "global_output") is not None:
                x = linear(model.global_output, x)
            x = [v.clamp(min=0) for v in x] if layer.relu else x
    head = model.local_head if model.phase == "local" and part(model, "local_head") is not None else model.head
    if model.level == "graph":
        x = [
            {"mean": lambda: sum(x) / n, "sum": lambda: sum(x), "max": lambda: torch.stack(x).amax(0)}[model.pooling]()
        ]
    return torch.stack(linear(head, x))


def base_model(x: Tensor, weights: list[Tensor], biases: list[Tensor]) -> Tensor:
    """Equation 4: X <- (W X) * (X + B), layer by layer. x [n, d], each W [n, n], each B [n, d]."""
    for w, b in zip(weights, biases, strict=True):
        x = torch.stack([sum(w[i, j] * x[j] for j in range(len(x))) * (x[i] + b[i]) for i in range(len(x))])
    return x
