"""The equations of PPGT in loops over nodes and pairs, with the paper's numbers and weights of a state dict."""

import math

import torch
from torch import Tensor


def norm(w: dict[str, Tensor], name: str, x: Tensor, kind: str) -> Tensor:
    """Eq. 1 and 3 for one token [d]; batch norm and layer norm by definition."""
    d = x.numel()
    root = lambda u: math.sqrt(sum(float(v) ** 2 for v in u) / d + 1e-6)  # noqa: E731
    if kind == "adarms":
        return x / root(x) * root(w[f"{name}.alpha"] * x + w[f"{name}.beta"])
    if kind == "rms":
        return x / root(x) * w[f"{name}.gamma"]
    if kind == "batch":
        mean, var = w[f"{name}.running_mean"], w[f"{name}.running_var"]
    else:
        mean, var = x.mean(), ((x - x.mean()) ** 2).mean()
    return (x - mean) / torch.sqrt(var + 1e-5) * w[f"{name}.weight"] + w[f"{name}.bias"]


def linear(w: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    return w[f"{name}.weight"] @ x + w[f"{name}.bias"]


def gelu(x: Tensor) -> Tensor:
    return torch.tensor([0.5 * float(v) * (1 + math.erf(float(v) / math.sqrt(2))) for v in x], dtype=x.dtype)


def ffn(w: dict[str, Tensor], name: str, x: Tensor, norm_name: str, kind: str, scale: Tensor | float = 1.0) -> Tensor:
    branch = linear(w, f"{name}.linear2", gelu(linear(w, f"{name}.linear1", norm(w, f"{name}.{norm_name}", x, kind))))
    return x + w.get(f"{name}.residual2.scale", scale) * branch


def ppgt_nodes(
    w: dict[str, Tensor], x: Tensor, edges: list[tuple[int, int]], edge_attr: Tensor | None, rrwp: Tensor, s: dict,
    position: Tensor | None = None, target: int | None = None,
) -> list[Tensor]:  # fmt: skip
    """Output of the backbone per node of one graph.

    Args:
        w: weights by names of the state dict.
        x: node features [n, F].
        edges: (source, target) of each edge.
        edge_attr: features of the edges.
        rrwp: [n, n, K].
        s: num_layers, num_heads, num_frequencies, attention, scale_queries, urpe, norm, num_ffn; pair_order and
            pair_degree if they are off; degree and query_end.
        position: [n, p].
        target: the target node.
    """
    n = x.size(0)
    degree = [sum(1 for a, _ in edges if a == i) for i in range(n)]
    if s.get("degree") == "neighbours":
        degree = [sum(1 for j in range(n) if (i, j) in edges or (j, i) in edges) for i in range(n)]
    if s.get("query_end") == "target":
        edges = [(b, a) for a, b in edges]
    h = []
    for i in range(n):  # Eq. 8 left, Appendix B.3
        value = linear(w, "node_encoder.linear", x[i]) + linear(w, "diagonal_encoder", rrwp[i, i])
        if "degree_encoder.weight" in w:
            value = value + linear(w, "degree_encoder", torch.tensor([math.log(1 + degree[i])], dtype=x.dtype))
        if "order_encoder.weight" in w:
            value = value + linear(w, "order_encoder", torch.tensor([math.log(1 + n)], dtype=x.dtype))
        if position is not None:
            value = value + linear(w, "position_encoder", position[i])
        if i == target:
            value = value + w["target_vector"]
        h.append(norm(w, "node_norm", value, s["norm"]) if s.get("stem_norm") else value)
    p: dict[tuple[int, int], Tensor] = {}
    for i in range(n):
        for j in range(n):
            raw = rrwp[i, j].tolist() + ([] if position is None else (position[j] - position[i]).tolist())
            raw += [1 / n] if s.get("pair_order", True) else []
            raw += [1 / degree[v] if degree[v] else 0.0 for v in (j, i)] if s.get("pair_degree", True) else []
            enhanced = list(raw)  # Eq. 9
            for f in range(s["num_frequencies"]):
                enhanced += [math.sin(2**f * math.pi * v) for v in raw] + [math.cos(2**f * math.pi * v) for v in raw]
            value = linear(w, "stem.linear2", gelu(linear(w, "stem.linear1", torch.tensor(enhanced, dtype=x.dtype))))
            for e, edge in enumerate(edges):
                if edge == (i, j) and "edge_encoder.linear.weight" in w:
                    value = value + linear(w, "edge_encoder.linear", edge_attr[e])
                if edge == (i, j) and "edge_vector" in w:
                    value = value + w["edge_vector"]
            value = norm(w, "stem.pre_norm", value, s["norm"]) if s.get("stem_norm") else value
            for block in range(s["num_ffn"]):  # Eq. 10
                value = ffn(w, f"stem.blocks.{block}", value, "norm", s["norm"], w.get(f"stem.scales.{block}", 1.0))
            p[i, j] = norm(w, "stem.norm", value, s["norm"])
    for layer in range(s["num_layers"]):  # Eq. 7
        attended = attention(
            w, f"layers.{layer}.attention", [norm(w, f"layers.{layer}.norm1", v, s["norm"]) for v in h], p, s
        )
        scale = w.get(f"layers.{layer}.residual1.scale", 1.0)
        h = [ffn(w, f"layers.{layer}", h[i] + scale * attended[i], "norm2", s["norm"]) for i in range(n)]
    return [norm(w, "norm", v, s["norm"]) for v in h]


def attention(
    w: dict[str, Tensor], name: str, h: list[Tensor], p: dict[tuple[int, int], Tensor], s: dict
) -> list[Tensor]:
    """Eq. 2, 4 and 5, head by head."""
    n, dim, heads = len(h), h[0].numel(), s["num_heads"]
    width = dim // heads
    qkv = [linear(w, f"{name}.qkv", v) for v in h]
    result = []
    for i in range(n):
        out = torch.zeros(dim, dtype=h[0].dtype)
        for head in range(heads):
            part = slice(head * width, (head + 1) * width)
            q = qkv[i][:dim][part]
            keys = list(range(n))
            logits, gates = [], []
            for j in keys:
                k = qkv[j][dim : 2 * dim][part]
                terms = linear(w, f"{name}.pair_linear", p[i, j])
                logit = float(q @ k) / (math.sqrt(width) if s["scale_queries"] else 1.0) + float(terms[head])
                if s["attention"] == "sl2":
                    logit -= float(k @ k) / (2 * math.sqrt(width))
                logits.append(logit)
                gates.append(
                    1.0
                    if s["urpe"] == "none"
                    else float(terms[heads + head]) + (1.0 if s["urpe"] == "one-plus" else 0.0)
                )
            total = sum(math.exp(v) for v in logits)
            for j, logit, gate in zip(keys, logits, gates, strict=True):
                out[part] += gate * math.exp(logit) / total * qkv[j][2 * dim :][part]
        result.append(linear(w, f"{name}.out", out))
    return result


def class_attention(w: dict[str, Tensor], h: list[Tensor], s: dict, num_layers: int) -> Tensor:
    """The class token after its layers, [d]."""
    dim, heads = h[0].numel(), s["num_heads"]
    width = dim // heads
    order = torch.tensor([float(len(h))], dtype=h[0].dtype)
    token = w["class_attention.token"] + linear(
        w, "class_attention.order2", gelu(linear(w, "class_attention.order1", order))
    )
    for layer in range(num_layers):
        name = f"class_attention.layers.{layer}"
        q = linear(w, f"{name}.query", norm(w, f"{name}.norm1", token, s["norm"]))
        kv = [linear(w, f"{name}.key_value", v) for v in h]
        out = torch.zeros(dim, dtype=token.dtype)
        for head in range(heads):
            part = slice(head * width, (head + 1) * width)
            logits = []
            for both in kv:
                k = both[:dim][part]
                logit = float(q[part] @ k) / (math.sqrt(width) if s["scale_queries"] else 1.0)
                logits.append(logit - (float(k @ k) / (2 * math.sqrt(width)) if s["attention"] == "sl2" else 0.0))
            total = sum(math.exp(v) for v in logits)
            for both, logit in zip(kv, logits, strict=True):
                out[part] += math.exp(logit) / total * both[dim:][part]
        token = ffn(
            w, name, token + w.get(f"{name}.residual1.scale", 1.0) * linear(w, f"{name}.out", out), "norm2", s["norm"]
        )
    return norm(w, "class_attention.norm", token, s["norm"])


def head(w: dict[str, Tensor], value: Tensor, num_layers: int) -> Tensor:
    """The prediction MLP for one vector."""
    for i in range(num_layers):
        value = linear(w, f"head.{i}", gelu(value) if i else value)
    return value
