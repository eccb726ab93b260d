"""Attention over neighbours on the CPU: no message per edge and channel is stored.

Weights of edges are kept, signed as their score, which is all that the derivative of the leaky ReLU needs. Forward and the derivative of
the softmax go by target, the gradient of the values by source.
"""

from functools import cache
from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gt_models.kernels.compiled import compiled, copy, dot, exp2, local, muladd, real, run

LOG2E = 1.4426950408889634
BLOCK = 1024  # nodes whose contributions to the attention vectors' gradients are added up together


class _GraphAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value, att_source, att_target, ptr, col, ptr_t, col_t, perm_t, negative_slope) -> Tensor:
        (heads, width), n, slope = att_source.shape, len(value), real(value.dtype)(negative_slope)
        v, att, out = value.contiguous().view(-1), torch.stack([att_source, att_target]).view(-1), value.new_empty(value.shape)
        score, weight = value.new_empty(n, 2, heads), value.new_empty(len(col), heads)
        kernels = _kernels(value.dtype, width)
        run(kernels.scores, n, v, att, score, grain=256)
        run(kernels.forward, n, v, score, ptr, col, slope, weight, out.view(-1), grain=256)
        ctx.save_for_backward(weight, v, att, ptr, col, ptr_t, col_t, perm_t)
        ctx.rest = value.shape, width, slope
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        (weight, v, att, *edges), (shape, width, slope) = ctx.saved_tensors, ctx.rest
        n, g, kernels = shape[0], grad.contiguous().view(-1), _kernels(v.dtype, width)
        dscore, dtarget, dvalue = torch.empty_like(weight), v.new_empty(n, weight.size(1)), torch.empty_like(v)
        datt = v.new_zeros(-(-n // BLOCK), len(att))
        run(kernels.by_target, n, v, g, weight, *edges[:2], slope, dscore, dtarget, grain=256)
        run(kernels.by_source, len(datt), v, g, weight, dscore, dtarget, *edges[2:], att, dvalue, datt.view(-1))
        return dvalue.view(shape), *datt.sum(0).view(2, -1, width), *[None] * 6


graph_attention = _GraphAttention.apply


@cache
def _kernels(dtype: torch.dtype, width: int) -> SimpleNamespace:
    """For heads of `width` channels. Flat are value, out and their gradients, [N, H, width], and the attention vectors, [2, H, width]."""
    number, power, log2e = real(dtype), exp2(dtype), real(dtype)(LOG2E)
    zero, one, lowest = number(0), number(1), number(-np.inf)

    @compiled
    def scores(begin, end, value, att, out):
        """out [N, 2, H]: <a_source, v> and <a_target, v>."""
        heads = out.shape[2]
        for i in range(begin, end):
            for k in range(2):
                for h in range(heads):
                    out[i, k, h] = dot(value, (i * heads + h) * width, att, (k * heads + h) * width, width)

    @compiled
    def forward(begin, end, value, score, ptr, col, slope, weight, out):
        """Signed weights [E, H] and their sums of values."""
        heads = weight.shape[1]
        row, peak, total = local(number, width), np.empty(heads, number), np.empty(heads, number)
        for i in range(begin, end):
            for h in range(heads):
                peak[h], total[h] = lowest, zero
            for e in range(ptr[i], ptr[i + 1]):
                for h in range(heads):
                    s = score[col[e], 0, h] + score[i, 1, h]
                    weight[e, h] = s
                    s = s if s > zero else slope * s
                    peak[h] = peak[h] if s < peak[h] else s
            for e in range(ptr[i], ptr[i + 1]):
                for h in range(heads):
                    s = weight[e, h]
                    w = power(((s if s > zero else slope * s) - peak[h]) * log2e)
                    total[h] += w
                    weight[e, h] = w if s > zero else -w
            for h in range(heads):
                copy(row, 0, zero, width)
                inverse = one / total[h]
                for e in range(ptr[i], ptr[i + 1]):
                    weight[e, h] *= inverse
                    muladd(row, 0, abs(weight[e, h]), value, (col[e] * heads + h) * width, width)
                copy(out, (i * heads + h) * width, row, 0, width)

    @compiled
    def by_target(begin, end, value, grad, weight, ptr, col, slope, dscore, dtarget):
        """Gradients of the scores [E, H], and their sums over the edges of each target [N, H]."""
        heads = weight.shape[1]
        mean = np.empty(heads, number)
        for i in range(begin, end):
            mean[:], dtarget[i] = zero, zero
            for e in range(ptr[i], ptr[i + 1]):
                for h in range(heads):  # innermost: a sum over edges is in their order
                    dscore[e, h] = dot(grad, (i * heads + h) * width, value, (col[e] * heads + h) * width, width)
                    mean[h] += abs(weight[e, h]) * dscore[e, h]
            for e in range(ptr[i], ptr[i + 1]):
                for h in range(heads):
                    ds = abs(weight[e, h]) * (dscore[e, h] - mean[h])
                    dscore[e, h] = ds if weight[e, h] > zero else slope * ds
                    dtarget[i, h] += dscore[e, h]

    @compiled
    def by_source(begin, end, value, grad, weight, dscore, dtarget, ptr_t, col_t, perm_t, att, dvalue, datt):
        """dvalue_j is the sum of w_e grad_i over the edges that leave j, and what comes through the scores; datt [blocks, 2, H, width], flat."""
        heads, row = weight.shape[1], local(number, width)
        for block in range(begin, end):
            for j in range(block * BLOCK, min(len(dtarget), block * BLOCK + BLOCK)):
                for h in range(heads):
                    at, dsource = (j * heads + h) * width, zero
                    copy(row, 0, zero, width)
                    for place in range(ptr_t[j], ptr_t[j + 1]):
                        dsource += dscore[perm_t[place], h]
                        muladd(row, 0, abs(weight[perm_t[place], h]), grad, (col_t[place] * heads + h) * width, width)
                    muladd(row, 0, dsource, att, h * width, width)
                    muladd(row, 0, dtarget[j, h], att, (heads + h) * width, width)
                    copy(dvalue, at, row, 0, width)
                    muladd(datt, (2 * block * heads + h) * width, dsource, value, at, width)
                    muladd(datt, (2 * block * heads + heads + h) * width, dtarget[j, h], value, at, width)

    return SimpleNamespace(scores=scores, forward=forward, by_target=by_target, by_source=by_source)
