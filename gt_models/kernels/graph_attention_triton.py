"""Attention over neighbours on a GPU: no value per edge and channel is stored.

A program has one node and one head. The forward pass goes along the node's edges twice and keeps the peak and the sum
of the softmax; the backward pass goes by source, forms each weight again, and leaves the gradient of its score, [E, H],
which is then summed by target. Each number has one writer.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from gt_models.kernels.autocast import without_autocast
from gt_models.kernels.once_differentiable import once_differentiable

LOG2E = tl.constexpr(1.4426950408889634)


class _GraphAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value, att_source, att_target, ptr, col, ptr_t, col_t, perm_t, negative_slope) -> Tensor:
        heads, width = att_source.shape
        v = value.contiguous().view(-1, heads, width)
        source, out = (v * att_source).sum(-1), torch.empty_like(v)  # <a_source, v>, [N, H]
        of_target = v.new_empty(len(v), heads, 4)  # <a_target, v>, peak, sum, and what the backward pass needs of it
        of_target[..., 0] = (v * att_target).sum(-1)
        ctx.arguments = _arguments(heads, width, negative_slope)
        if out.numel():
            _forward[(len(v) * heads,)](v, source, of_target, ptr, col, out, **ctx.arguments)
        ctx.save_for_backward(v, att_source, att_target, source, of_target, out, ptr, ptr_t, col_t, perm_t)
        return out.view_as(value)

    @staticmethod
    @once_differentiable
    @without_autocast
    def backward(ctx, grad: Tensor):
        v, att_source, att_target, source, of_target, out, ptr, ptr_t, col_t, perm_t = ctx.saved_tensors
        grad = grad.contiguous().view_as(v)
        of_target = of_target.clone()  # the pass may be run again
        of_target[..., 3] = (grad * out).sum(-1)  # the sum of w_e dw_e
        dvalue, dscore = torch.empty_like(v), v.new_empty(len(perm_t), v.size(1))
        dsource, dtarget = torch.empty_like(source), torch.empty_like(source)
        if v.numel():
            _by_source[(source.numel(),)](
                v, grad, source, of_target, ptr_t, col_t, perm_t, dscore, dsource, dvalue, **ctx.arguments
            )
            _by_target[(source.numel(),)](dscore, ptr, dtarget, ctx.arguments["H"], 128)
        dvalue.addcmul_(dsource[..., None], att_source).addcmul_(dtarget[..., None], att_target)
        datt = ((of_scores[..., None] * v).sum(0) for of_scores in (dsource, dtarget))
        return dvalue.flatten(1), *datt, None, None, None, None, None, None


graph_attention = _GraphAttention.apply


def _arguments(heads: int, width: int, negative_slope: float) -> dict:
    padded = triton.next_power_of_2(width)
    return {
        "H": heads, "C": width, "PADDED": padded, "SLOPE": negative_slope,
        # edges at a time: a program holds TILE * PADDED values. On an H100, 7,650 nodes of at most 2,211 edges, 8 heads
        # of width 64: 32 edges take 0.27 ms forward and backward, 16 take 0.72 ms
        "TILE": max(1, min(32, 2048 // padded)),
        "num_warps": 1 if padded <= 128 else 4,
    }  # fmt: skip


@triton.jit
def _larger(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _score(source, of_target, col, e, end, h, H: tl.constexpr, SLOPE: tl.constexpr):
    """Of the edges e of a node: scores, -inf from `end` on, and sources.

    `of_target` is the node's part of the score.
    """
    j = tl.load(col + e, e < end, 0).to(tl.int64)
    s = tl.load(source + j * H + h, e < end, 0.0) + of_target
    return tl.where(e < end, tl.where(s > 0, s, s * SLOPE), -float("inf")), j


@triton.jit
def _forward(
    v, source, of_target, ptr, col, out,
    H: tl.constexpr, C: tl.constexpr, PADDED: tl.constexpr, SLOPE: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Of one node i and head h: out, peak and sum. v, out [N, H, C]; source [N, H]; of_target [N, H, 4]."""
    ih, c = tl.program_id(0).to(tl.int64), tl.arange(0, PADDED)
    i, h = ih // H, ih % H
    begin, end = tl.load(ptr + i), tl.load(ptr + i + 1)
    own = tl.load(of_target + ih * 4)
    dtype = v.dtype.element_ty
    peaks_of_tile = tl.full((TILE,), -float("inf"), dtype)
    for first in range(begin, end, TILE):
        e = first + tl.arange(0, TILE)
        peaks_of_tile = _larger(peaks_of_tile, _score(source, own, col, e, end, h, H, SLOPE)[0])
    peak = tl.reduce(peaks_of_tile, 0, _larger)
    total, row = tl.zeros((TILE,), dtype), tl.zeros((PADDED,), dtype)
    for first in range(begin, end, TILE):
        e = first + tl.arange(0, TILE)
        s, j = _score(source, own, col, e, end, h, H, SLOPE)
        w = tl.where(e < end, tl.exp2((s - peak) * LOG2E), 0.0)
        neighbours = tl.load(v + ((j * H + h) * C)[:, None] + c, (e < end)[:, None] & (c < C), 0.0)  # [TILE, PADDED]
        row, total = row + tl.sum(w[:, None] * neighbours, 0), total + w
    of_all = tl.sum(total, 0)
    tl.store(out + ih * C + c, tl.where(end > begin, row / of_all, 0.0), c < C)
    tl.store(of_target + ih * 4 + 1, peak)
    tl.store(of_target + ih * 4 + 2, of_all)


