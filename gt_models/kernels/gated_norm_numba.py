"""The closing step of a Polynormer layer on the CPU: one pass over memory forward and one backward.

A dozen torch operations on [N, d], each reading and writing all of it, took as long as the layer's matrix products. Kept for the backward
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
    def forward(ctx, h, a, skip, total, h_bias, skip_bias, b, weight, bias, eps, relu, seed, rate) -> tuple[Tensor, Tensor]:
        h, a = h.contiguous(), a.contiguous()
        number, none = real(h.dtype), h.new_empty(0, 0)
        x, kept, stats = torch.empty_like(h), torch.empty_like(h), h.new_empty(len(h), 2)
        summed = none if total is None else torch.empty_like(h)
        vectors = torch.stack([h_bias, torch.zeros_like(b) if skip_bias is None else skip_bias, b, (1 - b) * weight, (1 - b) * bias])
        settings = (number(0 if relu else np.nan), *draws(seed, rate, h.dtype))
        rows = (h, a, *(none if t is None else t.contiguous() for t in (skip, total)))
        kernel = _kernels(h.dtype, row_capacity(h.size(1))).forward
        run(kernel, len(h), *rows, vectors, number(eps), *settings, x, summed, kept, stats, grain=BLOCK)
        ctx.save_for_backward(h, kept, stats, vectors, weight, bias)
        ctx.settings, ctx.given = settings, (skip is not None, total is not None, skip_bias is not None)
        ctx.set_materialize_grads(False)
        return x, summed

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor | None, grad_total: Tensor | None):
        h, a, stats, vectors, weight, bias = ctx.saved_tensors
        with_skip, with_total, with_skip_bias = ctx.given
        grad_total = grad_total if with_total else None
        given = [g.contiguous() for g in (grad, grad_total) if g is not None]
        if not given:
            return (None,) * 13
        dh, da = torch.empty_like(h), torch.empty_like(h)
        blocks = -(-len(h) // BLOCK)
        sums = h.new_empty(blocks, 5, h.size(1))
        more = given[1] if len(given) == 2 else h.new_empty(0, 0)
        kernel = _kernels(h.dtype, row_capacity(h.size(1))).backward
        run(kernel, blocks, given[0], more, h, a, stats, vectors, *ctx.settings, dh, da, sums)
        dweight, dbias, db, dh_bias, dskip_bias = sums.sum(0)
        b = vectors[2]
        # the norm's weight and bias enter times 1 - b
        db = db - dweight * weight - dbias * bias
        dskip, dskip_bias = da if with_skip else None, dskip_bias if with_skip_bias else None
        return dh, da, dskip, grad_total, dh_bias, dskip_bias, db, (1 - b) * dweight, (1 - b) * dbias, None, None, None, None


def gated_norm(h: Tensor, a: Tensor, skip: Tensor | None, total: Tensor | None, *others) -> tuple[Tensor, Tensor]:
    """See `gt_models.kernels.gated_norm`: x and total + x, [N, d] each."""
    x, summed = _GatedNorm.apply(h, a, skip, total, *others)
    return x, x if total is None else summed


@cache
def _kernels(dtype: torch.dtype, capacity: int) -> SimpleNamespace:
    """For rows of up to `capacity` numbers, which are kept on the stack: loops over them store to arrays that nothing else points into."""
    number = real(dtype)
    zero, one = number(0), number(1)

    @compiled
    def forward(begin, end, h, a, skip, total, vectors, eps, lowest, seed, limit, scale, x, summed, kept, stats):
        """x, total + x, a' and (mean, 1 / deviation) of each row. vectors [5, d]: h_bias, skip_bias, b, (1 - b) weight, (1 - b) bias.

        `lowest`: act is max(., lowest): 0 for ReLU, NaN, which nothing is below, for the identity. `skip` and `total` may be empty."""
        dim, hashed = h.shape[1], hash32(seed)
        gate, value = local(number, capacity), local(number, capacity)
        for i in range(begin, end):
            for c in range(dim):
                value[c] = a[i, c] + vectors[1, c]
            if len(skip):
                for c in range(dim):
                    value[c] += skip[i, c]
            for c in range(dim):
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
                kept[i, c] = value[c]
            for c in range(dim):
                gate[c] = (gate[c] - mean) * inverse * vectors[3, c] + vectors[4, c] + vectors[2, c] * value[c]
            for c in range(dim):
                x[i, c] = gate[c]
            if len(total):
                for c in range(dim):
                    summed[i, c] = gate[c] + total[i, c]

    @compiled
    def backward(begin, end, grad, more, h, a, stats, vectors, lowest, seed, limit, scale, dh, da, sums):
        """With x the normalised row u = h' a' and g = weight * grad: du = (g - mean g - x mean(g x)) / deviation, dh' = du a',
        da' = du h' + b grad. sums [blocks, 5, d]: of grad x, grad, grad a', dh and da over a block of rows."""
        dim, hashed = h.shape[1], hash32(seed)
        out, gate, value = local(number, capacity), local(number, capacity), local(number, capacity)
        normed, part, by_weight = local(number, capacity), local(number, capacity), local(number, capacity)
        by_bias, by_b = local(number, capacity), local(number, capacity)
        by_h, by_a = local(number, capacity), local(number, capacity)
        for block in range(begin, end):
            for c in range(dim):
                by_weight[c], by_bias[c], by_b[c], by_h[c], by_a[c] = zero, zero, zero, zero, zero
            for i in range(block * BLOCK, min(len(h), block * BLOCK + BLOCK)):
                mean, inverse, first, second = stats[i, 0], stats[i, 1], zero, zero
                for c in range(dim):
                    out[c], value[c], gate[c] = grad[i, c], a[i, c], h[i, c] + vectors[0, c]
                if len(more):
                    for c in range(dim):
                        out[c] += more[i, c]
                for c in range(dim):
                    g = lowest if gate[c] < lowest else gate[c]
                    normed[c] = (g * value[c] - mean) * inverse
                    part[c] = out[c] * vectors[3, c]
                    first += part[c]
                    second += part[c] * normed[c]
                    by_weight[c] += out[c] * normed[c]
                    by_bias[c] += out[c]
                    by_b[c] += out[c] * value[c]
                first, second = first / number(dim), second / number(dim)
                for c in range(dim):
                    g = lowest if gate[c] < lowest else gate[c]
                    du = (part[c] - first - normed[c] * second) * inverse
                    normed[c] = zero if gate[c] <= lowest else du * value[c]
                    part[c] = zero if value[c] <= lowest else (du * g + out[c] * vectors[2, c]) * scale
                if limit:
                    start = np.uint32(i * dim)
                    for c in range(dim):
                        part[c] = part[c] if is_kept(hashed, np.uint32(start + c), limit) else zero
                for c in range(dim):
                    dh[i, c] = normed[c]
                    by_h[c] += normed[c]
                for c in range(dim):
                    da[i, c] = part[c]
                    by_a[c] += part[c]
            for c in range(dim):
                sums[block, 0, c], sums[block, 1, c], sums[block, 2, c] = by_weight[c], by_bias[c], by_b[c]
                sums[block, 3, c], sums[block, 4, c] = by_h[c], by_a[c]

    return SimpleNamespace(forward=forward, backward=backward)
