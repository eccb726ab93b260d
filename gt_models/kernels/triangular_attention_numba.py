"""Triangular attention on the CPU: no value per triple of nodes is stored.

The innermost vectors are LANES nodes side by side, whose states lie as [channel, lane]: columns j forward, so that a
softmax over l is formed in each lane; middle nodes l backward, so that all gradients of the pairs (i, l) and (l, j)
have one writer and no lanes are summed up. Forward keeps the maximum and the inverse sum of each softmax, from which
backward forms each weight again. Graphs are worked on to their own sizes, without padding but that of the last lanes,
whose numbers are not read.
"""

# mypy: disable-error-code="has-type, misc"

import math
from functools import cache, lru_cache
from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor

from gt_models.kernels.compiled import compiled, exp2, hash32, inner, real, run_parts, shares
from gt_models.kernels.dropout_numba import draws
from gt_models.kernels.once_differentiable import once_differentiable
from gt_models.kernels.vectors import LANES, copy, gather, local, mul, muladd, scatter, softmax
from gt_models.layers.dropout_hash import GOLDEN

COLUMNS = 32  # columns j of a task, forward: a row is read once for all of them
ROWS = 2  # rows i that share one reading of what belongs to all (l, j)
LOG2E = 1.4426950408889634


class _TriangularAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, batch, seed, dropout, fusion_norm=None) -> Tensor:
        x = x.contiguous()
        out, stats = x.new_empty(x.size(0), x.size(2), x.size(3)), x.new_empty(x.size(0), x.size(2), 2)
        numbers, sizes = draws(seed, dropout, x.dtype), tuple(batch.sizes.tolist())
        tasks, bounds = _plan(sizes, x.size(2), COLUMNS, torch.get_num_threads())
        run_parts(_kernels(x.dtype, x.size(3)).forward, bounds, x, tasks, *numbers, out, stats)
        ctx.save_for_backward(x, out, stats)
        ctx.rest = sizes, numbers
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        (x, out, stats), (sizes, numbers) = ctx.saved_tensors, ctx.rest
        kernels, grad = _kernels(x.dtype, x.size(3)), grad.contiguous()
        mean, dx = x.new_empty(stats.shape[:2]), torch.empty_like(x)
        run_parts(kernels.means, [0, len(x)], grad, out, mean)  # on one thread: n^2 numbers, small against n^3
        tasks, bounds = _plan(sizes, x.size(2), LANES, torch.get_num_threads())
        run_parts(kernels.backward, bounds, x, grad, stats, mean, tasks, *numbers, dx)
        return dx, None, None, None, None


triangular_attention = _TriangularAttention.apply


@lru_cache(64)
def _plan(sizes: tuple[int, ...], num_heads: int, width: int, num_threads: int) -> tuple[np.ndarray, list[int]]:
    """Tasks (first pair, nodes, head, first index), `width` indices of one head of one graph each.

    Bounds of shares of about equal cost.
    """
    tasks, cost, pair = [], [], 0
    for n in sizes:
        tasks += [(pair, n, head, first) for head in range(num_heads) for first in range(0, n, width)]
        cost += [n * n * min(width, n - first) for first in range(0, n, width)] * num_heads
        pair += n * n
    return np.array(tasks, dtype=np.int64).reshape(-1, 4), shares(np.array(cost))


@inner
def _row_hash(pair, h, num_heads, seed):
    """Of the weights of one pair (i, l) and head."""
    return hash32(np.uint32(np.uint32(pair * num_heads + h) ^ seed))


@inner
def _column_of(row, j):
    """Of column j, by the hash of its row: the weight stays where the hash of this is not below the limit."""
    return np.uint32(row + np.uint32(j) * np.uint32(GOLDEN))


@inner
def _pack(x, pair, stride, lanes, kind, h, a, b, at, d):
    """Of the pairs `pair`, `pair` + `stride`, ... q and v1 (kind 0) or k and v2 (kind 1), as [channel, lane]."""
    row = x.shape[2] * d
    gather(a, at, x, (pair * 4 + kind) * row + h * d, stride * 4 * row, lanes, d)
    gather(b, at, x, (pair * 4 + kind + 2) * row + h * d, stride * 4 * row, lanes, d)


@inner
def _unpack(a, b, at, lanes, out, pair, stride, kind, h, d):
    row = out.shape[2] * d
    scatter(a, at, out, (pair * 4 + kind) * row + h * d, stride * 4 * row, lanes, d)
    scatter(b, at, out, (pair * 4 + kind + 2) * row + h * d, stride * 4 * row, lanes, d)


