"""Packed attention on the CPU: no padding and no copies into groups.

Weights exist for LANES queries of one head of one graph at a time.

The lanes of vectors are queries: their states lie as [channel, lane], scores and weights as [key, lane]. `_product`
keeps its sums in registers. Backward forms the weights again from the largest score and the inverse sum of each row
(Dao et al. 2022, "FlashAttention", Section 3). A head of a graph has one writer: no bit depends on the number of
threads or on other graphs.
"""

import math
from functools import cache
from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor

from gt_models.kernels.compiled import compiled, hash32, inner, move, powers, real, run
from gt_models.kernels.dropout_numba import draws
from gt_models.kernels.once_differentiable import once_differentiable
from gt_models.kernels.vectors import copy, local, mul, muladd, softmax
from gt_models.layers.dropout_hash import GOLDEN

LANES, ROWS = 16, 8  # a block of a product
AREA = LANES * ROWS


class _PackedAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, query, tokens, packing, num_heads, dropout, seed) -> Tensor:
        q, kv, sizes = _states(query, tokens, packing.ptr, num_heads)
        out = tokens.new_empty(len(tokens if query is None else query), num_heads * sizes[1])
        stats = tokens.new_empty(len(out), num_heads, 2)
        ctx.units, ctx.num_heads = (len(packing.ptr) - 1) * num_heads, num_heads
        ctx.dropping = draws(seed, dropout, tokens.dtype)
        run(
            _kernels(tokens.dtype).forward, ctx.units, q, kv, packing.ptr, *sizes, *ctx.dropping, out.view(-1), stats,
            grain=num_heads,
        )  # fmt: skip
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
        run(
            _kernels(q.dtype).backward, ctx.units, q, kv, ptr, *sizes, *ctx.dropping, stats, *gradients,
            grain=ctx.num_heads,
        )  # fmt: skip
        return dquery, dtokens, None, None, None, None


packed_attention = _PackedAttention.apply


