"""GRIT's attention on the CPU, one query at a time.

Of each pair only Ew, Eb, e and one weight per head are stored.

The definition stores a dozen tensors of that size, and reads and writes all of memory for each.
"""

from functools import cache
from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor

from gt_models.batch import GraphBatch
from gt_models.kernels.compiled import compiled, dot, hash32, powers, real, run
from gt_models.kernels.dropout_numba import draws, factors
from gt_models.kernels.once_differentiable import once_differentiable
from gt_models.kernels.vectors import copy, local, muladd


class _GRITAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, pair, logit, batch: GraphBatch, clamp, dropout, seed) -> tuple[Tensor, Tensor]:
        tensors = [t.contiguous() for t in (q, k, v, pair, logit)]
        out, e = q.new_empty(q.size(0), q.size(1), 2, q.size(2)), q.new_empty(pair.size(0), *q.shape[1:])
        weights = q.new_empty(pair.size(0), q.size(1))
        graphs = torch.stack([batch.ptr[:-1], batch.sizes, batch.pair_ptr[:-1]], 1)
        settings = (graphs, real(q.dtype)(clamp), *draws(seed, dropout, q.dtype))
        run(_kernels(q.dtype, *q.shape[1:]).forward, len(graphs), *settings, *tensors, out, e, weights)
        ctx.save_for_backward(*tensors, e, weights)
        ctx.settings = settings
        return out, e

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor, grad_e: Tensor):
        q, k, v, pair, logit, e, weights = ctx.saved_tensors
        dq, dk, dv, dpair = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v), torch.empty_like(pair)
        graphs, *rest = ctx.settings
        dlogit = logit.new_empty(len(graphs), *logit.shape)
        given = (q, k, v, pair, logit, e, weights, grad.contiguous(), grad_e.contiguous())
        run(_kernels(q.dtype, *q.shape[1:]).backward, len(graphs), graphs, *rest, *given, dq, dk, dv, dpair, dlogit)
        return dq, dk, dv, dpair, dlogit.sum(0), None, None, None, None


grit_attention = _GRITAttention.apply


