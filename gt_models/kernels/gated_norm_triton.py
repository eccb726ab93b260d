"""The closing step of a Polynormer layer on a GPU: one pass over memory forward and one backward, a row at a time.

The hash of dropout alone is fourteen operations on 64-bit integers in plain torch. Saved for the backward pass:
the arguments, and two numbers per row.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from gt_models.kernels.dropout_triton import hash32, is_kept
from gt_models.kernels.once_differentiable import once_differentiable
from gt_models.layers.dropout_hash import threshold

PROGRAMS = 1024  # each adds up the vectors' gradients of its rows


class _GatedNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, h, a, b, weight, bias, eps, relu, seed, rate) -> Tensor:
        h, a = h.contiguous(), a.contiguous()
        vectors = torch.stack([b, (1 - b) * weight, (1 - b) * bias])
        x, stats = torch.empty_like(h), h.new_empty(len(h), 2)
        ctx.settings = {"seed": 0 if seed is None else int(seed)} | _constants(h.size(1), relu, seed is not None, rate)
        if h.numel():
            _forward[(len(h),)](h, a, vectors, x, stats, EPS=eps, **ctx.settings)
        ctx.save_for_backward(h, a, stats, vectors, weight, bias)
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        h, a, stats, vectors, weight, bias = ctx.saved_tensors
        dh, da, programs = torch.empty_like(h), torch.empty_like(h), min(len(h), PROGRAMS)
        sums = h.new_empty(programs, 3, h.size(1))
        if h.numel():
            _backward[(programs,)](grad.contiguous(), h, a, vectors, stats, dh, da, sums, len(h), **ctx.settings)
        db, dweight, dbias = sums.sum(0)
        b = vectors[0]
        # the norm's weight and bias enter times 1 - b
        db = db - dweight * weight - dbias * bias
        return dh, da, db, (1 - b) * dweight, (1 - b) * dbias, None, None, None, None


gated_norm = _GatedNorm.apply


def _constants(width: int, relu: bool, drops: bool, rate: float) -> dict:
    padded = triton.next_power_of_2(width)
    return {
        "D": width,
        "PADDED": padded,
        "RELU": relu,
        "LIMIT": threshold(rate) if drops else 0,
        "KEEP": 1 / (1 - rate) if drops else 1.0,
        "num_warps": max(1, min(8, padded // 128)),
    }


@triton.jit
def _factors(h, a, seed, i, c, inside, D: tl.constexpr, RELU: tl.constexpr, LIMIT: tl.constexpr, KEEP: tl.constexpr):
    """Of row i: h' and a' before dropout, and what dropout multiplies a' with."""
    left, right = tl.load(h + i * D + c, inside, 0.0), tl.load(a + i * D + c, inside, 0.0)
    if RELU:
        left = tl.maximum(left, 0.0, propagate_nan=tl.PropagateNan.ALL)
        right = tl.maximum(right, 0.0, propagate_nan=tl.PropagateNan.ALL)
    factor = tl.full(c.shape, 1.0, left.dtype)
    if LIMIT > 0:
        factor = tl.where(is_kept(hash32(seed.to(tl.uint32)), i * D + c, LIMIT), factor * KEEP, 0.0)
    return left, right, factor


@triton.jit(do_not_specialize=["seed"])
def _forward(
    h,
    a,
    vectors,
    x,
    stats,
    seed,
    D: tl.constexpr,
    PADDED: tl.constexpr,
    RELU: tl.constexpr,
    LIMIT: tl.constexpr,
    KEEP: tl.constexpr,
    EPS: tl.constexpr,
):
    """`x` and (mean, 1 / deviation) of a row. vectors [3, D]: b, (1 - b) weight, (1 - b) bias."""
    i, c = tl.program_id(0).to(tl.int64), tl.arange(0, PADDED)
    inside = c < D
    left, right, factor = _factors(h, a, seed, i, c, inside, D, RELU, LIMIT, KEEP)
    right = tl.where(factor == 0.0, 0.0, right * factor)
    u = left * right
    mean = tl.sum(tl.where(inside, u, 0.0), 0) / D
    centred = tl.where(inside, u - mean, 0.0)
    scale = 1 / tl.sqrt(tl.sum(centred * centred, 0) / D + EPS)
    b, weight = tl.load(vectors + c, inside, 0.0), tl.load(vectors + D + c, inside, 0.0)
    bias = tl.load(vectors + 2 * D + c, inside, 0.0)
    out = centred * scale * weight + bias + b * right
    tl.store(x + i * D + c, out, inside)
    tl.store(stats + 2 * i, mean)
    tl.store(stats + 2 * i + 1, scale)


@triton.jit(do_not_specialize=["seed", "rows"])
def _backward(
    grad,
    h,
    a,
    vectors,
    stats,
    dh,
    da,
    sums,
    rows,
    seed,
    D: tl.constexpr,
    PADDED: tl.constexpr,
    RELU: tl.constexpr,
    LIMIT: tl.constexpr,
    KEEP: tl.constexpr,
):
    """`dh` and da of every PROGRAMS-th row.

    Sums [programs, 3, D]: over these rows, of b and, without the factor 1 - b, of weight and bias.
    """
    first, c = tl.program_id(0), tl.arange(0, PADDED)
    inside = c < D
    b, weight = tl.load(vectors + c, inside, 0.0), tl.load(vectors + D + c, inside, 0.0)
    none = tl.zeros((PADDED,), b.dtype)
    db, dweight, dbias = none, none, none
    i = first.to(tl.int64)
    for _ in range(first, rows, tl.num_programs(0)):
        left, right, factor = _factors(h, a, seed, i, c, inside, D, RELU, LIMIT, KEEP)
        dropped = tl.where(factor == 0.0, 0.0, right * factor)
        g = tl.load(grad + i * D + c, inside, 0.0)
        mean, scale = tl.load(stats + 2 * i), tl.load(stats + 2 * i + 1)
        normed = tl.where(inside, (left * dropped - mean) * scale, 0.0)
        dnormed = g * weight
        du = scale * (dnormed - tl.sum(dnormed, 0) / D - normed * (tl.sum(dnormed * normed, 0) / D))
        dleft, dright = du * dropped, tl.where(factor == 0.0, 0.0, (du * left + g * b) * factor)
        if RELU:
            dleft, dright = tl.where(left <= 0, 0.0, dleft), tl.where(right <= 0, 0.0, dright)
        tl.store(dh + i * D + c, dleft, inside)
        tl.store(da + i * D + c, dright, inside)
        db, dweight, dbias = db + g * dropped, dweight + g * normed, dbias + g
        i += tl.num_programs(0)
    place = sums + first * 3 * D + c
    tl.store(place, db, inside)
    tl.store(place + D, dweight, inside)
    tl.store(place + 2 * D, dbias, inside)
