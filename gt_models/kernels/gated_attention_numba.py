"""Gated attention on the CPU, a graph at a time at its own size; no weight of a pair is stored.

Heads are the lanes of vectors: states lie as [channel, head] and whatever is of a pair as [key, head], so that nothing is padded, and powers and
hashes are formed for all keys and heads of a query at once. Backward forms the weights of a row again from its maximum and the inverse of its sum.
"""

from functools import cache
from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gt_models.batch import GraphBatch
from gt_models.kernels.compiled import axpy, compiled, hash32, inner, largest, local, muladd, powers, real, run_parts, scaled, times
from gt_models.kernels.dropout_numba import draws, factors


class _GatedAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx, qkv: Tensor, pairs: Tensor, heads: int, batch: GraphBatch, scale: float, key_scale: float, dropout: float, seed
    ) -> Tensor:
        number, dim = real(qkv.dtype), qkv.size(1) // 3
        x, flat, stride = qkv.contiguous().view(-1), *_flat(pairs)
        out, stats = qkv.new_empty(len(qkv), dim), qkv.new_empty(len(qkv), 2, heads)
        graphs = torch.stack([batch.ptr[:-1], batch.sizes, batch.pair_ptr[:-1]], 1)
        gated, bounds = pairs.size(1) > heads, _shares(batch.sizes)
        settings = (graphs, number(scale), number(key_scale), *draws(seed, dropout, qkv.dtype), gated, stride)
        run_parts(_kernels(qkv.dtype, heads, dim // heads).forward, bounds, *settings, x, flat, out, stats)
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
        run_parts(backward, bounds, *settings, x, flat, out, stats, grad.contiguous(), dx, dpairs.view(-1))
        return dx.view(len(out), 3 * out.size(1)), dpairs, *[None] * 6


gated_attention = _GatedAttention.apply


def _flat(pairs: Tensor) -> tuple[Tensor, int]:
    """Columns [P, c] of a wider matrix without a copy: all numbers from the first to the last, and how far apart rows are."""
    pairs = pairs if pairs.stride(1) == 1 else pairs.contiguous()
    stride = pairs.stride(0) if len(pairs) > 1 else pairs.size(1)
    return pairs.as_strided(((len(pairs) - 1) * stride + pairs.size(1) if len(pairs) else 0,), (1,)), stride


def _shares(sizes: Tensor) -> list[int]:
    """Where the graphs are cut for torch's threads, so that each has about as many pairs."""
    threads = max(1, min(torch.get_num_threads(), sizes.numel()))
    if threads == 1:
        return [0, sizes.numel()]
    pairs = sizes.numpy() ** 2
    return [0, *(np.searchsorted(pairs.cumsum(), pairs.sum() * t // threads).item() for t in range(1, threads)), sizes.numel()]


@cache
def _kernels(dtype: torch.dtype, heads: int, width: int) -> SimpleNamespace:
    """For `heads` heads of `width` channels. A unit of both kernels is a graph."""
    number, raise_two, dim = real(dtype), powers(dtype), heads * width
    zero, one, two, log2e, infinite = number(0), number(1), number(2), number(np.log2(np.e)), number(np.inf)

    @inner
    def by_channel(x, at, factor, out, to):
        """States of a node, [head, channel] from `at` on, times a factor as [channel, head]."""
        for h in range(heads):
            for c in range(width):
                out[to + c * heads + h] = x[at + h * width + c] * factor

    @inner
    def states(x, first, n, key_scale):
        """Keys and values of a graph [node, channel, head], and key_scale |k|^2 in base 2 of each key [node, head]."""
        keys, values, lengths = np.empty(n * dim, number), np.empty(n * dim, number), np.zeros(n * heads, number)
        for j in range(n):
            by_channel(x, (3 * (first + j) + 1) * dim, one, keys, j * dim)
            by_channel(x, (3 * (first + j) + 2) * dim, one, values, j * dim)
            for c in range(width):
                muladd(lengths, j * heads, keys, j * dim + c * heads, keys, j * dim + c * heads, heads)
        for j in range(n * heads):
            lengths[j] *= key_scale * log2e
        return keys, values, lengths

    @inner
    def logits(query, keys, lengths, n, pairs, start, stride, score):
        """In base 2, of a query whose states are in base 2, [key, head]."""
        s = local(number, heads)
        for j in range(n):
            scaled(s, 0, one, lengths, j * heads, heads)
            for c in range(width):
                muladd(s, 0, query, c * heads, keys, j * dim + c * heads, heads)
            axpy(s, 0, log2e, pairs, (start + j) * stride, heads)
            scaled(score, j * heads, one, s, 0, heads)

    @compiled
    def forward(begin, end, graphs, scale, key_scale, seed, limit, drop_scale, gated, stride, x, pairs, out, stats):
        """out [N, d]; stats [N, 2, H]: maximum of a row's logits in base 2 and inverse of the sum of their powers."""
        hashed = hash32(seed)
        query, value = local(number, dim), local(number, dim)
        peak, total, w = local(number, heads), local(number, heads), local(number, heads)
        for g in range(begin, end):
            first, n, start = graphs[g]
            keys, values, lengths = states(x, first, n, key_scale)
            score, factor = np.empty(n * heads, number), np.empty(n * heads, number)
            for i in range(first, first + n):
                by_channel(x, 3 * i * dim, scale * log2e, query, 0)
                logits(query, keys, lengths, n, pairs, start, stride, score)
                for h in range(heads):
                    peak[h], total[h] = -infinite, zero
                for c in range(dim):
                    value[c] = zero
                for j in range(n):
                    largest(peak, 0, one, score, j * heads, heads)
                for j in range(n):
                    axpy(score, j * heads, -one, peak, 0, heads)
                raise_two(score)
                factors(hashed, start * heads, limit, drop_scale, factor)
                for j in range(n):
                    axpy(total, 0, one, score, j * heads, heads)
                    scaled(w, 0, one, score, j * heads, heads)
                    times(w, 0, one, factor, j * heads, heads)
                    if gated:
                        times(w, 0, one, pairs, (start + j) * stride + heads, heads)
                    for c in range(width):
                        muladd(value, c * heads, w, 0, values, j * dim + c * heads, heads)
                for h in range(heads):
                    total[h] = one / total[h]
                    stats[i, 0, h], stats[i, 1, h] = peak[h], total[h]
                    for c in range(width):
                        out[i, h * width + c] = value[c * heads + h] * total[h]
                start += n

    @compiled
    def backward(begin, end, graphs, scale, key_scale, seed, limit, drop_scale, gated, stride, x, pairs, out, stats, grad, dx, dpairs):
        """dx [N 3 d] and dpairs [P H or P 2 H], flat, from grad [N, d]."""
        hashed, columns = hash32(seed), 2 * heads if gated else heads
        query, dy, dquery = local(number, dim), local(number, dim), local(number, dim)
        peak, inverse, mean = local(number, heads), local(number, heads), local(number, heads)
        p, w, d, s = local(number, heads), local(number, heads), local(number, heads), local(number, heads)
        for g in range(begin, end):
            first, n, start = graphs[g]
            keys, values, lengths = states(x, first, n, key_scale)
            dkeys, dvalues, sums = np.zeros(n * dim, number), np.zeros(n * dim, number), np.zeros(n * heads, number)
            score, factor = np.empty(n * heads, number), np.empty(n * heads, number)
            for i in range(first, first + n):
                by_channel(x, 3 * i * dim, scale * log2e, query, 0)
                for h in range(heads):
                    peak[h], inverse[h], mean[h] = stats[i, 0, h], stats[i, 1, h], zero
                    for c in range(width):
                        dy[c * heads + h] = grad[i, h * width + c]
                        mean[h] -= grad[i, h * width + c] * out[i, h * width + c]  # minus the mean of the gradients of the weights
                for c in range(dim):
                    dquery[c] = zero
                logits(query, keys, lengths, n, pairs, start, stride, score)
                for j in range(n):
                    axpy(score, j * heads, -one, peak, 0, heads)
                raise_two(score)
                factors(hashed, start * heads, limit, drop_scale, factor)
                for j in range(n):
                    at = j * dim
                    for h in range(heads):
                        d[h], s[h] = zero, zero
                    for c in range(width):
                        muladd(d, 0, dy, c * heads, values, at + c * heads, heads)
                    times(d, 0, one, factor, j * heads, heads)
                    scaled(p, 0, one, score, j * heads, heads)
                    times(p, 0, one, inverse, 0, heads)
                    scaled(w, 0, one, p, 0, heads)
                    if gated:
                        scaled(dpairs, (start + j) * columns + heads, one, p, 0, heads)
                        times(dpairs, (start + j) * columns + heads, one, d, 0, heads)
                        times(w, 0, one, pairs, (start + j) * stride + heads, heads)
                    muladd(s, 0, w, 0, d, 0, heads)
                    muladd(s, 0, p, 0, mean, 0, heads)
                    times(w, 0, one, factor, j * heads, heads)
                    scaled(dpairs, (start + j) * columns, one, s, 0, heads)
                    axpy(sums, j * heads, one, s, 0, heads)
                    for c in range(width):
                        muladd(dquery, c * heads, s, 0, keys, at + c * heads, heads)
                        muladd(dkeys, at + c * heads, s, 0, query, c * heads, heads)
                        muladd(dvalues, at + c * heads, w, 0, dy, c * heads, heads)
                for h in range(heads):
                    for c in range(width):
                        dx[3 * i * dim + h * width + c] = dquery[c * heads + h] * scale
                start += n
            for j in range(n):
                for h in range(heads):
                    for c in range(width):
                        at, t = (3 * (first + j) + 1) * dim + h * width + c, j * dim + c * heads + h
                        dx[at] = dkeys[t] / log2e + two * key_scale * sums[j * heads + h] * keys[t]
                        dx[at + dim] = dvalues[t]

    return SimpleNamespace(forward=forward, backward=backward)
