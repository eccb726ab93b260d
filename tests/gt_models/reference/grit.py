"""GRIT's layer, node by node and head by head (parity/README.md, "grit_layers"; PPGT, Appendix D.1)."""

import torch
from torch import Tensor


def rho(x: Tensor) -> Tensor:
    return torch.relu(x).sqrt() - torch.relu(-x).sqrt()


def layer(
    w: dict[str, Tensor], x: Tensor, pairs: Tensor, log_degree: Tensor, num_heads: int, clamp: float | None
) -> tuple[Tensor, Tensor]:
    """One graph: x [n, d], pairs [n, n, d] (query, key); batch norms use running statistics; weights by our names."""
    n, d = x.shape
    width = d // num_heads

    def linear(name: str, v: Tensor) -> Tensor:
        return v @ w[f"{name}.weight"].T + w.get(f"{name}.bias", 0.0)

    def norm(name: str, v: Tensor) -> Tensor:
        scale = (w[f"{name}.running_var"] + 1e-5).sqrt()
        return (v - w[f"{name}.running_mean"]) / scale * w[f"{name}.weight"] + w[f"{name}.bias"]

    o, e = torch.zeros(n, d, dtype=x.dtype), torch.zeros(n, n, d, dtype=x.dtype)
    for h in range(num_heads):
        own = slice(h * width, (h + 1) * width)
        for i in range(n):
            logits = []
            for j in range(n):
                both = linear("attention.pair", pairs[i, j])[2 * h * width : 2 * (h + 1) * width]
                ew, eb = both[:width], both[width:]
                q, k = linear("attention.query", x[i])[own], linear("attention.key", x[j])[own]
                e[i, j, own] = torch.relu(rho((q + k) * ew) + eb)
                logit = e[i, j, own] @ w["attention.logit"][h]
                logits.append(logit if clamp is None else logit.clamp(-clamp, clamp))
            a = torch.stack(logits).softmax(0)
            mixed = sum(a[j] * e[i, j, own] for j in range(n))
            o[i, own] = (
                sum(a[j] * linear("attention.value", x[j])[own] for j in range(n))
                + mixed @ w["attention.pair_value"][h]
            )
    scaled = o * w["degree_scale"][0] + log_degree[:, None] * o * w["degree_scale"][1]
    x = norm("attn_norm", x + linear("node_out", scaled))
    x = norm("ffn_norm", x + linear("ffn_out", torch.relu(linear("ffn_in", x))))
    return x, norm("pair_norm", pairs + linear("pair_out", e))