@cache
def _kernels(dtype: torch.dtype, heads: int, width: int) -> SimpleNamespace:
    """For `heads` heads of `width` channels. A unit of both kernels is a graph.

    What is of a pair and a head stands for all keys of a query in a row, so that powers and hashes are of whole
    vectors.
    """
    number, dim = real(dtype), heads * width
    zero, half, one, tiny, log2e = (
        number(0),
        number(0.5),
        number(1),
        number(torch.finfo(dtype).tiny),
        number(np.log2(np.e)),
    )

    @compiled
    def forward(begin, end, graphs, clamp, seed, limit, scale, q, k, v, pair, logit, out, e, weights):
        """`out` [N, H, 2, width], e [P, H, width], weights [P, H] before dropout."""
        hashed = hash32(seed)
        q, k, pair, u = q.reshape(-1, dim), k.reshape(-1, dim), pair.reshape(-1, 2 * dim), logit.reshape(dim)
        e, v, e_flat, weights = e.reshape(-1, dim), v.reshape(-1), e.reshape(-1), weights.reshape(-1, heads)
        query, value, row, z = local(number, dim), local(number, dim), local(number, dim), local(number, dim)
        peak, total = local(number, heads), local(number, heads)
        for g in range(begin, end):
            node, n, pairs = graphs[g]
            factor = np.empty((n, heads), number)
            flat, factors_flat = weights[pairs : pairs + n * n].reshape(-1), factor.reshape(-1)
            for i in range(node, node + n):
                start = pairs + (i - node) * n
                weight = weights[start : start + n]
                for c in range(dim):
                    query[c], value[c], row[c] = q[i, c], zero, zero
                for h in range(heads):
                    peak[h], total[h] = -number(np.inf), zero
                for j in range(n):
                    p = start + j
                    for c in range(dim):
                        m = (query[c] + k[node + j, c]) * pair[p, c]
                        root = np.sqrt(max(abs(m), tiny))
                        x = (root if m > zero else -root if m < zero else m) + pair[p, dim + c]
                        z[c] = zero if x < zero else x
                    for c in range(dim):
                        e[p, c] = z[c]
                    for h in range(heads):
                        s = dot(z, h * width, u, h * width, width)
                        s = -clamp if s < -clamp else clamp if s > clamp else s
                        weight[j, h] = s
                        peak[h] = peak[h] if s < peak[h] else s
                for j in range(n):
                    for h in range(heads):
                        weight[j, h] = (weight[j, h] - peak[h]) * log2e
                powers(flat[(i - node) * n * heads : (i - node + 1) * n * heads])
                for j in range(n):
                    for h in range(heads):
                        total[h] += weight[j, h]
                factors(hashed, start * heads, limit, scale, factors_flat)
                for j in range(n):
                    for h in range(heads):
                        at = h * width
                        w = weight[j, h] / total[h]
                        weight[j, h] = w
                        w *= factor[j, h]
                        muladd(value, at, w, v, (node + j) * dim + at, width)
                        muladd(row, at, w, e_flat, (start + j) * dim + at, width)
                for h in range(heads):
                    for c in range(width):
                        out[i, h, 0, c], out[i, h, 1, c] = value[h * width + c], row[h * width + c]

    @compiled
    def backward(
        begin, end, graphs, clamp, seed, limit, scale, q, k, v, pair, logit, e, weights, grad, grad_e, dq, dk, dv,
        dpair, dlogit,
    ):  # fmt: skip
        """Gradients dq, dk, dv [N, H, width], dpair [P, 2, H, width] and dlogit [B, H, width].

        They follow from grad [N, H, 2, width] and grad_e [P, H, width].
        """
        hashed = hash32(seed)
        q, k, dq, pair, dpair = (
            q.reshape(-1, dim),
            k.reshape(-1, dim),
            dq.reshape(-1, dim),
            pair.reshape(-1, 2 * dim),
            dpair.reshape(-1, 2 * dim),
        )
        e, grad_e, e_flat, weights = (
            e.reshape(-1, dim),
            grad_e.reshape(-1, dim),
            e.reshape(-1),
            weights.reshape(-1, heads),
        )
        v, dk, dv, u = v.reshape(-1), dk.reshape(-1), dv.reshape(-1), logit.reshape(dim)
        query, by_query, by_logit = local(number, dim), local(number, dim), local(number, dim)
        dvalue, drow, wide, slope = local(number, dim), local(number, dim), local(number, dim), local(number, dim)
        dew, deb, dsum, mean = local(number, dim), local(number, dim), local(number, dim), local(number, heads)
        for g in range(begin, end):
            node, n, pairs = graphs[g]
            for c in range(dim):
                by_logit[c] = zero
            for t in range(node * dim, (node + n) * dim):
                dk[t], dv[t] = zero, zero
            factor, score = np.empty((n, heads), number), np.empty((n, heads), number)
            factors_flat = factor.reshape(-1)
            for i in range(node, node + n):
                start = pairs + (i - node) * n
                weight = weights[start : start + n]
                factors(hashed, start * heads, limit, scale, factors_flat)
                for h in range(heads):
                    mean[h] = zero
                    for c in range(width):
                        dvalue[h * width + c], drow[h * width + c] = grad[i, h, 0, c], grad[i, h, 1, c]
                for c in range(dim):
                    query[c], by_query[c] = q[i, c], zero
                for j in range(n):
                    for h in range(heads):
                        at = h * width
                        d = dot(dvalue, at, v, (node + j) * dim + at, width) + dot(
                            drow, at, e_flat, (start + j) * dim + at, width
                        )
                        d = d * scale if factor[j, h] != zero else zero
                        score[j, h] = d
                        mean[h] += weight[j, h] * d
                for j in range(n):
                    p = start + j
                    for h in range(heads):
                        at = h * width
                        s = dot(e_flat, p * dim + at, u, at, width)
                        d = weight[j, h] * (score[j, h] - mean[h])
                        d = zero if s < -clamp or s > clamp else d
                        w = weight[j, h] * factor[j, h]
                        copy(wide, at, w, width)
                        copy(slope, at, d, width)
                        muladd(dv, (node + j) * dim + at, w, dvalue, at, width)
                        muladd(by_logit, at, d, e_flat, p * dim + at, width)
                    for c in range(dim):
                        sum_, w = query[c] + k[node + j, c], pair[p, c]
                        d = grad_e[p, c] + wide[c] * drow[c] + slope[c] * u[c]
                        d = zero if e[p, c] <= zero else d
                        m = abs(sum_ * w)
                        inside = zero if m < tiny else d * half / np.sqrt(m)  # of the root
                        deb[c], dew[c], dsum[c] = d, inside * sum_, inside * w
                        by_query[c] += inside * w
                    for c in range(dim):
                        dpair[p, c], dpair[p, dim + c] = dew[c], deb[c]
                    muladd(dk, (node + j) * dim, one, dsum, 0, dim)
                for c in range(dim):
                    dq[i, c] = by_query[c]
            for h in range(heads):
                for c in range(width):
                    dlogit[g, h, c] = by_logit[h * width + c]

    return SimpleNamespace(forward=forward, backward=backward)
