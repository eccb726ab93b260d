"""Gated attention on a GPU: no weight of a pair is stored.

A program has one head of one graph and a tile of its nodes. The forward pass goes along the keys with a running softmax
and keeps the logarithm of each softmax's sum. The backward pass computes each weight again, twice: for queries along
the keys, which also gives the gradients of bias and gate, and for keys along the queries. Each number has one writer,
so that two runs give the same bits.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from gt_models.batch import GraphBatch
from gt_models.kernels.dropout_triton import hash32, is_kept
from gt_models.kernels.once_differentiable import once_differentiable
from gt_models.layers.dropout_hash import threshold

LOG2E = tl.constexpr(1.4426950408889634)


class _GatedAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx, qkv: Tensor, pairs: Tensor, heads: int, batch: GraphBatch, scale: float, key_scale: float, dropout: float,
            seed: Tensor | None
    ) -> Tensor:  # fmt: skip
        qkv, pairs = qkv.contiguous(), pairs if pairs.stride(1) == 1 else pairs.contiguous()
        nodes, width = len(qkv), qkv.size(1) // (3 * heads)
        out, stats = qkv.new_empty(nodes, heads * width), qkv.new_empty(nodes, heads)
        ctx.arguments = _arguments(heads, width, scale, key_scale, pairs.size(1) > heads, dropout, seed)
        ctx.grid = triton.cdiv(batch.max_nodes, ctx.arguments["TILE"]), heads, batch.num_graphs
        if nodes:
            _forward[ctx.grid](
                qkv, pairs, batch.ptr, batch.pair_ptr, out, stats, stride=pairs.stride(0), **ctx.arguments
            )
        ctx.save_for_backward(qkv, pairs, out, stats, batch.ptr, batch.pair_ptr)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        qkv, pairs, out, stats, ptr, pair_ptr = ctx.saved_tensors
        grad, dqkv = grad.contiguous(), torch.empty_like(qkv)
        dpairs = torch.empty(pairs.shape, dtype=pairs.dtype, device=pairs.device)
        inner = torch.empty_like(stats)  # sum over j of w_ij dw_ij, [N, H]; the call for queries writes it
        for by_key in (False, True) if len(qkv) else ():
            _backward[ctx.grid](
                qkv, pairs, ptr, pair_ptr, grad, out, stats, inner, dqkv, dpairs, stride=pairs.stride(0), BY_KEY=by_key,
                **ctx.arguments
            )  # fmt: skip
        return dqkv, dpairs, *[None] * 6


gated_attention = _GatedAttention.apply


def _arguments(
    heads: int, width: int, scale: float, key_scale: float, gated: bool, dropout: float, seed: Tensor | None
) -> dict:
    padded = triton.next_power_of_2(width)
    rate = 0.0 if seed is None else dropout
    return {
        "seed": 0 if seed is None else int(seed), "LIMIT": threshold(rate), "KEEP": 1 / (1 - rate),
        "H": heads, "C": width, "PADDED": padded, "GATED": gated, "SCALE": scale, "KEY_SCALE": key_scale,
        # a program holds TILE * TILE * PADDED values. benchmarks/tiles.py on an H100, 256 graphs of 14 nodes, 32 heads
        # of width 24: forward and backward take 0.56 ms; with four warps 1.6 ms. No larger tiles: Triton computes sums
        # of products of 16 * 16 * 16 numbers in TF32
        "TILE": 16 if padded <= 8 else 8 if padded <= 32 else 4,
        "num_warps": 1 if padded <= 8 else 2,
    }  # fmt: skip


@triton.jit
def _rows(
    x, row, inside, h, KIND: tl.constexpr, KINDS: tl.constexpr, H: tl.constexpr, C: tl.constexpr, PADDED: tl.constexpr
):
    """Channels of a head of some nodes, [TILE, PADDED]; zeros beyond C and where a node is not inside."""
    c = tl.arange(0, PADDED)
    return tl.load(x + ((row * KINDS + KIND) * H + h)[:, None] * C + c, inside[:, None] & (c < C)[None, :], 0.0)


@triton.jit
def _scores(q, k, pairs, pair, inside, h, stride, H: tl.constexpr, SCALE: tl.constexpr, KEY_SCALE: tl.constexpr):
    """Scores in base 2 of a tile of pairs, [query, key]; -inf where a pair is not inside."""
    s = tl.sum(q[:, None, :] * k[None, :, :], 2) * SCALE + tl.load(pairs + pair * stride + h, inside, 0.0)
    if KEY_SCALE != 0:  # 0 times the square of a large number would be NaN
        s += (tl.sum(k * k, 1) * KEY_SCALE)[None, :]
    return tl.where(inside, s * LOG2E, -float("inf"))


@triton.jit
def _factors(
    pairs, pair, inside, h, stride, seed, H: tl.constexpr, GATED: tl.constexpr, LIMIT: tl.constexpr, KEEP: tl.constexpr
):
    """What the weights of a tile of pairs are multiplied by: gate and dropout, each [query, key]."""
    kept = tl.where(inside, 1.0, 0.0).to(pairs.dtype.element_ty)
    gate = kept
    if GATED:
        gate = tl.load(pairs + pair * stride + H + h, inside, 0.0)
    if LIMIT > 0:
        kept = tl.where(is_kept(hash32(seed.to(tl.uint32)), pair * H + h, LIMIT), kept * KEEP, 0.0)
    return gate, kept


@triton.jit(do_not_specialize=["seed"])
def _forward(
    qkv, pairs, ptr, pair_ptr, out, stats, stride, seed,
    H: tl.constexpr, C: tl.constexpr, PADDED: tl.constexpr, TILE: tl.constexpr, GATED: tl.constexpr,
    SCALE: tl.constexpr, KEY_SCALE: tl.constexpr, LIMIT: tl.constexpr, KEEP: tl.constexpr,
):  # fmt: skip
    """Of TILE queries: out [N, H, C], and the base-2 logarithm of the sum of the powers of scores, stats [N, H]."""
    start, h, graph = tl.program_id(0) * TILE, tl.program_id(1), tl.program_id(2)
    first, p0 = tl.load(ptr + graph), tl.load(pair_ptr + graph)
    n = tl.load(ptr + graph + 1) - first
    if start < n:
        i = start + tl.arange(0, TILE)
        dtype = qkv.dtype.element_ty
        q = _rows(qkv, first + i, i < n, h, 0, 3, H, C, PADDED)
        peak, total = tl.full((TILE,), -float("inf"), dtype), tl.zeros((TILE,), dtype)
        o = tl.zeros((TILE, PADDED), dtype)
        for other in range(0, n, TILE):
            j = other + tl.arange(0, TILE)
            k, v = (
                _rows(qkv, first + j, j < n, h, 1, 3, H, C, PADDED),
                _rows(qkv, first + j, j < n, h, 2, 3, H, C, PADDED),
            )
            pair, inside = p0 + i[:, None] * n + j[None, :], (i < n)[:, None] & (j < n)[None, :]
            s = _scores(q, k, pairs, pair, inside, h, stride, H, SCALE, KEY_SCALE)
            larger = tl.maximum(peak, tl.reduce(s, 1, _larger), propagate_nan=tl.PropagateNan.ALL)
            base = tl.where(
                larger == -float("inf"), 0.0, larger
            )  # no key with a weight so far: powers are zero, not NaN
            weight, correction = tl.exp2(s - base[:, None]), tl.exp2(peak - base)
            total, peak = total * correction + tl.sum(weight, 1), larger
            gate, kept = _factors(pairs, pair, inside, h, stride, seed, H, GATED, LIMIT, KEEP)
            o = o * correction[:, None] + tl.sum((weight * gate * kept)[:, :, None] * v[None, :, :], 1)
        c = tl.arange(0, PADDED)
        place = (first + i) * H + h
        tl.store(out + place[:, None] * C + c, o / total[:, None], (i < n)[:, None] & (c < C)[None, :])
        tl.store(stats + place, peak + tl.log2(total), i < n)


@triton.jit
def _larger(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit(do_not_specialize=["seed"])
def _backward(
    qkv, pairs, ptr, pair_ptr, grad, out, stats, inner, dqkv, dpairs, stride, seed, BY_KEY: tl.constexpr,
    H: tl.constexpr, C: tl.constexpr, PADDED: tl.constexpr, TILE: tl.constexpr, GATED: tl.constexpr,
    SCALE: tl.constexpr, KEY_SCALE: tl.constexpr, LIMIT: tl.constexpr, KEEP: tl.constexpr,
):  # fmt: skip
    """Gradients of TILE queries, biases and gates along the keys; of TILE keys and values along queries (`BY_KEY`)."""
    start, h, graph = tl.program_id(0) * TILE, tl.program_id(1), tl.program_id(2)
    first, p0 = tl.load(ptr + graph), tl.load(pair_ptr + graph)
    n = tl.load(ptr + graph + 1) - first
    if start < n:
        own, c = start + tl.arange(0, TILE), tl.arange(0, PADDED)
        dtype = qkv.dtype.element_ty
        left = tl.zeros((TILE, PADDED), dtype)  # dQ or dK
        right = tl.zeros((TILE, PADDED), dtype)  # dV
        sums = tl.zeros((TILE,), dtype)  # of the gradients of a key's scores
        if not BY_KEY:
            product = _rows(grad, first + own, own < n, h, 0, 1, H, C, PADDED)
            product *= _rows(out, first + own, own < n, h, 0, 1, H, C, PADDED)
            total = tl.sum(product, 1)
            tl.store(inner + (first + own) * H + h, total, own < n)
        for other in range(0, n, TILE):
            if BY_KEY:
                i, j = other + tl.arange(0, TILE), own
            else:
                i, j = own, other + tl.arange(0, TILE)
            q, g = (
                _rows(qkv, first + i, i < n, h, 0, 3, H, C, PADDED),
                _rows(grad, first + i, i < n, h, 0, 1, H, C, PADDED),
            )
            k, v = (
                _rows(qkv, first + j, j < n, h, 1, 3, H, C, PADDED),
                _rows(qkv, first + j, j < n, h, 2, 3, H, C, PADDED),
            )
            pair, inside = p0 + i[:, None] * n + j[None, :], (i < n)[:, None] & (j < n)[None, :]
            s = _scores(q, k, pairs, pair, inside, h, stride, H, SCALE, KEY_SCALE)
            place = (first + i) * H + h
            weight = tl.exp2(s - tl.load(stats + place, i < n, 0.0)[:, None])  # the softmax
            gate, kept = _factors(pairs, pair, inside, h, stride, seed, H, GATED, LIMIT, KEEP)
            d = tl.sum(g[:, None, :] * v[None, :, :], 2) * kept
            if BY_KEY:
                total = tl.load(inner + place, i < n, 0.0)
            ds = weight * (gate * d - total[:, None])
            if BY_KEY:
                left += tl.sum(ds[:, :, None] * q[:, None, :], 0)
                right += tl.sum((weight * gate * kept)[:, :, None] * g[:, None, :], 0)
                sums += tl.sum(ds, 0)
            else:
                left += tl.sum(ds[:, :, None] * k[None, :, :], 1)
                columns = H * 2 if GATED else H
                tl.store(dpairs + pair * columns + h, ds, inside)
                if GATED:
                    tl.store(dpairs + pair * columns + H + h, weight * d, inside)
        left *= SCALE
        if BY_KEY and KEY_SCALE != 0:
            keys = _rows(qkv, first + own, own < n, h, 1, 3, H, C, PADDED)
            left += sums[:, None] * keys * (2 * KEY_SCALE)
        mask = (own < n)[:, None] & (c < C)[None, :]
        place = (((first + own) * 3 + (1 if BY_KEY else 0)) * H + h)[:, None] * C + c
        tl.store(dqkv + place, left, mask)
        if BY_KEY:
            tl.store(dqkv + place + H * C, right, mask)
