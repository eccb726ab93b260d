"""Triangular attention (Edge Transformer, Section 3, Eqs. 1 and 2): the pair (i, j) attends over the paths i -> l -> j.

    S_ilj = <Q_il, K_lj> / sqrt(d_h)     A = softmax over l     O_ij = sum_l A_ilj (V1_il * V2_lj)      per head

Three forms of the same numbers, dropout included, behind one switch: "dense" writes the equations down (n^3 d values), "chunked" works on a
few rows i at a time and recomputes them in the backward pass, "fused" is a compiled CPU kernel that keeps no n^3 value at all.
"""

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from gt_models.batch import GraphBatch

Implementation = Literal["auto", "dense", "chunked", "fused"]
IMPLEMENTATIONS = ("auto", "dense", "chunked", "fused")
_CHUNK_VALUES = {"cpu": 2**22, "cuda": 2**27}  # values of the largest intermediate of one chunk, by kind of device


class TriangularAttention(nn.Module):
    """Multi-head triangular attention over all ordered pairs of each graph, with five bias-free projections.

    Args:
        hidden_dim: width d of the pair states.
        num_heads: heads H; raises ValueError unless they divide `hidden_dim`.
        attn_dropout: probability with which a single weight A_ilj is dropped in training.
        implementation: "dense", "chunked", "fused", or "auto": "fused" for float32 on CPU, "chunked" elsewhere.

    forward: pair states [P, d] of the batch, P = sum n_b^2 -> [P, d].
    """

    def __init__(self, hidden_dim: int, num_heads: int, attn_dropout: float = 0.0, implementation: Implementation = "auto"):
        super().__init__()
        if hidden_dim % num_heads:
            raise ValueError(f"hidden_dim {hidden_dim} does not split into {num_heads} heads: choose a multiple of num_heads")
        if not 0.0 <= attn_dropout < 1.0:
            raise ValueError(f"attn_dropout {attn_dropout} is outside [0, 1)")
        if implementation not in IMPLEMENTATIONS:
            raise ValueError(f"unknown implementation {implementation!r} of triangular attention; known: {', '.join(IMPLEMENTATIONS)}")
        self.num_heads, self.attn_dropout, self.implementation = num_heads, attn_dropout, implementation
        # the first four of the five projections as one product: rows of the weight are W^Q, W^K, W^V1, W^V2
        self.projections = nn.Linear(hidden_dim, 4 * hidden_dim, bias=False)
        # unstated: the output projection and the scale per head; W^O appears in the paper's proof alone, both are in the authors' code
        self.out = nn.Linear(hidden_dim, hidden_dim, bias=False)

    def reset_parameters(self) -> None:
        self.projections.reset_parameters()
        self.out.reset_parameters()

    def forward(self, x: Tensor, batch: GraphBatch) -> Tensor:
        projected = self.projections(x).view(x.size(0), 4, self.num_heads, x.size(1) // self.num_heads)  # [P, 4, H, d_h]
        dropout = self.attn_dropout if self.training else 0.0
        o = triangular_attention(projected, batch, dropout=dropout, implementation=self.implementation)  # [P, H, d_h]
        return self.out(o.flatten(1))  # [P, d]


def triangular_attention(
    projected: Tensor,
    batch: GraphBatch,
    *,
    dropout: float = 0.0,
    fusion_norm: nn.Module | None = None,
    implementation: Implementation = "auto",
) -> Tensor:
    """Eqs. 1 and 2 on flat pairs: queries, keys, first and second values [P, 4, H, d_h] -> [P, H, d_h].

    `fusion_norm` is applied to every fused value V1_il * V2_lj before it is weighted (the BREC variant; not in the "fused" form).
    Dropout draws one seed from torch's CPU generator; the same seed gives the same mask in all forms.
    """
    on_cpu = projected.device.type == "cpu"
    if implementation == "auto":
        fits = on_cpu and projected.dtype != torch.float64 and fusion_norm is None
        implementation = "fused" if fits else "chunked"
    seed = torch.randint(2**31 - 1, (1,)) if dropout > 0.0 else torch.zeros(1, dtype=torch.long)
    if implementation == "fused":
        if not on_cpu or fusion_norm is not None:
            raise ValueError('the "fused" triangular attention runs on the CPU and without fusion_norm: choose "chunked"')
        from gt_models.nn.triangular_cpu import triangular_forward

        # half precision is widened: the kernel's time is arithmetic, not memory
        wide = projected if projected.dtype == torch.float64 else projected.float()
        return triangular_forward(wide, batch.sizes, seed, dropout)[0].to(projected.dtype)
    rows = batch.pairs_to_dense(torch.arange(projected.size(0), device=projected.device)) if dropout > 0.0 else None  # [B, n, n]
    q, k, v1, v2 = batch.pairs_to_dense(projected).unbind(3)  # [B, n, n, H, d_h]
    mask = batch.node_mask if batch.num_graphs > 1 else None
    form = _attend if implementation == "dense" else _chunked
    return batch.pairs_from_dense(form(q, k, v1, v2, mask, rows, seed, dropout, fusion_norm))


def _attend(q, k, v1, v2, node_mask, rows, seed, dropout, fusion_norm) -> Tensor:
    """The equations as they stand for some rows i: q, v1 [B, i, l, H, d_h], k, v2 [B, l, j, H, d_h] -> [B, i, j, H, d_h]."""
    scores = torch.einsum("bilhc,bljhc->biljh", q, k) / math.sqrt(q.size(-1))  # [B, i, l, j, H]
    if node_mask is not None:
        # a large finite number, so that rows of padding stay free of NaN; their outputs are never read
        scores = scores.masked_fill(~node_mask[:, None, :, None, None], torch.finfo(scores.dtype).min / 4)
    weights = scores.softmax(2)
    if dropout > 0.0:
        keep = dropout_mask(seed, rows, q.size(3), k.size(2), dropout)
        weights = weights * keep / (1.0 - dropout)
    fused = v1.unsqueeze(3) * v2.unsqueeze(1)  # Eq. 2: [B, i, l, j, H, d_h]
    if fusion_norm is not None:
        fused = fusion_norm(fused)
    return (weights.unsqueeze(-1) * fused).sum(2)  # Eq. 1


def _chunked(q, k, v1, v2, node_mask, rows, seed, dropout, fusion_norm) -> Tensor:
    """A few graphs, or a few rows i of one, at a time; each chunk keeps its inputs only and is computed again in the backward pass."""
    num_graphs, n = q.shape[:2]
    allowed = _CHUNK_VALUES.get(q.device.type, 2**24)
    per_row = max(1, q[:1, :1].numel() * n)  # values [1, 1, l, j, H, d_h]
    graph_step, row_step = max(1, allowed // max(1, per_row * n)), max(1, allowed // per_row)
    graphs = []
    for g in [slice(i, i + graph_step) for i in range(0, num_graphs, graph_step)]:
        chunks = []
        for part in [slice(i, i + row_step) for i in range(0, n, row_step)]:
            mask, numbers = None if node_mask is None else node_mask[g], None if rows is None else rows[g, part]
            arguments = (q[g, part], k[g], v1[g, part], v2[g], mask, numbers, seed, dropout, fusion_norm)
            chunks.append(checkpoint(_attend, *arguments, use_reentrant=False, preserve_rng_state=False))
        graphs.append(torch.cat(chunks, 1) if chunks else q[g])
    return torch.cat(graphs) if graphs else q


def dropout_mask(seed: Tensor, rows: Tensor, num_heads: int, num_columns: int, rate: float) -> Tensor:
    """Which weights stay: pair numbers (i, l) [B, i, l] -> bool [B, i, l, j, H].

    A hash of (seed, pair, head, j), so that no mask is stored and every form draws the same one (the compiled kernel has its own copy).
    """
    heads = torch.arange(num_heads, device=rows.device)
    columns = torch.arange(num_columns, device=rows.device)
    row = _hash32(((rows[..., None] * num_heads + heads) & 0xFFFFFFFF) ^ seed.to(rows.device))  # [B, i, l, H]
    draw = _hash32((row.unsqueeze(-2) + columns[:, None] * 0x9E3779B9) & 0xFFFFFFFF)  # [B, i, l, j, H]
    return draw >= int(rate * 2**32)


def _hash32(x: Tensor) -> Tensor:
    """A 32-bit mixing function on non-negative int64 (two multiplications, three shifts)."""
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & 0xFFFFFFFF
    x = ((x ^ (x >> 15)) * 0x846CA68B) & 0xFFFFFFFF
    return x ^ (x >> 16)
