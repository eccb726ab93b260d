"""Triangular attention on a GPU: no value per triple of nodes is stored.

For a fixed l the score S_ilj is an ordinary product of rows Q_il and K_lj. The forward pass holds a tile of pairs (i,
j) and goes along l with a running softmax; it keeps the logarithm of each softmax's sum. The backward pass forms each
weight again, twice: for the pairs (i, l) along j and for the pairs (l, j) along i, so that each gradient has one writer
and two runs give the same bits.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from gt_models.kernels.dropout_triton import hash32, is_kept
from gt_models.kernels.once_differentiable import once_differentiable

LOG2E = 1.4426950408889634


class _TriangularAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, batch, seed, dropout, fusion_norm=None) -> Tensor:
        x = x.contiguous()
        num_pairs, _, heads, width = x.shape
        out, stats = x.new_empty(num_pairs, heads, width), x.new_empty(num_pairs, heads)
        ctx.arguments = _arguments(heads, width, seed, dropout)
        tile = ctx.arguments["TILE"]
        if num_pairs:
            tiles = triton.cdiv(batch.max_nodes, tile)
            _forward[(tiles * tiles, heads, batch.num_graphs)](
                x, batch.pair_ptr, batch.sizes, out, stats, **ctx.arguments
            )
        ctx.save_for_backward(x, out, stats, batch.pair_ptr, batch.sizes)
        ctx.max_nodes = batch.max_nodes
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        x, out, stats, pair_ptr, sizes = ctx.saved_tensors
        grad, dx = grad.contiguous(), torch.empty_like(x)
        inner = (grad * out).sum(-1)  # sum over l of A_ilj dA_ilj, [P, H]
        if x.numel():
            grid = (triton.cdiv(ctx.max_nodes, ctx.arguments["TILE"]) * ctx.max_nodes, x.size(2), sizes.numel())
            for second in (False, True):
                _backward[grid](x, pair_ptr, sizes, grad, stats, inner, dx, SECOND=second, **ctx.arguments)
        return dx, None, None, None, None


triangular_attention = _TriangularAttention.apply


def _arguments(heads: int, width: int, seed: Tensor, dropout: float) -> dict:
    padded = triton.next_power_of_2(width)
    return {
        "seed": int(seed),
        "LIMIT": int(dropout * 2**32),
        "KEEP": 1 / (1 - dropout),
        "H": heads,
        "D": width,
        "PADDED": padded,
        # a program holds TILE * TILE * PADDED values. benchmarks/tiles.py on an H100, 183 nodes, 8 heads of width 16:
        # forward and backward take 3.5 ms; with 8 * 8 pairs and four warps 7.3 ms
        "TILE": 4,
        "num_warps": 1 if padded <= 64 else 4,
        "ROOT": 1 / math.sqrt(width),
        "SCALE": LOG2E / math.sqrt(width),
    }


@triton.jit
def _kept(pair, h, j, seed, LIMIT: tl.constexpr, H: tl.constexpr):
    """Which weights of the rows `pair` = (i, l) stay, by the counter hash; pair and j broadcast."""
    return is_kept(hash32((pair * H + h).to(tl.uint32) ^ seed.to(tl.uint32)), j, LIMIT)


@triton.jit
def _rows(
    x, pair, inside, h, KIND: tl.constexpr, KINDS: tl.constexpr, H: tl.constexpr, D: tl.constexpr, PADDED: tl.constexpr
):
    """Channels of some pairs, [.., PADDED]; zeros beyond D and where a pair is not inside."""
    c = tl.arange(0, PADDED)
    if len(pair.shape) == 1:
        place, mask = pair[:, None], inside[:, None] & (c < D)[None, :]
    else:
        place, mask = pair[:, :, None], inside[:, :, None] & (c < D)[None, None, :]
    return tl.load(x + ((place * KINDS + KIND) * H + h) * D + c, mask, 0.0)


@triton.jit(do_not_specialize=["seed"])
def _forward(
    x,
    first,
    sizes,
    out,
    stats,
    seed,
    H: tl.constexpr,
    D: tl.constexpr,
    PADDED: tl.constexpr,
    TILE: tl.constexpr,
    ROOT: tl.constexpr,
    SCALE: tl.constexpr,
    LIMIT: tl.constexpr,
    KEEP: tl.constexpr,
):
    """One tile of pairs (i, j) of one head of one graph."""
    tile, h, graph = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    p0, n = tl.load(first + graph), tl.load(sizes + graph)
    across = tl.cdiv(n, TILE)
    if tile < across * across:
        i, j = tile // across * TILE + tl.arange(0, TILE), tile % across * TILE + tl.arange(0, TILE)
        peak, total = tl.full((TILE, TILE), -1e30, x.dtype.element_ty), tl.zeros((TILE, TILE), x.dtype.element_ty)
        o = tl.zeros((TILE, TILE, PADDED), x.dtype.element_ty)
        for l in range(0, n):
            il, lj = p0 + i * n + l, p0 + l * n + j
            q, v1 = _rows(x, il, i < n, h, 0, 4, H, D, PADDED), _rows(x, il, i < n, h, 2, 4, H, D, PADDED)
            k, v2 = _rows(x, lj, j < n, h, 1, 4, H, D, PADDED), _rows(x, lj, j < n, h, 3, 4, H, D, PADDED)
            s = tl.sum(q[:, None, :] * k[None, :, :], 2) * SCALE
            larger = tl.maximum(peak, s, propagate_nan=tl.PropagateNan.ALL)
            weight, correction = tl.exp2(s - larger), tl.exp2(peak - larger)
            total, peak = total * correction + weight, larger
            if LIMIT > 0:
                weight = tl.where(_kept(il[:, None], h, j[None, :], seed, LIMIT, H), weight * KEEP, 0.0)
            o = o * correction[:, :, None] + weight[:, :, None] * (v1[:, None, :] * v2[None, :, :])
        ij, inside, c = p0 + i[:, None] * n + j[None, :], (i < n)[:, None] & (j < n)[None, :], tl.arange(0, PADDED)
        tl.store(
            out + (ij[:, :, None] * H + h) * D + c, o / total[:, :, None], inside[:, :, None] & (c < D)[None, None, :]
        )
        tl.store(stats + ij * H + h, peak + tl.log2(total), inside)


@triton.jit(do_not_specialize=["seed"])
def _backward(
    x,
    first,
    sizes,
    grad,
    stats,
    inner,
    dx,
    seed,
    SECOND: tl.constexpr,
    H: tl.constexpr,
    D: tl.constexpr,
    PADDED: tl.constexpr,
    TILE: tl.constexpr,
    ROOT: tl.constexpr,
    SCALE: tl.constexpr,
    LIMIT: tl.constexpr,
    KEEP: tl.constexpr,
):
    """Gradients of queries and first values of TILE pairs (i, l), along j.

    Of keys and second values of pairs (l, j), along i (`SECOND`).
    """
    tile, h, graph = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    p0, n = tl.load(first + graph), tl.load(sizes + graph)
    across = tl.cdiv(n, TILE)
    if tile < across * n:
        l, start = tile // across, tile % across * TILE
        left = tl.zeros((TILE, PADDED), x.dtype.element_ty)  # dQ or dK
        right = tl.zeros((TILE, PADDED), x.dtype.element_ty)  # dV1 or dV2
        for other in range(0, n, TILE):
            if SECOND:
                i, j = other + tl.arange(0, TILE), start + tl.arange(0, TILE)
            else:
                i, j = start + tl.arange(0, TILE), other + tl.arange(0, TILE)
            il, lj = p0 + i * n + l, p0 + l * n + j
            ij, inside = p0 + i[:, None] * n + j[None, :], (i < n)[:, None] & (j < n)[None, :]
            q, v1 = _rows(x, il, i < n, h, 0, 4, H, D, PADDED), _rows(x, il, i < n, h, 2, 4, H, D, PADDED)
            k, v2 = _rows(x, lj, j < n, h, 1, 4, H, D, PADDED), _rows(x, lj, j < n, h, 3, 4, H, D, PADDED)
            g = _rows(grad, ij, inside, h, 0, 1, H, D, PADDED)  # [TILE, TILE, PADDED]
            s = tl.sum(q[:, None, :] * k[None, :, :], 2) * SCALE
            weight = tl.where(inside, tl.exp2(s - tl.load(stats + ij * H + h, inside, 0.0)), 0.0)
            dweight = tl.sum(v1[:, None, :] * v2[None, :, :] * g, 2)
            dropped = weight
            if LIMIT > 0:
                kept = _kept(il[:, None], h, j[None, :], seed, LIMIT, H)
                dropped, dweight = tl.where(kept, weight * KEEP, 0.0), tl.where(kept, dweight * KEEP, 0.0)
            ds = weight * (dweight - tl.load(inner + ij * H + h, inside, 0.0)) * ROOT
            weighted = dropped[:, :, None] * g
            if SECOND:
                left += tl.sum(ds[:, :, None] * q[:, None, :], 0)
                right += tl.sum(weighted * v1[:, None, :], 0)
            else:
                left += tl.sum(ds[:, :, None] * k[None, :, :], 1)
                right += tl.sum(weighted * v2[None, :, :], 1)
        rows, c = start + tl.arange(0, TILE), tl.arange(0, PADDED)
        mask = (rows < n)[:, None] & (c < D)[None, :]
        pair = p0 + l * n + rows if SECOND else p0 + rows * n + l
        place = ((pair[:, None] * 4 + (1 if SECOND else 0)) * H + h) * D + c
        tl.store(dx + place, left, mask)
        tl.store(dx + place + 2 * H * D, right, mask)