@inner
def _attend(
    i, n, j0, columns, p0, h, x, seed, limit, keep, scale, k, v2, q, v1, weight, hashes, drawn, out, stats, rows, d,
    lanes, size,
):  # fmt: skip
    """Outputs of the rows from i on and of the columns from j0 on, LANES at a time.

    Laid out as k, v2 [tile of columns, l, channel, lane]; q, v1 [row, l, channel]; weight, drawn [l, row,
    lane].
    """
    number, zero = x.dtype, x.dtype.type(0)
    s, peak, inverse = local(number, lanes), local(number, lanes), local(number, lanes)
    value, t = local(number, size), local(number, LANES)
    for r in range(rows):
        for l in range(n):
            pair = p0 + (i + r) * n + l
            hashes[r * n + l] = _row_hash(pair, h, x.shape[2], seed)
            copy(q, (r * n + l) * d, x, (pair * 4 * x.shape[2] + h) * d, d)
            copy(v1, (r * n + l) * d, x, ((pair * 4 + 2) * x.shape[2] + h) * d, d)
    for first in range(0, columns, LANES):
        of_tile = first * n * d
        for l in range(n):
            copy(s, 0, zero, lanes)
            for r in range(rows):
                for c in range(d):
                    muladd(s, r * LANES, q[(r * n + l) * d + c], k, of_tile + l * size + c * LANES, LANES)
            mul(weight, l * lanes, scale, s, 0, lanes)
        softmax(weight, n, peak, inverse, lanes)
        if limit > 0:
            for l in range(n):
                for r in range(rows):
                    for j in range(LANES):
                        drawn[l * lanes + r * LANES + j] = _column_of(hashes[r * n + l], j0 + first + j)
            for m in range(n * lanes):
                weight[m] *= keep if hash32(drawn[m]) >= limit else zero
        for r in range(rows):
            pair, count = p0 + (i + r) * n + j0 + first, min(LANES, columns - first)
            copy(value, 0, zero, size)
            for l in range(n):
                for c in range(d):
                    mul(t, 0, v1[(r * n + l) * d + c], weight, l * lanes + r * LANES, LANES)
                    muladd(value, c * LANES, t, 0, v2, of_tile + l * size + c * LANES, LANES)
            for c in range(d):
                mul(value, c * LANES, value, c * LANES, inverse, r * LANES, LANES)
            scatter(value, 0, out, (pair * x.shape[2] + h) * d, x.shape[2] * d, count, d)
            for j in range(count):
                stats[pair + j, h, 0], stats[pair + j, h, 1] = peak[r * LANES + j], inverse[r * LANES + j]


@inner
def _differentiate(
    i, n, l0, count, p0, h, x, grad, stats, mean, seed, limit, keep, scale, root, k, v2, dk, dv2, dx, rows, d, lanes,
    size, states,
):  # fmt: skip
    """Gradients of the rows from i on and LANES middle nodes l, and what these rows add to those of all (l, j).

    Laid out as k, v2, dk, dv2 [j, channel, lane]; q, v1, dq, dv1 [row, channel, lane]; of one j, weight and ds
    [row, lane].
    """
    number, zero = x.dtype, x.dtype.type(0)
    q, v1, dq, dv1 = local(number, states), local(number, states), local(number, states), local(number, states)
    s, da, weight, ds = local(number, lanes), local(number, lanes), local(number, lanes), local(number, lanes)
    dk_c, dv2_c, t, hashes = (
        local(number, LANES),
        local(number, LANES),
        local(number, LANES),
        local(np.uint32, lanes),
    )
    copy(dq, 0, zero, states)
    copy(dv1, 0, zero, states)
    for r in range(rows):
        first = p0 + (i + r) * n + l0
        _pack(x, first, 1, count, 0, h, q, v1, r * size, d)
        for l in range(LANES):
            hashes[r * LANES + l] = _row_hash(first + l, h, x.shape[2], seed)
    for j in range(n):
        copy(s, 0, zero, lanes)
        copy(da, 0, zero, lanes)
        for r in range(rows):
            for c in range(d):
                row, column = r * size + c * LANES, j * size + c * LANES
                muladd(s, r * LANES, q, row, k, column, LANES)
                mul(t, 0, grad[p0 + (i + r) * n + j, h, c], v1, row, LANES)
                muladd(da, r * LANES, t, 0, v2, column, LANES)
        for l in range(LANES):
            for r in range(rows):
                p, m = p0 + (i + r) * n + j, r * LANES + l
                a = exp2(s[m] * scale - stats[p, h, 0]) * stats[p, h, 1]
                weight[m] = a * (keep if hash32(_column_of(hashes[m], j)) >= limit else zero)  # NaN stays NaN
                ds[m] = (weight[m] * da[m] - a * mean[p, h]) * root
        for c in range(d):
            column = j * size + c * LANES
            copy(dk_c, 0, dk, column, LANES)
            copy(dv2_c, 0, dv2, column, LANES)
            for r in range(rows):
                row = r * size + c * LANES
                muladd(dk_c, 0, ds, r * LANES, q, row, LANES)
                muladd(dq, row, ds, r * LANES, k, column, LANES)
                mul(t, 0, grad[p0 + (i + r) * n + j, h, c], weight, r * LANES, LANES)
                muladd(dv2_c, 0, t, 0, v1, row, LANES)
                muladd(dv1, row, t, 0, v2, column, LANES)
            copy(dk, column, dk_c, 0, LANES)
            copy(dv2, column, dv2_c, 0, LANES)
    for r in range(rows):
        _unpack(dq, dv1, r * size, count, dx, p0 + (i + r) * n + l0, 1, 0, h, d)


