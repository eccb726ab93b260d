"""The equations of the Edge Transformer (Section 3) as loops in float64; weights by names of the state dict."""

import math

import torch
from torch import Tensor


def triangular_attention(q: Tensor, k: Tensor, v1: Tensor, v2: Tensor, fusion=lambda v: v) -> Tensor:
    """Eqs. 1 and 2 for one graph and one head: four [n, n, d] -> [n, n, d]."""
    n, d = q.size(0), q.size(2)
    out = torch.zeros_like(q)
    for i in range(n):
        for j in range(n):
            scores = torch.stack([q[i, l] @ k[l, j] / math.sqrt(d) for l in range(n)])
            weights = scores.exp() / scores.exp().sum()
            for l in range(n):
                out[i, j] = out[i, j] + weights[l] * fusion(v1[i, l] * v2[l, j])  # Eq. 2, then Eq. 1
    return out


def attention(x: Tensor, w: dict[str, Tensor], num_heads: int) -> Tensor:
    n, d = x.size(0), x.size(2)
    maps = w["projections.weight"].chunk(4)  # W^Q, W^K, W^V1, W^V2
    heads = [
        triangular_attention(*[(x @ m.T)[:, :, h * d // num_heads : (h + 1) * d // num_heads] for m in maps])
        for h in range(num_heads)
    ]
    return torch.cat(heads, 2).reshape(n, n, d) @ w["out.weight"].T


def layer_norm(x: Tensor, w: dict[str, Tensor], name: str) -> Tensor:
    mean = x.mean(-1, keepdim=True)
    variance = ((x - mean) ** 2).mean(-1, keepdim=True)
    return (x - mean) / (variance + 1e-5).sqrt() * w[f"{name}.weight"] + w[f"{name}.bias"]


def batch_norm(x: Tensor, w: dict[str, Tensor], name: str) -> Tensor:
    """A norm in evaluation mode."""
    x = (x - w[f"{name}.running_mean"]) / (w[f"{name}.running_var"] + 1e-5).sqrt()
    return x * w[f"{name}.weight"] + w[f"{name}.bias"] if f"{name}.weight" in w else x


def linear(x: Tensor, w: dict[str, Tensor], name: str) -> Tensor:
    return x @ w[f"{name}.weight"].T + w.get(f"{name}.bias", 0.0)


def gelu(x: Tensor) -> Tensor:
    return x * (1 + torch.erf(x / math.sqrt(2))) / 2


def relu(x: Tensor) -> Tensor:
    return x * (x > 0)


def layer(x: Tensor, w: dict[str, Tensor], num_heads: int, act, authors: bool) -> Tensor:
    """X <- FFN(X + TriangularAttention(LN(X))); released code: U = LN(X + ...), X <- LN(U + FFN(U))."""
    u = x + attention(layer_norm(x, w, "norm"), part(w, "attention."), num_heads)
    if authors:
        u = layer_norm(u, w, "attention_norm")
    f = linear(act(linear(u, w, "ffn.hidden")), w, "ffn.out")
    return layer_norm(u + f, w, "ffn_norm") if authors else f


def tokens(
    features: Tensor,
    edges: dict[tuple[int, int], Tensor],
    rrwp: Tensor | None,
    w: dict[str, Tensor],
    act,
    authors: bool,
) -> Tensor:
    """Eq. 3 for encoded nodes [n, d] and encoded edges; released code: Linear([F_i F_j]) + E_ij."""
    n = features.size(0)
    rows = []
    for i in range(n):
        for j in range(n):
            width = w["pair_encoder.bias"].numel() - (0 if rrwp is None else w["rrwp_encoder.0.3.bias"].numel())
            e = edges.get((i, j), torch.zeros(width, dtype=features.dtype))
            if i == j and not authors:
                e = e + w["diagonal_token"]
            if rrwp is not None:
                hidden = relu(linear(rrwp[i, j], w, "rrwp_encoder.0.0"))
                e = torch.cat([e, relu(linear(hidden, w, "rrwp_encoder.0.3"))])
            if authors:
                rows.append(linear(torch.cat([features[i], features[j]]), w, "pair_encoder") + e)
            else:
                rows.append(
                    linear(act(linear(torch.cat([e, features[i], features[j]]), w, "pair_encoder")), w, "pair_out")
                )
    return torch.stack(rows).view(n, n, -1)


def readout(x: Tensor, w: dict[str, Tensor], act, authors: bool) -> Tensor:
    """Readout(i) = sum_j rho_1(X_ij) + rho_2(X_ji).

    In the released code, both share BatchNorm and hidden layer, and an MLP follows.
    """
    n, d = x.size(0), x.size(2)

    def rho(pair: Tensor, which: str) -> Tensor:
        if authors:
            return linear(relu(linear(batch_norm(pair, w, "norm"), w, "hidden")), w, which)
        start = 0 if which == "first" else d
        hidden = act(pair @ w["hidden.weight"][start : start + d].T + w["hidden.bias"][start : start + d])
        return linear(hidden, w, which)

    nodes = torch.stack([sum(rho(x[i, j], "first") + rho(x[j, i], "second") for j in range(n)) for i in range(n)])
    if authors:
        nodes = linear(relu(linear(batch_norm(nodes, w, "node_norm"), w, "node_mlp.0")), w, "node_mlp.3")
    return nodes


def set2set(x: Tensor, w: dict[str, Tensor], steps: int) -> Tensor:
    """Set2Set for one graph (Vinyals et al. 2016): an LSTM queries the nodes, [n, d] -> [2d]."""
    d = x.size(1)
    h, c, q = torch.zeros(d, dtype=x.dtype), torch.zeros(d, dtype=x.dtype), torch.zeros(2 * d, dtype=x.dtype)
    for _ in range(steps):
        gates = w["lstm.weight_ih"] @ q + w["lstm.bias_ih"] + w["lstm.weight_hh"] @ h + w["lstm.bias_hh"]
        keep, forget, fresh, show = gates.view(4, d)
        c = torch.sigmoid(forget) * c + torch.sigmoid(keep) * torch.tanh(fresh)
        h = torch.sigmoid(show) * torch.tanh(c)
        weights = torch.stack([node @ h for node in x]).softmax(0)
        q = torch.cat([h, sum(weight * node for weight, node in zip(weights, x, strict=True))])
    return q


def brec(adjacency: Tensor, w: dict[str, Tensor], num_heads: int, num_layers: int, shared: bool) -> Tensor:
    """The BREC variant for one graph, without its last BatchNorm: adjacency [n, n] with 2 on the diagonal -> [out]."""
    n = adjacency.size(0)
    x, total = adjacency.unsqueeze(2), 0.0
    for number in range(num_layers):
        v = part(w, f"layers.{number}.")
        q, k, v1, v2 = (linear(x, v, f"projections.{0 if shared else a}") for a in range(4))
        d = q.size(2) // num_heads
        heads = []
        for h in range(num_heads):
            at = slice(h * d, (h + 1) * d)
            norms = [f"norms.{0 if shared else a}" for a in range(3)]
            left, right = layer_norm(q[:, :, at], v, norms[0]), layer_norm(k[:, :, at], v, norms[1])
            heads.append(
                triangular_attention(
                    left, right, v1[:, :, at], v2[:, :, at], lambda f, v=v, name=norms[2]: layer_norm(f, v, name)
                )
            )
        x = layer_norm(linear(torch.cat([x, *heads], 2), v, "out"), v, "out_norm")
        diagonal = torch.stack([x[i, i] for i in range(n)]).amax(0)
        others = torch.stack([x[i, j] for i in range(n) for j in range(n) if i != j]).amax(0)
        total = total + linear(torch.cat([diagonal, others]), w, f"readouts.{number}")
    return total


def part(w: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The weights whose names start with `prefix`, by the remainder of the name."""
    return {name[len(prefix) :]: value for name, value in w.items() if name.startswith(prefix)}
