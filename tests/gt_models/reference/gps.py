"""One GPS layer with GINE and softmax attention, node by node (parity/README.md, "gps_layer_gine_transformer")."""

import torch
from torch import Tensor


def layer(w: dict[str, Tensor], x: Tensor, edges: Tensor, edge_index: Tensor, num_heads: int) -> Tensor:
    """One graph: x [n, d], encoded edges [E, d]; batch norms use running statistics; weights by our names."""
    n, d = x.shape
    width = d // num_heads

    def linear(name: str, v: Tensor) -> Tensor:
        return v @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def norm(name: str, v: Tensor) -> Tensor:
        return (v - w[f"{name}.running_mean"]) / (w[f"{name}.running_var"] + 1e-5).sqrt() * w[f"{name}.weight"] + w[
            f"{name}.bias"
        ]

    local = x.clone()
    for e, (s, t) in enumerate(edge_index.T.tolist()):
        local[t] += torch.relu(x[s] + edges[e])
    local = linear("local.nn.2", torch.relu(linear("local.nn.0", local)))
    received = torch.zeros_like(x)
    for h in range(num_heads):
        own = slice(h * width, (h + 1) * width)
        q, k, v = (part[:, own] for part in linear("attention.qkv", x).split(d, 1))
        for i in range(n):
            a = torch.stack([q[i] @ k[j] / width**0.5 for j in range(n)]).softmax(0)
            received[i, own] = sum(a[j] * v[j] for j in range(n))
    h = norm("local_norm", x + local) + norm("attn_norm", x + linear("attention.out", received))
    return norm("ffn_norm", h + linear("ffn_out", torch.relu(linear("ffn_in", h))))
