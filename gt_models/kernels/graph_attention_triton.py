"""Attention over neighbours on a GPU: no value per edge and channel is stored.

A program has one node and one head. The forward pass goes along the node's edges twice and keeps the peak and the sum of the softmax; the
backward pass goes by source, forms each weight again, and leaves the gradient of its score, [E, H], which is then summed by target. Each
number has one writer.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from gt_models.kernels.linears import without_autocast

LOG2E = tl.constexpr(1.4426950408889634)


class _GraphAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value, att_source, att_target, ptr, col, ptr_t, col_t, perm_t, negative_slope) -> Tensor:
        heads, width = att_source.shape
        v, att = value.contiguous().view(-1, heads, width), torch.stack([att_source, att_target])
        score, out = torch.einsum("nhc,khc->knh", v, att).contiguous(), torch.empty_like(v)  # score [2, N, H]: of sources, of targets
        peak, total = torch.empty_like(score)
        ctx.arguments = _arguments(heads, width, negative_slope)
        if out.numel():
            _forward[(len(v), heads)](v, *score, ptr, col, peak, total, out, **ctx.arguments)
        ctx.save_for_backward(v, att, score, peak, total, out, ptr, ptr_t, col_t, perm_t)
        return out.view_as(value)

    @staticmethod
    @once_differentiable
    @without_autocast
    def backward(ctx, grad: Tensor):  # type: ignore[override]
        v, att, score, peak, total, out, ptr, ptr_t, col_t, perm_t = ctx.saved_tensors
        grad = grad.contiguous().view_as(v)
        inner = (grad * out).sum(-1)  # of each target, the sum of w_e dw_e
        dvalue, dscore, dsum = torch.empty_like(v), v.new_empty(len(perm_t), v.size(1)), torch.empty_like(score)
        if v.numel():
            grid, edges = (len(v), v.size(1)), (ptr_t, col_t, perm_t)
            _by_source[grid](v, grad, *score, peak, total, inner, *edges, dscore, dsum[0], dvalue, **ctx.arguments)
            _by_target[grid](dscore, ptr, dsum[1], ctx.arguments["H"], 128)
        for of_scores, vector in zip(dsum, att, strict=True):
            dvalue.addcmul_(of_scores[..., None], vector)
        return dvalue.flatten(1), *torch.einsum("knh,nhc->khc", dsum, v), None, None, None, None, None, None


graph_attention = _GraphAttention.apply


def _arguments(heads: int, width: int, negative_slope: float) -> dict:
    padded = triton.next_power_of_2(width)
    return {
        "H": heads, "C": width, "PADDED": padded, "SLOPE": negative_slope,
        "TILE": max(1, min(32, 1024 // padded)),  # edges at a time: a program holds TILE * PADDED values
        "num_warps": 1 if padded <= 128 else 4,
    }  # fmt: skip


@triton.jit
def _larger(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _score(source, of_target, col, e, end, h, H: tl.constexpr, SLOPE: tl.constexpr):
    """Of the edges e of a node: scores, -inf from `end` on, and sources."""
    j = tl.load(col + e, e < end, 0).to(tl.int64)
    s = tl.load(source + j * H + h, e < end, 0.0) + of_target
    return tl.where(e < end, tl.where(s > 0, s, s * SLOPE), -float("inf")), j


@triton.jit
def _forward(
    v, source, target, ptr, col, peaks, totals, out,
    H: tl.constexpr, C: tl.constexpr, PADDED: tl.constexpr, SLOPE: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """out, peak and total of one node i and head h; v, out [N, H, C], all else of nodes [N, H]."""
    i, h, c = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.arange(0, PADDED)
    begin, end = tl.load(ptr + i), tl.load(ptr + i + 1)
    of_target = tl.load(target + i * H + h)
    dtype = v.dtype.element_ty
    peaks_of_tile = tl.full((TILE,), -float("inf"), dtype)
    for first in range(begin, end, TILE):
        e = first + tl.arange(0, TILE)
        peaks_of_tile = _larger(peaks_of_tile, _score(source, of_target, col, e, end, h, H, SLOPE)[0])
    peak = tl.reduce(peaks_of_tile, 0, _larger)
    total, row = tl.zeros((TILE,), dtype), tl.zeros((PADDED,), dtype)
    for first in range(begin, end, TILE):
        e = first + tl.arange(0, TILE)
        s, j = _score(source, of_target, col, e, end, h, H, SLOPE)
        w = tl.where(e < end, tl.exp2((s - peak) * LOG2E), 0.0)
        neighbours = tl.load(v + ((j * H + h) * C)[:, None] + c, (e < end)[:, None] & (c < C), 0.0)  # [TILE, PADDED]
        row, total = row + tl.sum(w[:, None] * neighbours, 0), total + w
    of_all = tl.sum(total, 0)
    tl.store(out + (i * H + h) * C + c, tl.where(end > begin, row / of_all, 0.0), c < C)
    tl.store(peaks + i * H + h, peak)
    tl.store(totals + i * H + h, of_all)


@triton.jit
def _by_source(
    v, grad, source, target, peaks, totals, inner, ptr_t, col_t, perm_t, dscore, dsource, dvalue,
    H: tl.constexpr, C: tl.constexpr, PADDED: tl.constexpr, SLOPE: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Of one node j and head h: dvalue_j without what comes through the scores, the scores' gradients [E, H], and their sum."""
    j, h, c = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.arange(0, PADDED)
    begin, end = tl.load(ptr_t + j), tl.load(ptr_t + j + 1)
    of_source = tl.load(source + j * H + h)
    own = tl.load(v + (j * H + h) * C + c, c < C, 0.0)
    row, total = tl.zeros((PADDED,), own.dtype), tl.zeros((TILE,), own.dtype)
    for first in range(begin, end, TILE):
        place = first + tl.arange(0, TILE)
        inside = place < end
        i = tl.load(col_t + place, inside, 0).to(tl.int64) * H + h
        s = of_source + tl.load(target + i, inside, 0.0)
        leaky = tl.where(s > 0, s, s * SLOPE)
        w = tl.exp2((leaky - tl.load(peaks + i, inside, 0.0)) * LOG2E) / tl.load(totals + i, inside, 1.0)
        w = tl.where(inside, w, 0.0)
        g = tl.load(grad + (i * C)[:, None] + c, inside[:, None] & (c < C), 0.0)  # [TILE, PADDED]
        ds = w * (tl.sum(g * own, 1) - tl.load(inner + i, inside, 0.0))
        ds = tl.where(inside, tl.where(s > 0, ds, ds * SLOPE), 0.0)
        tl.store(dscore + tl.load(perm_t + place, inside, 0).to(tl.int64) * H + h, ds, inside)
        row, total = row + tl.sum(w[:, None] * g, 0), total + ds
    tl.store(dvalue + (j * H + h) * C + c, row, c < C)
    tl.store(dsource + j * H + h, tl.sum(total, 0))


@triton.jit
def _by_target(dscore, ptr, dtarget, H: tl.constexpr, TILE: tl.constexpr):
    """dtarget_ih = the sum of dscore [E, H] over the edges of node i."""
    i, h = tl.program_id(0).to(tl.int64), tl.program_id(1)
    begin, end = tl.load(ptr + i), tl.load(ptr + i + 1)
    total = tl.zeros((TILE,), dscore.dtype.element_ty)
    for first in range(begin, end, TILE):
        e = (first + tl.arange(0, TILE)).to(tl.int64)
        total += tl.load(dscore + e * H + h, e < end, 0.0)
    tl.store(dtarget + i * H + h, tl.sum(total, 0))
