"""Packed attention on the CPU: no padding and no copies into groups; weights exist for LANES queries of one head of one graph at a time.

The lanes of vectors are queries: their states lie as [channel, lane], scores and weights as [key, lane]. `product` keeps its sums in registers.
Backward forms the weights again from the largest score and the inverse sum of each row (Dao et al. 2022, "FlashAttention", Section 3). A head of
a graph has one writer: no bit depends on the number of threads or on other graphs.
"""

import math
from collections.abc import Callable
from functools import cache
from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gt_models.kernels.compiled import axpy, compiled, fill, hash32, inner, largest, local, muladd, powers, real, run, scaled, times
from gt_models.kernels.dropout import GOLDEN

LANES, ROWS = 16, 8  # a block of a product
uintp = np.uintp  # indices without a sign: Numba lets negative ones count from the end


class _PackedAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, query, tokens, packing, num_heads, dropout, seed) -> Tensor:
        q, kv, sizes = _states(query, tokens, packing.ptr, num_heads)
        out = tokens.new_empty(len(tokens if query is None else query), num_heads * sizes[1])
        stats = tokens.new_empty(len(out), num_heads, 2)
        ctx.units, ctx.num_heads = (len(packing.ptr) - 1) * num_heads, num_heads
        ctx.dropping = np.uint32(int(seed)), np.uint32(int(dropout * 2**32)), real(tokens.dtype)(1 / (1 - dropout))
        run(_kernels(tokens.dtype).forward, ctx.units, q, kv, packing.ptr, *sizes, *ctx.dropping, out.view(-1), stats, grain=num_heads)
        ctx.save_for_backward(query, tokens, packing.ptr, stats)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        query, tokens, ptr, stats = ctx.saved_tensors
        q, kv, sizes = _states(query, tokens, ptr, ctx.num_heads)
        dtokens = torch.empty_like(tokens, memory_format=torch.contiguous_format)
        dquery = None if query is None else torch.empty_like(query, memory_format=torch.contiguous_format)
        gradients = grad.contiguous().view(-1), (dtokens if dquery is None else dquery).view(-1), dtokens.view(-1)
        run(_kernels(q.dtype).backward, ctx.units, q, kv, ptr, *sizes, *ctx.dropping, stats, *gradients, grain=ctx.num_heads)
        return dquery, dtokens, None, None, None, None


packed_attention = _PackedAttention.apply


