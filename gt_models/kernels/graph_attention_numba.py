"""Attention over neighbours on the CPU: no message per edge and channel is stored.

Weights of edges are stored, and the two numbers of each node that scores are sums of. Forward and the derivative of the
softmax go by target, the gradient of the values by source.
"""

from functools import cache
from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor

from gt_models.kernels.compiled import compiled, dot, real, run
from gt_models.kernels.once_differentiable import once_differentiable
from gt_models.kernels.vectors import copy, local, mul, muladd, softmax

BLOCK = 1024  # nodes whose contributions to the attention vectors' gradients are added up together


class _GraphAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value, att_source, att_target, ptr, col, ptr_t, col_t, perm_t, negative_slope) -> Tensor:
        (heads, width), n, slope = att_source.shape, len(value), real(value.dtype)(negative_slope)
        v, out, weight = value.contiguous(), value.new_empty(value.shape), value.new_empty(len(col), heads)
        att = torch.stack([att_source, att_target])
        score = torch.einsum("nhc,khc->nkh", v.view(n, heads, width), att).contiguous()  # [N, 2, H]
        forward = _kernels(value.dtype, heads, width).forward
        run(forward, n, v.view(-1), score, ptr, col, slope, weight.view(-1), out.view(-1), grain=256)
        ctx.save_for_backward(weight, score, v, att, ptr, col, ptr_t, col_t, perm_t)
        ctx.slope = slope
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        weight, score, v, att, *edges = ctx.saved_tensors
        n, g, kernels = len(v), grad.contiguous().view(-1), _kernels(v.dtype, *att.shape[1:])
        dscore, dtarget, dvalue = torch.empty_like(weight), torch.empty_like(score[:, 0]), torch.empty_like(v)
        datt = v.new_zeros(-(-n // BLOCK), *att.shape)
        run(kernels.by_target, n, v.view(-1), g, weight, score, *edges[:2], ctx.slope, dscore, dtarget, grain=256)
        run(
            kernels.by_source, len(datt), v.view(-1), g, weight, dscore, dtarget, *edges[2:], att.view(-1),
            dvalue.view(-1), datt.view(-1),
        )  # fmt: skip
        return dvalue, *datt.sum(0), *[None] * 6


graph_attention = _GraphAttention.apply


@cache
def _kernels(dtype: torch.dtype, heads: int, width: int) -> SimpleNamespace:
    """For heads of `width` channels.

    Flat are value, out and their gradients, [N, H, width], and the attention vectors, [2, H, width].
    """
    number = real(dtype)
    zero, log2e = number(0), number(np.log2(np.e))

    @compiled
    def forward(begin, end, value, score, ptr, col, slope, weight, out):
        """Weights [E, H], flat, and their sums of values."""
        row, peak, inverse = local(number, width), local(number, heads), local(number, heads)
        for i in range(begin, end):
            for e in range(ptr[i], ptr[i + 1]):
                for h in range(heads):
                    s = score[col[e], 0, h] + score[i, 1, h]
                    weight[e * heads + h] = (s if s > zero else slope * s) * log2e
            softmax(weight[ptr[i] * heads :], ptr[i + 1] - ptr[i], peak, inverse, heads)
            for e in range(ptr[i], ptr[i + 1]):
                mul(weight, e * heads, weight, e * heads, inverse, 0, heads)
            for h in range(heads):
                copy(row, 0, zero, width)
                for e in range(ptr[i], ptr[i + 1]):
                    muladd(row, 0, weight[e * heads + h], value, (col[e] * heads + h) * width, width)
                copy(out, (i * heads + h) * width, row, 0, width)

    @compiled
    def by_target(begin, end, value, grad, weight, score, ptr, col, slope, dscore, dtarget):
        """Gradients of the scores [E, H], and their sums over the edges of each target [N, H]."""
        mean = np.empty(heads, number)
        for i in range(begin, end):
            mean[:], dtarget[i] = zero, zero
            for e in range(ptr[i], ptr[i + 1]):
                for h in range(heads):  # innermost: a sum over edges is in their order
                    dscore[e, h] = dot(grad, (i * heads + h) * width, value, (col[e] * heads + h) * width, width)
                    mean[h] += weight[e, h] * dscore[e, h]
            for e in range(ptr[i], ptr[i + 1]):
                for h in range(heads):
                    ds = weight[e, h] * (dscore[e, h] - mean[h])
                    dscore[e, h] = ds if score[col[e], 0, h] + score[i, 1, h] > zero else slope * ds
                    dtarget[i, h] += dscore[e, h]

    @compiled
    def by_source(begin, end, value, grad, weight, dscore, dtarget, ptr_t, col_t, perm_t, att, dvalue, datt):
        """dvalue_j is the sum of w_e grad_i over the edges that leave j, and what comes through the scores.

        Datt [blocks, 2, H, width], flat.
        """
        row = local(number, width)
        for block in range(begin, end):
            for j in range(block * BLOCK, min(len(dtarget), block * BLOCK + BLOCK)):
                for h in range(heads):
                    at, dsource = (j * heads + h) * width, zero
                    copy(row, 0, zero, width)
                    for place in range(ptr_t[j], ptr_t[j + 1]):
                        dsource += dscore[perm_t[place], h]
                        muladd(row, 0, weight[perm_t[place], h], grad, (col_t[place] * heads + h) * width, width)
                    muladd(row, 0, dsource, att, h * width, width)
                    muladd(row, 0, dtarget[j, h], att, (heads + h) * width, width)
                    copy(dvalue, at, row, 0, width)
                    muladd(datt, (2 * block * heads + h) * width, dsource, value, at, width)
                    muladd(datt, (2 * block * heads + heads + h) * width, dtarget[j, h], value, at, width)

    return SimpleNamespace(forward=forward, by_target=by_target, by_source=by_source)