@triton.jit
def _by_source(
    v, grad, source, of_target, ptr_t, col_t, perm_t, dscore, dsource, dvalue,
    H: tl.constexpr, C: tl.constexpr, PADDED: tl.constexpr, SLOPE: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Gradients of one node j and head h.

    They are dvalue_j without the part through the scores, the gradients of scores [E, H], and the sum of these.
    """
    jh, c = tl.program_id(0).to(tl.int64), tl.arange(0, PADDED)
    j, h = jh // H, jh % H
    begin, end = tl.load(ptr_t + j), tl.load(ptr_t + j + 1)
    of_source = tl.load(source + jh)
    own = tl.load(v + jh * C + c, c < C, 0.0)
    row, total = tl.zeros((PADDED,), own.dtype), tl.zeros((TILE,), own.dtype)
    for first in range(begin, end, TILE):
        place = first + tl.arange(0, TILE)
        inside = place < end
        ih = tl.load(col_t + place, inside, 0).to(tl.int64) * H + h
        g = tl.load(grad + (ih * C)[:, None] + c, inside[:, None] & (c < C), 0.0)  # [TILE, PADDED]
        s = of_source + tl.load(of_target + ih * 4, inside, 0.0)
        leaky = tl.where(s > 0, s, s * SLOPE)
        w = tl.exp2((leaky - tl.load(of_target + ih * 4 + 1, inside, 0.0)) * LOG2E) / tl.load(
            of_target + ih * 4 + 2, inside, 1.0
        )
        w = tl.where(inside, w, 0.0)
        ds = w * (tl.sum(g * own, 1) - tl.load(of_target + ih * 4 + 3, inside, 0.0))
        ds = tl.where(inside, tl.where(s > 0, ds, ds * SLOPE), 0.0)
        tl.store(dscore + tl.load(perm_t + place, inside, 0).to(tl.int64) * H + h, ds, inside)
        row, total = row + tl.sum(w[:, None] * g, 0), total + ds
    tl.store(dvalue + jh * C + c, row, c < C)
    tl.store(dsource + jh, tl.sum(total, 0))


@triton.jit
def _by_target(dscore, ptr, dtarget, H: tl.constexpr, TILE: tl.constexpr):
    """dtarget_ih = the sum of dscore [E, H] over the edges of node i."""
    ih = tl.program_id(0).to(tl.int64)
    i, h = ih // H, ih % H
    begin, end = tl.load(ptr + i), tl.load(ptr + i + 1)
    total = tl.zeros((TILE,), dscore.dtype.element_ty)
    for first in range(begin, end, TILE):
        e = (first + tl.arange(0, TILE)).to(tl.int64)
        total += tl.load(dscore + e * H + h, e < end, 0.0)
    tl.store(dtarget + ih, tl.sum(total, 0))
