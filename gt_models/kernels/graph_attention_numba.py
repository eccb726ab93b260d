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

from gt_models.kernels.compiled import compiled, exp2, local, real, run

LOG2E = 1.4426950408889634
BLOCK = 1024  # nodes whose contributions to the attention vectors' gradients are added up together


class _GraphAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value, att_source, att_target, ptr, col, ptr_t, col_t, perm_t, negative_slope) -> Tensor:
        heads, width = att_source.shape
        v, att = value.contiguous().view(-1, heads, width), torch.stack([att_source, att_target])
        slope = real(value.dtype)(negative_slope)
        score, weight, out = v.new_empty(2, len(v), heads), v.new_empty(len(col), heads), torch.empty_like(v)
        kernels = _kernels(value.dtype, width)
        run(kernels.scores, len(v), v, att, score, grain=256)
        run(kernels.forward, len(v), v, score, ptr, col, slope, weight, out, grain=256)
        ctx.save_for_backward(weight, v, att, ptr, ptr_t, col_t, perm_t)
        ctx.slope = slope
        return out.view_as(value)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        weight, v, att, ptr, ptr_t, col_t, perm_t = ctx.saved_tensors
        grad = grad.contiguous().view_as(v)
        dvalue, dweight, dtarget = torch.empty_like(v), torch.empty_like(weight), v.new_empty(v.shape[:2])
        blocks = -(-len(v) // BLOCK)
        datt = v.new_zeros(blocks, *att.shape)
        kernels = _kernels(v.dtype, v.size(2))
        run(kernels.by_source, len(v), v, grad, weight, ptr_t, col_t, perm_t, dweight, dvalue, grain=256)
        run(kernels.softmax, len(v), weight, ptr, ctx.slope, dweight, dtarget, grain=256)
        run(kernels.close, blocks, v, dweight, dtarget, ptr_t, perm_t, att, dvalue, datt)
        dsource, dtarget = datt.sum(0)
        return dvalue.flatten(1), dsource, dtarget, None, None, None, None, None, None


graph_attention = _GraphAttention.apply


@cache
def _kernels(dtype: torch.dtype, width: int) -> SimpleNamespace:
    """For heads of `width` channels: the innermost loops have a known length."""
    number, power, log2e = real(dtype), exp2(dtype), real(dtype)(LOG2E)
    zero, lowest = number(0), number(-float("inf"))

    @compiled
    def scores(begin, end, value, att, out):
        """out [2, N, H]: <a_source, v> and <a_target, v>; value [N, H, width], att [2, H, width]."""
        for i in range(begin, end):
            for h in range(value.shape[1]):
                source, target = zero, zero
                for c in range(width):
                    source += value[i, h, c] * att[0, h, c]
                    target += value[i, h, c] * att[1, h, c]
                out[0, i, h], out[1, i, h] = source, target

    @compiled
    def forward(begin, end, value, score, ptr, col, slope, weight, out):
        """Signed weights [E, H] and their sums of values, out [N, H, width]."""
        heads = value.shape[1]
        row, peak, total = local(number, width), np.empty(heads, number), np.empty(heads, number)
        for i in range(begin, end):
            for h in range(heads):
                peak[h], total[h] = lowest, zero
            for e in range(ptr[i], ptr[i + 1]):
                source = score[0, col[e]]
                for h in range(heads):
                    s = source[h] + score[1, i, h]
                    s = s if s > zero else slope * s
                    peak[h] = peak[h] if s < peak[h] else s
            for e in range(ptr[i], ptr[i + 1]):
                source = score[0, col[e]]
                for h in range(heads):
                    s = source[h] + score[1, i, h]
                    w = power(((s if s > zero else slope * s) - peak[h]) * log2e)
                    total[h] += w
                    weight[e, h] = w if s > zero else -w
            for h in range(heads):
                for c in range(width):
                    row[c] = zero
                for e in range(ptr[i], ptr[i + 1]):
                    weight[e, h] /= total[h]
                    w, neighbour = abs(weight[e, h]), value[col[e], h]
                    for c in range(width):
                        row[c] += w * neighbour[c]
                for c in range(width):
                    out[i, h, c] = row[c]

    @compiled
    def by_source(begin, end, value, grad, weight, ptr_t, col_t, perm_t, dweight, dvalue):
        """dvalue_j = sum of w_e grad_i over the edges that leave j, and dweight_e = <grad_i, v_j>."""
        for j in range(begin, end):
            for h in range(value.shape[1]):
                for c in range(width):
                    dvalue[j, h, c] = zero
            for place in range(ptr_t[j], ptr_t[j + 1]):
                e, i = perm_t[place], col_t[place]
                for h in range(value.shape[1]):
                    w, product = abs(weight[e, h]), zero
                    for c in range(width):
                        product += grad[i, h, c] * value[j, h, c]
                        dvalue[j, h, c] += w * grad[i, h, c]
                    dweight[e, h] = product

    @compiled
    def softmax(begin, end, weight, ptr, slope, dweight, dtarget):
        """dweight [E, H] becomes the gradient of the scores in place; dtarget [N, H] their sums over a target's edges."""
        for i in range(begin, end):
            for h in range(weight.shape[1]):
                mean, total = zero, zero
                for e in range(ptr[i], ptr[i + 1]):
                    mean += abs(weight[e, h]) * dweight[e, h]
                for e in range(ptr[i], ptr[i + 1]):
                    ds = abs(weight[e, h]) * (dweight[e, h] - mean)
                    dweight[e, h] = ds if weight[e, h] > zero else slope * ds
                    total += dweight[e, h]
                dtarget[i, h] = total

    @compiled
    def close(begin, end, value, dscore, dtarget, ptr_t, perm_t, att, dvalue, datt):
        """Adds to dvalue what comes through the scores; datt [blocks, 2, H, width]: attention vectors' gradients by block of nodes."""
        for block in range(begin, end):
            for j in range(block * BLOCK, min(len(value), block * BLOCK + BLOCK)):
                for h in range(value.shape[1]):
                    source, target = zero, dtarget[j, h]
                    for place in range(ptr_t[j], ptr_t[j + 1]):
                        source += dscore[perm_t[place], h]
                    for c in range(width):
                        dvalue[j, h, c] += source * att[0, h, c] + target * att[1, h, c]
                        datt[block, 0, h, c] += source * value[j, h, c]
                        datt[block, 1, h, c] += target * value[j, h, c]

    return SimpleNamespace(scores=scores, forward=forward, by_source=by_source, softmax=softmax, close=close)
