"""Gated attention on the CPU, a graph at a time at its own size; no weight of a pair is stored.

Heads are the lanes of vectors: states lie as [channel, head] and whatever is of a pair as [key, head], so that nothing
is padded, and powers and hashes are formed for all keys and heads of a query at once. Backward forms the weights of a
row again from its maximum and the inverse of its sum.
"""

from functools import cache
from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor

from gt_models.batch import GraphBatch
from gt_models.kernels.compiled import compiled, hash32, inner, move, powers, real, run_parts, shares
from gt_models.kernels.dropout_numba import draws, factors
from gt_models.kernels.once_differentiable import once_differentiable
from gt_models.kernels.vectors import copy, local, mul, muladd, softmax

LOG2E = np.log2(np.e)


class _GatedAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx, qkv: Tensor, pairs: Tensor, heads: int, batch: GraphBatch, scale: float, key_scale: float, dropout: float,
        seed,
    ) -> Tensor:  # fmt: skip
        number, dim = real(qkv.dtype), qkv.size(1) // 3
        x, flat, stride = qkv.contiguous().view(-1), *_flat(pairs)
        out, stats = qkv.new_empty(len(qkv), dim), qkv.new_empty(len(qkv), 2, heads)
        graphs = torch.stack([batch.ptr[:-1], batch.sizes, batch.pair_ptr[:-1]], 1)
        gated, bounds = pairs.size(1) > heads, shares(batch.sizes.numpy() ** 2)
        settings = (graphs, number(scale), number(key_scale), *draws(seed, dropout, qkv.dtype), gated, stride)
        run_parts(
            _kernels(qkv.dtype, heads, dim // heads).forward, bounds, *settings, x, flat, out.view(-1), stats.view(-1)
        )
        ctx.save_for_backward(x, flat, out, stats)
        ctx.rest = settings, bounds, heads, pairs.shape
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        x, flat, out, stats = ctx.saved_tensors
        settings, bounds, heads, shape = ctx.rest
        dx, dpairs = torch.empty_like(x), x.new_empty(shape)
        backward = _kernels(x.dtype, heads, out.size(1) // heads).backward
        run_parts(backward, bounds, *settings, x, flat, out, stats.view(-1), grad.contiguous(), dx, dpairs.view(-1))
        return dx.view(len(out), 3 * out.size(1)), dpairs, *[None] * 6


gated_attention = _GatedAttention.apply


def _flat(pairs: Tensor) -> tuple[Tensor, int]:
    """Columns [P, c] of a wider matrix without a copy: the numbers from the first to the last, and the row stride."""
    pairs = pairs if pairs.stride(1) == 1 else pairs.contiguous()
    stride = pairs.stride(0) if len(pairs) > 1 else pairs.size(1)
    return pairs.as_strided(((len(pairs) - 1) * stride + pairs.size(1) if len(pairs) else 0,), (1,)), stride


@inner
def _by_channel(x, at, factor, out, to, heads, width):
    """States of a node, [head, channel] from `at` on, times a factor as [channel, head]."""
    move(x, at, width, 1, heads, width, factor, out, to, 1, heads)


@inner
def _by_head(x, at, factor, out, to, heads, width):
    """And back."""
    move(x, at, 1, heads, heads, width, factor, out, to, width, 1)


@inner
def _states(x, first, n, key_scale, heads, width):
    """Keys and values of a graph [node, channel, head], and key_scale |k|^2 in base 2 of each key [node, head]."""
    number, dim = x.dtype.type, heads * width
    keys, values, lengths = np.empty(n * dim, x.dtype), np.empty(n * dim, x.dtype), np.zeros(n * heads, x.dtype)
    for j in range(n):
        _by_channel(x, (3 * (first + j) + 1) * dim, number(1), keys, j * dim, heads, width)
        _by_channel(x, (3 * (first + j) + 2) * dim, number(1), values, j * dim, heads, width)
        if key_scale != number(0):  # 0 times the square of a large number would be NaN
            for c in range(width):
                muladd(lengths, j * heads, keys, j * dim + c * heads, keys, j * dim + c * heads, heads)
    for j in range(n * heads):
        lengths[j] *= key_scale * number(LOG2E)
    return keys, values, lengths


@inner
def _logits(query, keys, lengths, n, pairs, start, stride, score, heads, width):
    """In base 2, of a query whose states are in base 2, [key, head]."""
    s = local(query.dtype, heads)
    for j in range(n):
        copy(s, 0, lengths, j * heads, heads)
        for c in range(width):
            muladd(s, 0, query, c * heads, keys, (j * width + c) * heads, heads)
        muladd(s, 0, query.dtype.type(LOG2E), pairs, (start + j) * stride, heads)
        copy(score, j * heads, s, 0, heads)


@cache
def _kernels(dtype: torch.dtype, heads: int, width: int) -> SimpleNamespace:
    """For `heads` heads of `width` channels. A unit of both kernels is a graph."""
    number, dim = real(dtype), heads * width
    zero, one, two, log2e = number(0), number(1), number(2), number(LOG2E)

    @compiled
    def forward(begin, end, graphs, scale, key_scale, seed, limit, drop_scale, gated, stride, x, pairs, out, stats):
        """`out` [N d], flat; stats [N, 2, H]: maximum of a row's logits in base 2, inverse sum of their powers."""
        hashed = hash32(seed)
        query, value = local(number, dim), local(number, dim)
        peak, inverse, w = local(number, heads), local(number, heads), local(number, heads)
        for g in range(begin, end):
            first, n, start = graphs[g]
            keys, values, lengths = _states(x, first, n, key_scale, heads, width)
            score, factor = np.empty(n * heads, number), np.empty(n * heads, number)
            for i in range(first, first + n):
                _by_channel(x, 3 * i * dim, scale * log2e, query, 0, heads, width)
                _logits(query, keys, lengths, n, pairs, start, stride, score, heads, width)
                softmax(score, n, peak, inverse, heads)
                factors(hashed, start * heads, limit, drop_scale, factor)
                copy(value, 0, zero, dim)
                for j in range(n):
                    mul(w, 0, score, j * heads, factor, j * heads, heads)
                    if gated:
                        mul(w, 0, w, 0, pairs, (start + j) * stride + heads, heads)
                    for c in range(width):
                        muladd(value, c * heads, w, 0, values, j * dim + c * heads, heads)
                for c in range(width):
                    mul(value, c * heads, value, c * heads, inverse, 0, heads)
                _by_head(value, 0, one, out, i * dim, heads, width)
                copy(stats, 2 * i * heads, peak, 0, heads)
                copy(stats, (2 * i + 1) * heads, inverse, 0, heads)
                start += n

    @compiled
    def backward(
        begin, end, graphs, scale, key_scale, seed, limit, drop_scale, gated, stride, x, pairs, out, stats, grad, dx,
        dpairs,
    ):  # fmt: skip
        """`dx` [N 3 d] and dpairs [P H or P 2 H], flat, from grad [N, d]."""
        hashed, columns = hash32(seed), 2 * heads if gated else heads
        query, dy, dquery = local(number, dim), local(number, dim), local(number, dim)
        mean, p, w = local(number, heads), local(number, heads), local(number, heads)
        d, s = local(number, heads), local(number, heads)
        for g in range(begin, end):
            first, n, start = graphs[g]
            keys, values, lengths = _states(x, first, n, key_scale, heads, width)
            dkeys, dvalues, sums = np.zeros(n * dim, number), np.zeros(n * dim, number), np.zeros(n * heads, number)
            score, factor = np.empty(n * heads, number), np.empty(n * heads, number)
            for i in range(first, first + n):
                _by_channel(x, 3 * i * dim, scale * log2e, query, 0, heads, width)
                for h in range(heads):
                    mean[h] = zero
                    for c in range(width):
                        dy[c * heads + h] = grad[i, h * width + c]
                        mean[h] -= (
                            grad[i, h * width + c] * out[i, h * width + c]
                        )  # minus the mean of the gradients of the weights
                _logits(query, keys, lengths, n, pairs, start, stride, score, heads, width)
                for j in range(n):
                    muladd(score, j * heads, -one, stats, 2 * i * heads, heads)
                powers(score)
                factors(hashed, start * heads, limit, drop_scale, factor)
                copy(dquery, 0, zero, dim)
                for j in range(n):
                    at, pair = j * dim, (start + j) * columns
                    copy(d, 0, zero, heads)
                    for c in range(width):
                        muladd(d, 0, dy, c * heads, values, at + c * heads, heads)
                    mul(d, 0, d, 0, factor, j * heads, heads)
                    mul(p, 0, score, j * heads, stats, (2 * i + 1) * heads, heads)
                    copy(w, 0, p, 0, heads)
                    if gated:
                        mul(dpairs, pair + heads, p, 0, d, 0, heads)
                        mul(w, 0, p, 0, pairs, (start + j) * stride + heads, heads)
                    mul(s, 0, w, 0, d, 0, heads)
                    muladd(s, 0, p, 0, mean, 0, heads)
                    mul(w, 0, w, 0, factor, j * heads, heads)
                    copy(dpairs, pair, s, 0, heads)
                    muladd(sums, j * heads, one, s, 0, heads)
                    for c in range(width):
                        muladd(dquery, c * heads, s, 0, keys, at + c * heads, heads)
                        muladd(dkeys, at + c * heads, s, 0, query, c * heads, heads)
                        muladd(dvalues, at + c * heads, w, 0, dy, c * heads, heads)
                _by_head(dquery, 0, scale, dx, 3 * i * dim, heads, width)
                start += n
            for j in range(n):
                for c in range(width):
                    for h in range(heads):
                        at = j * dim + c * heads + h
                        if key_scale == zero:
                            dkeys[at] = dkeys[at] / log2e
                        else:
                            dkeys[at] = dkeys[at] / log2e + two * key_scale * sums[j * heads + h] * keys[at]
                _by_head(dkeys, j * dim, one, dx, (3 * (first + j) + 1) * dim, heads, width)
                _by_head(dvalues, j * dim, one, dx, (3 * (first + j) + 2) * dim, heads, width)

    return SimpleNamespace(forward=forward, backward=backward)