def _states(
    query: Tensor | None, tokens: Tensor, ptr: Tensor, num_heads: int
) -> tuple[Tensor, Tensor, tuple[int, int, int]]:
    """Queries and tokens, flat; heads, channels of a head, and parts of a token: (query,) key, value."""
    parts = 3 if query is None else 2
    kv = tokens.contiguous().view(-1)
    return (
        kv if query is None else query.contiguous().view(-1),
        kv,
        (num_heads, tokens.size(1) // (parts * num_heads), parts),
    )


@inner
def _block(x, at, by_row, by_term, terms, b, out, to, add, rows, area):
    """`rows` rows of a product, area = rows LANES."""
    sums = local(x.dtype, area)
    if add:
        copy(sums, 0, out, to, area)
    else:
        copy(sums, 0, x.dtype.type(0), area)
    for t in range(terms):
        for r in range(rows):
            muladd(sums, r * LANES, x[np.uintp(at + r * by_row + t * by_term)], b, t * LANES, LANES)
    copy(out, to, sums, 0, area)


@inner
def _product(x, by_row, by_term, rows, terms, b, out, add):
    """out[r, lane] = or += the sum over t of x[r by_row + t by_term] b[t, lane]."""
    whole = rows - rows % ROWS
    for r in range(0, whole, ROWS):
        _block(x, r * by_row, by_row, by_term, terms, b, out, r * LANES, add, ROWS, AREA)
    for r in range(whole, rows):
        _block(x, r * by_row, by_row, by_term, terms, b, out, r * LANES, add, 1, LANES)


@inner
def _drop(x, n, first, heads, head, seed, limit, factor, drawn):
    """Entries [key, lane] of dropped weights become 0, the others are scaled; none where the limit is 0."""
    if limit == 0:
        return
    for r in range(LANES):
        drawn[r] = hash32(np.uint32((first + r) * heads + head) ^ seed)
    for t in range(LANES, n * LANES):
        drawn[t] = drawn[t - LANES] + np.uint32(GOLDEN)
    for t in range(n * LANES):
        x[t] *= factor if hash32(drawn[t]) >= limit else factor - factor


@inner
def _of_unit(unit, heads, d, ptr, parts):
    """Head, keys, first query, queries, and where the head's keys begin in kv."""
    graph, h, dim = unit // heads, unit % heads, heads * d
    first, n = ptr[graph], ptr[graph + 1] - ptr[graph]
    first_query, num_queries = (first, n) if parts == 3 else (graph, 1)
    return h, n, first_query, num_queries, (first * parts + parts - 2) * dim + h * d


@cache
def _kernels(dtype: torch.dtype) -> SimpleNamespace:
    """A unit of both kernels is a head of a graph: `_of_unit` finds its tokens and queries."""
    number = real(dtype)
    zero, one, log2e = number(0), number(1), number(np.log2(np.e))

    @compiled
    def forward(begin, end, q, kv, ptr, heads, d, parts, seed, limit, factor, out, stats):
        """`out` [M, H d], flat, and of each row the largest score (in base 2) and the inverse sum [M, H, 2]."""
        room = ptr[min(begin // heads + 1, len(ptr) - 1)] - ptr[begin // heads]  # keys of the first graph, the longest
        dim, scale = heads * d, number(1 / math.sqrt(d)) * log2e
        token, row = parts * dim, parts * dim if parts == 3 else dim
        keys, values = np.empty(room * d, number), np.empty(room * d, number)
        query, read_out, scores = (
            np.zeros(d * LANES, number),
            np.empty(d * LANES, number),
            np.empty(room * LANES, number),
        )
        drawn, peak, inverse = np.empty(room * LANES, np.uint32), local(number, LANES), local(number, LANES)
        for unit in range(begin, end):
            h, n, q0, m, key = _of_unit(unit, heads, d, ptr, parts)
            move(kv, key, token, 1, n, d, one, keys, 0, d, 1)
            move(kv, key + dim, token, 1, n, d, one, values, 0, d, 1)
            for first in range(q0, q0 + m, LANES):
                count = min(LANES, q0 + m - first)
                move(q, first * row + h * d, row, 1, count, d, scale, query, 0, 1, LANES)
                _product(keys, d, 1, n, d, query, scores, False)
                softmax(scores, n, peak, inverse, LANES)
                _drop(scores, n, first, heads, h, seed, limit, factor, drawn)
                _product(values, 1, d, d, n, scores, read_out, False)
                for c in range(d):
                    mul(read_out, c * LANES, read_out, c * LANES, inverse, 0, LANES)
                for r in range(count):
                    stats[first + r, h, 0], stats[first + r, h, 1] = peak[r], inverse[r]
                move(read_out, 0, 1, LANES, count, d, one, out, first * dim + h * d, dim, 1)

    @compiled
    def backward(begin, end, q, kv, ptr, heads, d, parts, seed, limit, factor, stats, grad, dq, dkv):
        """Gradients of queries, keys and values from that of the result, [M, H d], flat.

        Sums over queries lie as [block of LANES channels, token, channel], and what they are of as [block, lane,
        channel]. Lanes without a query hold anything: nothing reads them.
        """
        room, dim = ptr[min(begin // heads + 1, len(ptr) - 1)] - ptr[begin // heads], heads * d
        root, padded = number(1 / math.sqrt(d)), -(-d // LANES) * LANES
        token, row = parts * dim, parts * dim if parts == 3 else dim
        keys, values, dquery = np.empty(room * d, number), np.empty(room * d, number), np.empty(d * LANES, number)
        query, of_grad = np.zeros(d * LANES, number), np.zeros(d * LANES, number)
        query_rows, grad_rows = np.zeros(padded * LANES, number), np.zeros(padded * LANES, number)
        dkeys, dvalues = np.empty(room * padded, number), np.empty(room * padded, number)
        scores, slopes, drawn = (
            np.empty(room * LANES, number),
            np.empty(room * LANES, number),
            np.empty(room * LANES, np.uint32),
        )
        peak, inverse, mean = local(number, LANES), local(number, LANES), local(number, LANES)
        for unit in range(begin, end):
            h, n, q0, m, key = _of_unit(unit, heads, d, ptr, parts)
            move(kv, key, token, 1, n, d, one, keys, 0, d, 1)
            move(kv, key + dim, token, 1, n, d, one, values, 0, d, 1)
            dkeys[: n * padded], dvalues[: n * padded] = zero, zero
            for first in range(q0, q0 + m, LANES):
                count = min(LANES, q0 + m - first)
                move(q, first * row + h * d, row, 1, count, d, root * log2e, query, 0, 1, LANES)
                move(grad, first * dim + h * d, dim, 1, count, d, one, of_grad, 0, 1, LANES)
                for c in range(0, d, LANES):
                    move(
                        q, first * row + h * d + c, row, 1, count, min(LANES, d - c), root, query_rows, c * LANES,
                        LANES, 1,
                    )  # fmt: skip
                    move(
                        grad, first * dim + h * d + c, dim, 1, count, min(LANES, d - c), one, grad_rows, c * LANES,
                        LANES, 1,
                    )  # fmt: skip
                _product(keys, d, 1, n, d, query, scores, False)
                _product(values, d, 1, n, d, of_grad, slopes, False)
                copy(mean, 0, zero, LANES)
                for r in range(count):
                    peak[r], inverse[r] = stats[first + r, h, 0], stats[first + r, h, 1]
                for j in range(n):
                    muladd(scores, j * LANES, -one, peak, 0, LANES)
                powers(scores[: n * LANES])
                _drop(slopes, n, first, heads, h, seed, limit, factor, drawn)
                for j in range(n):
                    mul(scores, j * LANES, scores, j * LANES, inverse, 0, LANES)
                    muladd(mean, 0, scores, j * LANES, slopes, j * LANES, LANES)
                for j in range(n):  # a (da - sum of a da)
                    muladd(slopes, j * LANES, -one, mean, 0, LANES)
                    mul(slopes, j * LANES, slopes, j * LANES, scores, j * LANES, LANES)
                _drop(scores, n, first, heads, h, seed, limit, factor, drawn)
                _product(keys, 1, d, d, n, slopes, dquery, False)
                move(dquery, 0, 1, LANES, count, d, root, dq, first * row + h * d, row, 1)
                for c in range(0, d, LANES):
                    _product(slopes, LANES, 1, n, count, query_rows[c * LANES :], dkeys[c * n :], True)
                    _product(scores, LANES, 1, n, count, grad_rows[c * LANES :], dvalues[c * n :], True)
            for c in range(0, d, LANES):
                move(dkeys, c * n, LANES, 1, n, min(LANES, d - c), one, dkv, key + c, token, 1)
                move(dvalues, c * n, LANES, 1, n, min(LANES, d - c), one, dkv, key + dim + c, token, 1)

    return SimpleNamespace(forward=forward, backward=backward)
