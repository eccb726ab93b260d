"""The closing step of a Polynormer layer on the CPU: one pass over memory forward and one backward, besides adding `skip` and `total`.

A dozen torch operations on [N, d], each reading and writing all of it, took as long as the layer's matrix products. Saved for the backward
pass: h, a' and two numbers a row.
"""

from functools import cache
from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gt_models.kernels.compiled import compiled, hash32, local, real, row_capacity, run
from gt_models.kernels.dropout_numba import draws, is_kept

BLOCK = 256  # rows whose contributions to the vectors' gradients are added up together


class _GatedNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, h: Tensor, a: Tensor, vectors: Tensor, eps: float, relu: bool, seed, rate: float) -> Tensor:
        number, kernels = real(h.dtype), _kernels(h.dtype, row_capacity(h.size(1)))
        settings = (number(0 if relu else np.nan), *draws(seed, rate, h.dtype))
        x, kept, stats = torch.empty_like(h), torch.empty_like(h), h.new_empty(len(h), 2)
        run(kernels.forward, len(h), h, a, vectors, number(eps), *settings, x, kept, stats, grain=BLOCK)
        ctx.save_for_backward(h, kept, vectors, stats)
        ctx.settings = settings
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        h, kept, vectors, stats = ctx.saved_tensors
        dh, da, sums = torch.empty_like(h), torch.empty_like(h), h.new_empty(-(-len(h) // BLOCK), *vectors.shape)
        backward = _kernels(h.dtype, row_capacity(h.size(1))).backward
        run(backward, len(sums), grad.contiguous(), h, kept, vectors, *ctx.settings, stats, dh, da, sums)
        return dh, da, sums.sum(0), None, None, None, None


def gated_norm(h, a, skip, total, h_bias, skip_bias, b, weight, bias, eps, relu, seed, rate) -> tuple[Tensor, Tensor]:
    """See `gt_models.kernels.gated_norm`: x and total + x, [N, d] each."""
    a = a if skip is None else a + skip
    vectors = torch.stack([h_bias, torch.zeros_like(b) if skip_bias is None else skip_bias, b, (1 - b) * weight, (1 - b) * bias])
    x = _GatedNorm.apply(h.contiguous(), a.contiguous(), vectors, eps, relu, seed, rate)
    return x, x if total is None else total + x


@cache
def _kernels(dtype: torch.dtype, capacity: int) -> SimpleNamespace:
    """For rows of up to `capacity` numbers, which are kept on the stack: loops over them store to arrays that nothing else points into.

    vectors [5, d]: h_bias, skip_bias, b, (1 - b) weight, (1 - b) bias. `lowest`: act is max(., lowest): 0 for ReLU, NaN, which nothing is below, for
    the identity. stats [N, 2]: mean and inverse deviation of h' a'."""
    number = real(dtype)
    zero, one = number(0), number(1)

    @compiled
    def forward(begin, end, h, a, vectors, eps, lowest, seed, limit, scale, x, kept, stats):
        """x and a'."""
        dim, hashed = h.shape[1], hash32(seed)
        gate, value = local(number, capacity), local(number, capacity)
        for i in range(begin, end):
            for c in range(dim):
                value[c] = a[i, c] + vectors[1, c]
                value[c] = lowest if value[c] < lowest else value[c]
            if limit:
                start = np.uint32(i * dim)
                for c in range(dim):
                    value[c] = value[c] * scale if is_kept(hashed, np.uint32(start + c), limit) else zero
            mean, squares = zero, zero
            for c in range(dim):
                g = h[i, c] + vectors[0, c]
                gate[c] = (lowest if g < lowest else g) * value[c]
                mean += gate[c]
            mean /= number(dim)
            for c in range(dim):
                squares += (gate[c] - mean) * (gate[c] - mean)
            inverse = one / np.sqrt(squares / number(dim) + eps)
            stats[i, 0], stats[i, 1] = mean, inverse
            for c in range(dim):
                gate[c] = (gate[c] - mean) * inverse * vectors[3, c] + vectors[4, c] + vectors[2, c] * value[c]
            for c in range(dim):
                x[i, c] = gate[c]
            for c in range(dim):
                kept[i, c] = value[c]

    @compiled
    def backward(begin, end, grad, h, a, vectors, lowest, seed, limit, scale, stats, dh, da, sums):
        """With x the normalised row u = h' a' and g = weight * grad: du = (g - mean g - x mean(g x)) / deviation, dh' = du a',
        da' = du h' + b grad. sums [blocks, 5, d]: gradients of `vectors` over a block of rows."""
        dim, hashed = h.shape[1], hash32(seed)
        gate, value, dgate, dvalue = local(number, capacity), local(number, capacity), local(number, capacity), local(number, capacity)
        by_h, by_a, by_b = local(number, capacity), local(number, capacity), local(number, capacity)
        by_weight, by_bias = local(number, capacity), local(number, capacity)
        for block in range(begin, end):
            for c in range(dim):
                by_h[c], by_a[c], by_b[c], by_weight[c], by_bias[c] = zero, zero, zero, zero, zero
            for i in range(block * BLOCK, min(len(h), block * BLOCK + BLOCK)):
                mean, inverse, first, second = stats[i, 0], stats[i, 1], zero, zero
                for c in range(dim):
                    out, value[c], gate[c] = grad[i, c], a[i, c], h[i, c] + vectors[0, c]
                    g = lowest if gate[c] < lowest else gate[c]
                    dgate[c] = (g * value[c] - mean) * inverse
                    dvalue[c] = out * vectors[3, c]
                    first += dvalue[c]
                    second += dvalue[c] * dgate[c]
                    by_weight[c] += out * dgate[c]
                    by_bias[c] += out
                    by_b[c] += out * value[c]
                first, second = first / number(dim), second / number(dim)
                for c in range(dim):
                    g = lowest if gate[c] < lowest else gate[c]
                    du = (dvalue[c] - first - dgate[c] * second) * inverse
                    dgate[c] = zero if gate[c] <= lowest else du * value[c]
                    dvalue[c] = zero if value[c] <= lowest else (du * g + grad[i, c] * vectors[2, c]) * scale
                if limit:
                    start = np.uint32(i * dim)
                    for c in range(dim):
                        dvalue[c] = dvalue[c] if is_kept(hashed, np.uint32(start + c), limit) else zero
                for c in range(dim):
                    dh[i, c] = dgate[c]
                    by_h[c] += dgate[c]
                for c in range(dim):
                    da[i, c] = dvalue[c]
                    by_a[c] += dvalue[c]
            for c in range(dim):
                sums[block, 0, c], sums[block, 1, c], sums[block, 2, c] = by_h[c], by_a[c], by_b[c]
                sums[block, 3, c], sums[block, 4, c] = by_weight[c], by_bias[c]

    return SimpleNamespace(forward=forward, backward=backward)