def _states(query: Tensor | None, tokens: Tensor, ptr: Tensor, num_heads: int) -> tuple[Tensor, Tensor, tuple[int, int, int]]:
    """Queries and tokens, flat; heads, channels of a head, and parts of a token: (query,) key, value."""
    parts = 3 if query is None else 2
    kv = tokens.contiguous().view(-1)
    return kv if query is None else query.contiguous().view(-1), kv, (num_heads, tokens.size(1) // (parts * num_heads), parts)


@cache
def _kernels(dtype: torch.dtype) -> SimpleNamespace:
    number, raise_two = real(dtype), powers(dtype)
    zero, one, infinity, log2e = number(0), number(1), number(float("inf")), number(1 / math.log(2))

    def block_of(count: int) -> Callable[..., None]:
        area = count * LANES

        @inner
        def block(x, at, by_row, by_term, terms, b, out, to, add):
            sums = local(number, area)
            if add:
                scaled(sums, 0, one, out, to, area)
            else:
                fill(sums, 0, zero, sums, 0, area)
            for t in range(terms):
                for r in range(count):
                    axpy(sums, r * LANES, x[uintp(at + r * by_row + t * by_term)], b, t * LANES, LANES)
            scaled(out, to, one, sums, 0, area)

        return block

    block_of_rows, block_of_row = block_of(ROWS), block_of(1)

    @inner
    def product(x, by_row, by_term, rows, terms, b, out, add):
        """out[r, lane] = or += the sum over t of x[r by_row + t by_term] b[t, lane]."""
        whole = rows - rows % ROWS
        for r in range(0, whole, ROWS):
            block_of_rows(x, r * by_row, by_row, by_term, terms, b, out, r * LANES, add)
        for r in range(whole, rows):
            block_of_row(x, r * by_row, by_row, by_term, terms, b, out, r * LANES, add)

    @inner
    def read(source, first, stride, count, d, out):
        """The channels of a head of `count` rows, [row, channel]."""
        for r in range(count):
            for c in range(d):
                out[r * d + c] = source[uintp(first + r * stride + c)]

    @inner
    def read_lanes(source, first, stride, count, d, factor, out):
        """The same times `factor` as [channel, lane]; 0 in lanes without a row."""
        for c in range(d):
            for r in range(LANES):
                out[c * LANES + r] = source[uintp(first + r * stride + c)] * factor if r < count else zero

    @inner
    def write_lanes(x, count, d, factor, target, first, stride):
        """What lies as [channel, lane], times `factor`, into the channels of a head of `count` rows."""
        for r in range(count):
            for c in range(d):
                target[uintp(first + r * stride + c)] = x[c * LANES + r] * factor

    @inner
    def read_blocks(source, first, stride, count, d, factor, out):
        """The same times `factor` as [block of channels, lane, channel]."""
        for r in range(count):
            for c in range(d):
                out[(c // LANES * LANES + r) * LANES + c % LANES] = source[uintp(first + r * stride + c)] * factor

    @inner
    def write_blocks(x, n, d, target, first, stride):
        """What lies as [block of channels, row, channel] into the channels of a head of n rows."""
        for r in range(n):
            for c in range(d):
                target[uintp(first + r * stride + c)] = x[(c // LANES * n + r) * LANES + c % LANES]

    @inner
    def drop(x, n, first, heads, head, seed, limit, factor, drawn):
        """Entries [key, lane] of dropped weights become 0, the others are scaled."""
        for r in range(LANES):
            drawn[r] = hash32(np.uint32((first + r) * heads + head) ^ seed)
        for t in range(LANES, n * LANES):
            drawn[t] = drawn[t - LANES] + np.uint32(GOLDEN)
        for t in range(n * LANES):
            x[t] *= factor if hash32(drawn[t]) >= limit else zero

    @inner
    def longest(begin, end, heads, ptr):
        """Keys of the longest graph."""
        keys = 0
        for graph in range(begin // heads, -(-end // heads)):
            keys = max(keys, ptr[graph + 1] - ptr[graph])
        return keys

    @compiled
    def forward(begin, end, q, kv, ptr, heads, d, parts, seed, limit, factor, out, stats):
        """out [M, H d], flat, and of each row the largest score (in base 2) and the inverse sum [M, H, 2]; units are heads of graphs."""
        room, dim, scale = longest(begin, end, heads, ptr), heads * d, number(1 / math.sqrt(d)) * log2e
        token = parts * dim
        row = token if parts == 3 else dim
        keys, values = np.empty(room * d, number), np.empty(room * d, number)
        query, read_out = np.empty(d * LANES, number), np.empty(d * LANES, number)
        scores, drawn = np.empty(room * LANES, number), np.empty(max(room, 1) * LANES, np.uint32)
        peak, total = local(number, LANES), local(number, LANES)
        for unit in range(begin, end):
            graph, h = unit // heads, unit % heads
            k0, n = ptr[graph], ptr[graph + 1] - ptr[graph]
            q0, m = (k0, n) if parts == 3 else (graph, 1)
            weights = scores[: n * LANES]
            read(kv, k0 * token + (parts - 2) * dim + h * d, token, n, d, keys)
            read(kv, k0 * token + (parts - 1) * dim + h * d, token, n, d, values)
            for first in range(q0, q0 + m, LANES):
                count = min(LANES, q0 + m - first)
                read_lanes(q, first * row + h * d, row, count, d, scale, query)
                product(keys, d, 1, n, d, query, scores, False)
                fill(peak, 0, -infinity, peak, 0, LANES)
                fill(total, 0, zero, total, 0, LANES)
                for j in range(n):
                    largest(peak, 0, one, scores, j * LANES, LANES)
                for j in range(n):
                    axpy(scores, j * LANES, -one, peak, 0, LANES)
                raise_two(weights)
                for j in range(n):
                    axpy(total, 0, one, scores, j * LANES, LANES)
                if limit > 0:
                    drop(weights, n, first, heads, h, seed, limit, factor, drawn)
                product(values, 1, d, d, n, scores, read_out, False)
                for r in range(LANES):
                    total[r] = one / total[r]
                for c in range(d):
                    times(read_out, c * LANES, one, total, 0, LANES)
                for r in range(count):
                    stats[first + r, h, 0], stats[first + r, h, 1] = peak[r], total[r]
                write_lanes(read_out, count, d, one, out, first * dim + h * d, dim)

    @compiled
    def backward(begin, end, q, kv, ptr, heads, d, parts, seed, limit, factor, stats, grad, dq, dkv):
        """Gradients of queries, keys and values from that of the result, [M, H d], flat."""
        room, dim, root, blocks = longest(begin, end, heads, ptr), heads * d, number(1 / math.sqrt(d)), -(-d // LANES)
        token = parts * dim
        row = token if parts == 3 else dim
        keys, values = np.empty(room * d, number), np.empty(room * d, number)
        dkeys, dvalues = np.empty(blocks * room * LANES, number), np.empty(blocks * room * LANES, number)
        query, of_grad, dquery = np.empty(d * LANES, number), np.empty(d * LANES, number), np.empty(d * LANES, number)
        query_rows, grad_rows = np.zeros(blocks * LANES * LANES, number), np.zeros(blocks * LANES * LANES, number)
        scores, slopes, drawn = np.empty(room * LANES, number), np.empty(room * LANES, number), np.empty(max(room, 1) * LANES, np.uint32)
        peak, inverse, mean = local(number, LANES), local(number, LANES), local(number, LANES)
        for unit in range(begin, end):
            graph, h = unit // heads, unit % heads
            k0, n = ptr[graph], ptr[graph + 1] - ptr[graph]
            q0, m = (k0, n) if parts == 3 else (graph, 1)
            weights = scores[: n * LANES]
            key, value = k0 * token + (parts - 2) * dim + h * d, k0 * token + (parts - 1) * dim + h * d
            read(kv, key, token, n, d, keys)
            read(kv, value, token, n, d, values)
            dkeys[: blocks * n * LANES], dvalues[: blocks * n * LANES] = zero, zero
            for first in range(q0, q0 + m, LANES):
                count = min(LANES, q0 + m - first)
                read_lanes(q, first * row + h * d, row, count, d, root * log2e, query)
                read_blocks(q, first * row + h * d, row, count, d, root, query_rows)
                read_lanes(grad, first * dim + h * d, dim, count, d, one, of_grad)
                read_blocks(grad, first * dim + h * d, dim, count, d, one, grad_rows)
                product(keys, d, 1, n, d, query, scores, False)
                product(values, d, 1, n, d, of_grad, slopes, False)
                for r in range(LANES):  # weights of lanes without a query are 0
                    peak[r], inverse[r], mean[r] = (
                        (stats[first + r, h, 0], stats[first + r, h, 1], zero) if r < count else (zero, zero, zero)
                    )
                for j in range(n):
                    axpy(scores, j * LANES, -one, peak, 0, LANES)
                raise_two(weights)
                if limit > 0:
                    drop(slopes, n, first, heads, h, seed, limit, factor, drawn)
                for j in range(n):
                    times(scores, j * LANES, one, inverse, 0, LANES)
                    muladd(mean, 0, scores, j * LANES, slopes, j * LANES, LANES)
                for j in range(n):  # a (da - sum of a da)
                    axpy(slopes, j * LANES, -one, mean, 0, LANES)
                    times(slopes, j * LANES, one, scores, j * LANES, LANES)
                if limit > 0:
                    drop(weights, n, first, heads, h, seed, limit, factor, drawn)
                product(keys, 1, d, d, n, slopes, dquery, False)
                write_lanes(dquery, count, d, root, dq, first * row + h * d, row)
                for block in range(blocks):
                    rows, keys_of = block * LANES * LANES, block * n * LANES
                    product(slopes, LANES, 1, n, count, query_rows[rows:], dkeys[keys_of:], True)
                    product(scores, LANES, 1, n, count, grad_rows[rows:], dvalues[keys_of:], True)
            write_blocks(dkeys, n, d, dkv, key, token)
            write_blocks(dvalues, n, d, dkv, value, token)

    return SimpleNamespace(forward=forward, backward=backward)
