"""Polynormer's global attention on the CPU, for one graph: products per head by the library, all between them in two passes forward and
two backward.

The bias of the values is added after the attention, whose weights sum to one.
"""

# mypy: disable-error-code="assignment"

from functools import cache
from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gt_models.kernels.compiled import compiled, exp2, local, real, row_capacity, run
from gt_models.kernels.linears import without_autocast

LOG2E = 1.4426950408889634
BLOCK = 256  # rows whose contributions to a sum over nodes are added up together


class _GlobalAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, h, v, k, q, gate, v_bias, k_bias, q_bias, weight, bias, num_heads, eps, batch) -> Tensor:
        h, v = h.contiguous(), v.contiguous()
        n, d = h.shape
        kernels = _kernels(h.dtype, row_capacity(d))
        keys, total = _activate(kernels, k, k_bias)
        queries = keys if q is None else _activate(kernels, q, q_bias)[0]
        memory = _heads(keys, num_heads).mT @ _heads(v, num_heads)  # [H, C, C]
        y, x, scale, stats = torch.empty_like(h), torch.empty_like(h), h.new_empty(n, num_heads), h.new_empty(n, 2)
        torch.bmm(_heads(queries, num_heads), memory, out=_heads(y, num_heads))
        vectors = torch.stack([total, gate, v_bias, weight, bias])
        run(kernels.close, n, queries, h, vectors, real(h.dtype)(eps), y, scale, stats, x, grain=BLOCK)
        ctx.shared = q is None
        ctx.save_for_backward(h, v, keys, queries, y, scale, stats, memory, vectors)
        return x

    @staticmethod
    @once_differentiable
    @without_autocast
    def backward(ctx, grad: Tensor):  # type: ignore[override]
        h, v, keys, queries, y, scale, stats, memory, vectors = ctx.saved_tensors
        d, num_heads, blocks, kernels = h.size(1), scale.size(1), -(-len(h) // BLOCK), _kernels(h.dtype, row_capacity(h.size(1)))
        dh, dy, dots, sums = torch.empty_like(h), torch.empty_like(h), torch.empty_like(scale), h.new_empty(blocks, 5, d)
        run(kernels.open, blocks, grad.contiguous(), h, y, queries, vectors, scale, stats, dh, dy, dots, sums)
        dgate, dv_bias, dweight, dbias, dtotal = sums.sum(0)
        heads = [_heads(t, num_heads) for t in (queries, keys, v, dy)]
        dmemory = heads[0].mT @ heads[3]  # [H, C, C]
        dk, dv = torch.empty_like(h), torch.empty_like(h)
        dq = dk if ctx.shared else torch.empty_like(h)
        torch.bmm(heads[3], memory.mT, out=_heads(dq, num_heads))
        if ctx.shared:
            _heads(dk, num_heads).baddbmm_(heads[2], dmemory.mT)
        else:
            torch.bmm(heads[2], dmemory.mT, out=_heads(dk, num_heads))
        torch.bmm(heads[1], dmemory, out=_heads(dv, num_heads))
        biases = h.new_empty(blocks, 2, d)
        run(kernels.sigmoids, blocks, keys, queries, vectors[0], dtotal, dots, ctx.shared, dk, dq, biases)
        dk_bias, dq_bias = biases.sum(0)
        dq, dq_bias = (None, None) if ctx.shared else (dq, dq_bias)
        return dh, dv, dk, dq, dgate, dv_bias, dk_bias, dq_bias, dweight, dbias, None, None, None


global_attention = _GlobalAttention.apply


def _heads(t: Tensor, num_heads: int) -> Tensor:
    """[N, H * C] -> [H, N, C], a view."""
    return t.view(len(t), num_heads, t.size(1) // num_heads).transpose(0, 1)


def _activate(kernels: SimpleNamespace, x: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """sigma(x + bias), and its sum over nodes."""
    out, sums = torch.empty_like(x, memory_format=torch.contiguous_format), x.new_empty(-(-len(x) // BLOCK), x.size(1))
    run(kernels.activate, len(sums), x.contiguous(), bias.contiguous(), out, sums)
    return out, sums.sum(0)


@cache
def _kernels(dtype: torch.dtype, capacity: int) -> SimpleNamespace:
    """For rows of up to `capacity` numbers, which are kept on the stack: loops over them store to arrays that nothing else points into."""
    number, power = real(dtype), exp2(dtype)
    zero, one, log2e = number(0), number(1), number(LOG2E)

    @compiled
    def activate(begin, end, x, bias, out, sums):
        """sigma(x + bias) without overflow: with e = exp(-|x|), 1 / (1 + e) or e / (1 + e). sums [blocks, d]."""
        dim, row, total = x.shape[1], local(number, capacity), local(number, capacity)
        for block in range(begin, end):
            for c in range(dim):
                total[c] = zero
            for i in range(block * BLOCK, min(len(x), block * BLOCK + BLOCK)):
                for c in range(dim):
                    value = x[i, c] + bias[c]
                    e = power(-abs(value) * log2e)
                    row[c] = (e if value < zero else one) / (one + e)
                    total[c] += row[c]
                for c in range(dim):
                    out[i, c] = row[c]
            for c in range(dim):
                sums[block, c] = total[c]

    @compiled
    def close(begin, end, queries, h, vectors, eps, y, scale, stats, x):
        """y holds the numerators and is divided by the denominators; scale [N, H] their inverse; norm; gate.

        vectors [5, d]: sum of the keys, gate, bias of the values, weight and bias of the norm."""
        dim, heads = h.shape[1], scale.shape[1]
        width, row = dim // heads, local(number, capacity)
        for i in range(begin, end):
            mean, squares = zero, zero
            for head in range(heads):
                first, product = head * width, zero
                query, total, numerator = queries[i, first:], vectors[0, first:], y[i, first:]
                for c in range(width):
                    product += query[c] * total[c]
                scale[i, head] = one / product
                inverse = scale[i, head]
                for c in range(width):
                    numerator[c] *= inverse
            for c in range(dim):
                row[c] = y[i, c] + vectors[2, c]
                mean += row[c]
            mean /= number(dim)
            for c in range(dim):
                squares += (row[c] - mean) * (row[c] - mean)
            inverse = one / np.sqrt(squares / number(dim) + eps)
            stats[i, 0], stats[i, 1] = mean, inverse
            for c in range(dim):
                row[c] = ((row[c] - mean) * inverse * vectors[3, c] + vectors[4, c]) * (h[i, c] + vectors[1, c])
            for c in range(dim):
                x[i, c] = row[c]

    @compiled
    def open(begin, end, grad, h, y, queries, vectors, scale, stats, dh, dy, dots, sums):
        """Back through gate, norm and division: gradients of h and the numerators, and per head that of the denominator.

        With g = weight * (h + gate) * grad and u the normalised row: d(y + v_bias) = (g - mean g - u mean(g u)) / deviation; the numerator's
        gradient is scale times that, the denominator's - <scale times that, y>. sums [blocks, 5, d]: for gate, v_bias, weight, bias, keys."""
        dim, heads = h.shape[1], scale.shape[1]
        width = dim // heads
        row, normed, part = local(number, capacity), local(number, capacity), local(number, capacity)
        by_gate, by_value, by_weight = local(number, capacity), local(number, capacity), local(number, capacity)
        by_bias, by_total = local(number, capacity), local(number, capacity)
        for block in range(begin, end):
            for c in range(dim):
                by_gate[c], by_value[c], by_weight[c], by_bias[c], by_total[c] = zero, zero, zero, zero, zero
            for i in range(block * BLOCK, min(len(h), block * BLOCK + BLOCK)):
                mean, inverse, first, second = stats[i, 0], stats[i, 1], zero, zero
                for c in range(dim):
                    normed[c] = (y[i, c] + vectors[2, c] - mean) * inverse
                    row[c] = grad[i, c] * (normed[c] * vectors[3, c] + vectors[4, c])
                    by_gate[c] += row[c]
                for c in range(dim):
                    dh[i, c] = row[c]
                for c in range(dim):
                    gated = grad[i, c] * (h[i, c] + vectors[1, c])
                    part[c] = gated * vectors[3, c]
                    by_weight[c] += gated * normed[c]
                    by_bias[c] += gated
                    first += part[c]
                    second += part[c] * normed[c]
                first, second = first / number(dim), second / number(dim)
                for c in range(dim):
                    row[c] = (part[c] - first - normed[c] * second) * inverse
                    by_value[c] += row[c]
                for head in range(heads):
                    s, dot, start = scale[i, head], zero, head * width
                    numerator, query, out = y[i, start:], queries[i, start:], dy[i, start:]
                    for c in range(width):
                        dot -= row[start + c] * s * numerator[c]
                    for c in range(width):
                        out[c] = row[start + c] * s
                    for c in range(width):
                        by_total[start + c] += dot * query[c]
                    dots[i, head] = dot
            for c in range(dim):
                sums[block, 0, c], sums[block, 1, c], sums[block, 2, c] = by_gate[c], by_value[c], by_weight[c]
                sums[block, 3, c], sums[block, 4, c] = by_bias[c], by_total[c]

    @compiled
    def sigmoids(begin, end, keys, queries, total, dtotal, dots, shared, dk, dq, sums):
        """Adds what comes through the denominators, then back through the sigmoids, in place; sums [blocks, 2, d]: of dk and dq."""
        dim, heads = keys.shape[1], dots.shape[1]
        width = dim // heads
        row, by_key, by_query = local(number, capacity), local(number, capacity), local(number, capacity)
        for block in range(begin, end):
            for c in range(dim):
                by_key[c], by_query[c] = zero, zero
            for i in range(block * BLOCK, min(len(keys), block * BLOCK + BLOCK)):
                for head in range(heads):  # what reaches the queries through the denominators
                    start, dot = head * width, dots[i, head]
                    part = total[start:]
                    for c in range(width):
                        row[start + c] = dot * part[c]
                if not shared:
                    for c in range(dim):
                        row[c] = (row[c] + dq[i, c]) * queries[i, c] * (one - queries[i, c])
                        by_query[c] += row[c]
                    for c in range(dim):
                        dq[i, c] = row[c]
                        row[c] = zero
                for c in range(dim):
                    row[c] = (row[c] + dk[i, c] + dtotal[c]) * keys[i, c] * (one - keys[i, c])
                    by_key[c] += row[c]
                for c in range(dim):
                    dk[i, c] = row[c]
            for c in range(dim):
                sums[block, 0, c], sums[block, 1, c] = by_key[c], by_query[c]

    return SimpleNamespace(activate=activate, close=close, open=open, sigmoids=sigmoids)
