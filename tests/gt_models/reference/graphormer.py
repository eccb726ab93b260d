"""Graphormer of one graph, pair by pair and token by token (Ying et al. 2021, Eqs. 5 to 9).

parity/README.md describes the implementation as "graphormer_slim_postnorm".
"""

import torch
from torch import Tensor
from torch.nn import functional as F


def norm(w: dict[str, Tensor], name: str, v: Tensor) -> Tensor:
    centred = v - v.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * w[f"{name}.weight"] + w[f"{name}.bias"]


def linear(w: dict[str, Tensor], name: str, v: Tensor) -> Tensor:
    return v @ w[f"{name}.weight"].T + w.get(f"{name}.bias", 0.0)


def bias(
    w: dict[str, Tensor],
    n: int,
    distance: list[list[int]],
    paths: dict[tuple[int, int], list[int]],
    edges: Tensor | None,
    kept: int,
) -> Tensor:
    """Biases [1 + n, 1 + n, H]; token 0 is that of the graph.

    Args:
        distance: -1 if there is no path.
        paths: [i, j] lists the edges along a shortest path.
    """
    table = w["distance_bias.weight"]
    out = torch.zeros(1 + n, 1 + n, table.size(1), dtype=table.dtype)
    for i in range(n):
        for j in range(n):
            d = distance[i][j]
            value = table[len(table) - 1 if d < 0 else min(d, len(table) - 2)]  # Eq. 6
            if edges is not None and d > 0:
                along = sum(edges[e] @ w["path_weight"][k] for k, e in enumerate(paths[i, j][:kept]))
                value = value + along / min(d, kept)  # Eq. 7
            out[1 + i, 1 + j] = value
    out[0, :] += w["token_bias"]
    out[1:, 0] += w["token_bias"]
    return out


def model(
    w: dict[str, Tensor],
    nodes: Tensor,
    edge_index: Tensor,
    attn_bias: Tensor,
    num_heads: int,
    num_layers: int,
    pre: bool,
) -> Tensor:
    """Encoded node features [n, d] -> tokens [1 + n, d] after the last layer, with the embedding norm."""
    n, d = nodes.shape
    width = d // num_heads
    leave, arrive = ([int((side == i).sum()) for i in range(n)] for side in edge_index)
    rows = [w["graph_token"]]
    for i in range(n):
        top = len(w["out_degree.weight"]) - 1
        rows.append(
            nodes[i] + w["out_degree.weight"][min(leave[i], top)] + w["in_degree.weight"][min(arrive[i], top)]
        )  # Eq. 5
    x = norm(w, "embedding_norm", torch.stack(rows))
    for layer in range(num_layers):
        name = f"layers.{layer}."

        def attention(v: Tensor, name=name) -> Tensor:
            out = torch.zeros_like(v)
            for h in range(num_heads):
                own = slice(h * width, (h + 1) * width)
                q, k, values = (part[:, own] for part in linear(w, name + "attention.qkv", v).split(d, 1))
                for i in range(1 + n):
                    a = torch.stack([q[i] @ k[j] / width**0.5 + attn_bias[i, j, h] for j in range(1 + n)]).softmax(0)
                    out[i, own] = sum(a[j] * values[j] for j in range(1 + n))
            return linear(w, name + "attention.out", out)

        def feed_forward(v: Tensor, name=name) -> Tensor:
            return linear(w, name + "ffn_out", F.gelu(linear(w, name + "ffn_in", v)))

        if pre:
            x = x + attention(norm(w, name + "attn_norm", x))  # Eq. 8
            x = x + feed_forward(norm(w, name + "ffn_norm", x))  # Eq. 9
        else:
            x = norm(w, name + "attn_norm", x + attention(x))
            x = norm(w, name + "ffn_norm", x + feed_forward(x))
    return x


def head(w: dict[str, Tensor], x: Tensor) -> Tensor:
    return linear(w, "head_out", norm(w, "head_norm", F.gelu(linear(w, "head_in", x)))) + w["head_bias"]