@cache
def _kernels(dtype: torch.dtype, d: int) -> SimpleNamespace:
    """For heads of d channels: the innermost loops have a known length.

    Sums go through local arrays, which LLVM keeps in registers.
    """
    number = real(dtype)
    zero = number(0)
    root, scale = number(1 / math.sqrt(d)), number(LOG2E / math.sqrt(d))
    size, lanes, states = d * LANES, ROWS * LANES, ROWS * d * LANES

    @compiled
    def forward(begin, end, x, tasks, seed, limit, keep, out, stats):
        """`x` [P, 4, H, d] -> out [P, H, d] and stats [P, H, 2].

        Stats are the maximum (in base 2) and the inverse sum of each softmax.
        """
        for t in range(begin, end):
            p0, n, h, j0 = tasks[t]
            columns, rest = min(COLUMNS, n - j0), n - n % ROWS
            k, v2 = np.empty(n * d * COLUMNS, number), np.empty(n * d * COLUMNS, number)
            q, v1 = np.empty(ROWS * n * d, number), np.empty(ROWS * n * d, number)
            weight, drawn, hashes = (
                np.empty(n * ROWS * LANES, number),
                np.empty(n * ROWS * LANES, np.uint32),
                np.empty(ROWS * n, np.uint32),
            )
            for first in range(0, columns, LANES):
                for l in range(n):
                    _pack(
                        x, p0 + l * n + j0 + first, 1, min(LANES, columns - first), 1, h, k, v2, (first * n + l * LANES)
                        * d, d,
                    )  # fmt: skip
            for i in range(0, rest, ROWS):
                _attend(
                    i, n, j0, columns, p0, h, x, seed, limit, keep, scale, k, v2, q, v1, weight, hashes, drawn, out,
                    stats, ROWS, d, lanes, size,
                )  # fmt: skip
            for i in range(rest, n):
                _attend(
                    i, n, j0, columns, p0, h, x, seed, limit, keep, scale, k, v2, q, v1, weight, hashes, drawn, out,
                    stats, 1, d, LANES, size,
                )  # fmt: skip

    @compiled
    def means(begin, end, grad, out, mean):
        """`mean` [P, H] = <O, dO>, the sum over l of A dA."""
        for p in range(begin, end):
            for h in range(grad.shape[1]):
                product = zero
                for c in range(d):
                    product += grad[p, h, c] * out[p, h, c]
                mean[p, h] = product

    @compiled
    def backward(begin, end, x, grad, stats, mean, tasks, seed, limit, keep, dx):
        """`dx` [P, 4, H, d]."""
        for t in range(begin, end):
            p0, n, h, l0 = tasks[t]
            count, rest, first = min(LANES, n - l0), n - n % ROWS, p0 + l0 * n
            k, v2, dk, dv2 = (
                np.empty(n * size, number),
                np.empty(n * size, number),
                np.zeros(n * size, number),
                np.zeros(n * size, number),
            )
            for j in range(n):
                _pack(x, first + j, n, count, 1, h, k, v2, j * size, d)
            for i in range(0, rest, ROWS):
                _differentiate(
                    i, n, l0, count, p0, h, x, grad, stats, mean, seed, limit, keep, scale, root, k, v2, dk, dv2, dx,
                    ROWS, d, lanes, size, states,
                )  # fmt: skip
            for i in range(rest, n):
                _differentiate(
                    i, n, l0, count, p0, h, x, grad, stats, mean, seed, limit, keep, scale, root, k, v2, dk, dv2, dx, 1,
                    d, LANES, size, size,
                )  # fmt: skip
            for j in range(n):
                _unpack(dk, dv2, j * size, count, dx, first + j, n, 1, h, d)

    return SimpleNamespace(forward=forward, means=means, backward=backward)
