"""The equations of TokenGT for one graph, one token and one head at a time.

From Sections 2 and 3 and the appendices on identifiers, PCQM4Mv2 and node classification. Weights have the names of
`gt_models.tokengt.TokenGT`.
"""

import math

import torch
from torch import Tensor


def layer_norm(x: Tensor, w: dict[str, Tensor], name: str) -> Tensor:
    mean = x.mean()
    return (x - mean) / torch.sqrt(((x - mean) ** 2).mean() + 1e-5) * w[f"{name}.weight"] + w[f"{name}.bias"]


def gelu(x: Tensor) -> Tensor:
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2.0)))


def linear(x: Tensor, w: dict[str, Tensor], name: str) -> Tensor:
    return w[f"{name}.weight"] @ x + w.get(f"{name}.bias", torch.zeros((), dtype=x.dtype))


def tokens(
    w: dict[str, Tensor], x: Tensor, tuples: list[tuple[int, ...]], features: Tensor | None, p: Tensor | None
) -> list[Tensor]:
    """Z^(0) of Section 2: [graph], [null], nodes, edges.

    Args:
        tuples: node ids of each edge or hyperedge.
        p: rows of node identifiers.
    """
    out = [w[name][0] for name in ("graph_token", "null_token") if name in w]
    order = len(tuples[0]) if tuples else 2
    for v in range(x.size(0)):
        token = w["node_encoder.linear.weight"] @ x[v]
        if p is not None:
            token = token + w["identifier_encoder.weight"] @ torch.cat([p[v]] * order)
        if "type_encoder.weight" in w:
            token = token + w["type_encoder.weight"][-1]  # all indices equal: E^V
        out.append(token)
    for e, members in enumerate(tuples):
        token = torch.zeros_like(out[0]) if features is None else w["edge_encoder.linear.weight"] @ features[e]
        if p is not None:
            token = token + w["identifier_encoder.weight"] @ torch.cat([p[v] for v in members])
        if "type_encoder.weight" in w:
            token = token + w["type_encoder.weight"][pattern(members)]
        out.append(token)
    return out


def pattern(members: tuple[int, ...]) -> int:
    """Equivalence classes by descending restricted growth strings: all different (0) to all equal (the last)."""
    strings = [[0]]
    for _ in members[1:]:
        strings = [[*s, block] for s in strings for block in range(max(s) + 2)]
    seen: list[int] = []
    mine = []
    for member in members:
        if member not in seen:
            seen.append(member)
        mine.append(seen.index(member))
    return sorted(strings, reverse=True).index(mine)


def attention(q: list[Tensor], k: list[Tensor], v: list[Tensor]) -> list[Tensor]:
    """Eq. (5), one head."""
    out = []
    for q_i in q:
        scores = torch.stack([q_i @ k_j / math.sqrt(q_i.numel()) for k_j in k])
        weights = torch.exp(scores - scores.max())
        weights = weights / weights.sum()
        out.append(sum(weights[j] * v[j] for j in range(len(v))))
    return out


def performer(q: list[Tensor], k: list[Tensor], v: list[Tensor], projection: Tensor, eps: float = 1e-4) -> list[Tensor]:
    """FAVOR+ for one head: positive features, stabilised per query and over all keys of the graph."""
    m, c = projection.size(0), q[0].numel() ** -0.25
    highest = max(float((c * projection @ k_j).max()) for k_j in k)

    def phi(u: Tensor, stabilizer: float) -> Tensor:
        return (torch.exp(c * projection @ u - c**2 * (u @ u) / 2 - stabilizer) + eps) / math.sqrt(m)

    keys = [phi(k_j, highest) for k_j in k]
    out = []
    for q_i in q:
        feature = phi(q_i, float((c * projection @ q_i).max()))
        out.append(sum((feature @ f) * v_j for f, v_j in zip(keys, v, strict=True)) / sum(feature @ f for f in keys))
    return out


def encoder(
    w: dict[str, Tensor], z: list[Tensor], num_heads: int, edges: list[tuple[int, int]] | None = None, first: int = 0
) -> list[Tensor]:
    """PreLN layers.

    Args:
        edges: for the SEB variant, whose node tokens start at `first`; edge tokens follow the nodes.
    """
    layer = 0
    if "embedding_norm.weight" in w:
        z = [layer_norm(t, w, "embedding_norm") for t in z]
    while f"layers.{layer}.attn.qkv.weight" in w:
        name = f"layers.{layer}"
        d = z[0].numel()
        head = d // num_heads
        qkv = [linear(layer_norm(t, w, f"{name}.attn_norm"), w, f"{name}.attn.qkv") for t in z]
        heads = []
        for h in range(num_heads):
            q, k, v = ([t[part * d + h * head : part * d + (h + 1) * head] for t in qkv] for part in range(3))
            projection = w.get(f"{name}.attn.features.projection")
            heads.append(attention(q, k, v) if projection is None else performer(q, k, v, projection))
        z = [
            t + linear(torch.cat([heads[h][i] for h in range(num_heads)]), w, f"{name}.attn.out")
            for i, t in enumerate(z)
        ]
        z = [
            t + linear(gelu(linear(layer_norm(t, w, f"{name}.ffn_norm"), w, f"{name}.ffn_in")), w, f"{name}.ffn_out")
            for t in z
        ]
        if edges is not None:
            first_edge = len(z) - len(edges)
            added = {}
            for e, (i, j) in enumerate(edges):  # X_ii += sum over j != i of X_ij
                if i != j:
                    added[i] = added.get(i, 0) + z[first_edge + e]
            z = [t + added.get(place - first, 0) if first <= place < first_edge else t for place, t in enumerate(z)]
        layer += 1
    return z


def output(w: dict[str, Tensor], t: Tensor) -> Tensor:
    if "final_norm.weight" in w:
        t = layer_norm(t, w, "final_norm")
    if "head.transform.weight" not in w:
        return linear(t, w, "head")
    return w["head.out.weight"] @ layer_norm(gelu(linear(t, w, "head.transform")), w, "head.norm") + w["head.bias"]
