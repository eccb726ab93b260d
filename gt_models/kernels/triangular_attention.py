"""Triangular attention (Edge Transformer, Eqs. 1 and 2): the pair (i, j) attends over the paths i -> l -> j.

Mueller and Morris: Towards Principled Graph Transformers, Section 3, https://arxiv.org/abs/2401.10119.

    S_ilj = <Q_il, K_lj> / sqrt(d)     A = softmax over l     O_ij = sum_l A_ilj (V1_il * V2_lj)      per head

The reference holds values of all triples. "numba" (CPU) and "triton" (CUDA) hold none; "chunked" takes a few rows i at
a time.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from gt_models.batch import GraphBatch
from gt_models.kernels.dispatch import Form, Operation
from gt_models.layers.triple_dropout import kept_triples

# values of the largest intermediate, by kind of device: above it, a few rows at a time
_MANY_VALUES = {"cpu": 2**22, "cuda": 2**27}


def reference(
    x: Tensor, batch: GraphBatch, seed: Tensor, dropout: float, fusion_norm: Callable[[Tensor], Tensor] | None = None
) -> Tensor:
    """Queries, keys, first and second values [P, 4, H, d] of the P = sum n_b^2 pairs of a batch -> [P, H, d].

    Args:
        x: the four in this order, pairs as in `GraphBatch`.
        batch: of which only the sizes of the graphs are read.
        seed: long [1], decides which weights are dropped.
        dropout: probability with which a single weight A_ilj is dropped.
        fusion_norm: applied to each V1_il * V2_lj before it is weighted.

    Holds [B, n, n, n, H, d] tensors.
    """
    q, k, v1, v2 = batch.pairs_to_dense(x).unbind(3)  # [B, n, n, H, d]
    return batch.pairs_from_dense(
        _attend(q, k, v1, v2, *_mask_and_pairs(x, batch, dropout), seed, dropout, fusion_norm)
    )


def chunked(
    x: Tensor, batch: GraphBatch, seed: Tensor, dropout: float, fusion_norm: Callable[[Tensor], Tensor] | None = None
) -> Tensor:
    """The same, a few graphs or a few rows i of one at a time.

    The backward pass computes each chunk again from its inputs.
    """
    q, k, v1, v2 = batch.pairs_to_dense(x).unbind(3)
    mask, pairs = _mask_and_pairs(x, batch, dropout)
    num_graphs, n = q.shape[:2]
    allowed = _MANY_VALUES.get(x.device.type, 2**24)
    per_row = max(1, q[:1, :1].numel() * n)  # values [1, 1, l, j, H, d]
    graph_step, row_step = max(1, allowed // max(1, per_row * n)), max(1, allowed // per_row)
    graphs = []
    for g in [slice(i, i + graph_step) for i in range(0, num_graphs, graph_step)]:
        rows = []
        for i in [slice(i, i + row_step) for i in range(0, n, row_step)]:
            some = (None if mask is None else mask[g], None if pairs is None else pairs[g, i])
            arguments = (q[g, i], k[g], v1[g, i], v2[g], *some, seed, dropout, fusion_norm)
            rows.append(checkpoint(_attend, *arguments, use_reentrant=False, preserve_rng_state=False))
        graphs.append(torch.cat(rows, 1) if rows else q[g])
    return batch.pairs_from_dense(torch.cat(graphs) if graphs else q)


def _mask_and_pairs(x: Tensor, batch: GraphBatch, dropout: float) -> tuple[Tensor | None, Tensor | None]:
    """Nodes that are not padding [B, n] (None: all), and the number of each pair [B, n, n] if weights are dropped."""
    mask = batch.node_mask if batch.num_graphs > 1 else None
    return mask, batch.pairs_to_dense(torch.arange(x.size(0), device=x.device)) if dropout > 0 else None


def _attend(q, k, v1, v2, mask, pairs, seed, dropout, fusion_norm) -> Tensor:
    """For some rows i: q, v1 [B, i, l, H, d], k, v2 [B, l, j, H, d] -> [B, i, j, H, d]."""
    scores = torch.einsum("bilhc,bljhc->biljh", q, k) / math.sqrt(q.size(-1))
    if mask is not None:
        # a large finite number: rows of padding stay free of NaN, and their outputs are never read
        scores = scores.masked_fill(~mask[:, None, :, None, None], torch.finfo(scores.dtype).min / 4)
    weights = scores.softmax(2)
    if dropout > 0:
        weights = weights * kept_triples(seed, pairs, q.size(3), k.size(2), dropout) / (1 - dropout)
    fused = v1.unsqueeze(3) * v2.unsqueeze(1)  # Eq. 2: [B, i, l, j, H, d]
    if fusion_norm is not None:
        fused = fusion_norm(fused)
    return (weights.unsqueeze(-1) * fused).sum(2)  # Eq. 1


def _example(x: Tensor, batch: GraphBatch, seed: Tensor, dropout: float, fusion_norm=None) -> tuple[tuple, dict]:
    """Graphs of 3, 1, 0 and 18 nodes: more than one tile."""
    ptr = torch.tensor([0, 3, 4, 4, 22])
    small = GraphBatch(torch.zeros(22, 1), torch.zeros(2, 0, dtype=torch.long), ptr).to(x.device)
    values = torch.randn(small.num_pairs, *x.shape[1:], dtype=x.dtype).to(x.device).requires_grad_()
    return (values, small, torch.tensor([5]), dropout, fusion_norm), {}


def _why_not_numba(x, batch, seed, dropout, fusion_norm=None) -> str | None:
    return None if fusion_norm is None else "has no norm on fused values"


def _why_not_triton(x, batch, seed, dropout, fusion_norm=None) -> str | None:
    return (
        _why_not_numba(x, batch, seed, dropout, fusion_norm) if x.is_cuda else f"runs on cuda, not on {x.device.type}"
    )


def _why_not_chunked(x, batch, seed, dropout, fusion_norm=None) -> str | None:
    values = batch.num_graphs * batch.max_nodes**3 * x.size(2) * x.size(3)
    return None if values > _MANY_VALUES.get(x.device.type, 2**24) else f"{values} values of triples fit as they are"


def _numba():
    from gt_models.kernels.triangular_attention_numba import triangular_attention

    return triangular_attention


def _triton():
    from gt_models.kernels.triangular_attention_triton import triangular_attention

    return triangular_attention


triangular_attention = Operation(
    "triangular_attention",
    reference,
    [
        Form("numba", _numba, _why_not_numba),
        Form("triton", _triton, _why_not_triton, ("cuda", "cpu")),  # the seed is on the CPU
        Form(
            "chunked",
            lambda: chunked,
            _why_not_chunked,
            ("cuda", "cpu"),
            (torch.float32, torch.float64, torch.bfloat16, torch.float16),
        ),
    ],
    _example,
)
