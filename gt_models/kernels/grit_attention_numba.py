"""GRIT's attention on the CPU, a query at a time: of a pair, Ew, Eb, e and a weight a head are stored, and nothing else of its width.

The definition stores a dozen tensors of that size, and reads and writes all of memory for each.
"""

from functools import cache
from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gt_models.batch import GraphBatch
from gt_models.kernels.compiled import compiled, hash32, inner, local, real, run
from gt_models.kernels.dropout_numba import draws, is_kept


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
    """For `heads` heads of `width` channels. A unit of both kernels is a graph."""
    number, dim = real(dtype), heads * width
    zero, half, tiny = number(0), number(0.5), number(torch.finfo(dtype).tiny)

    @inner
    def spread(by_head, out):
        """A number of each head to all its channels."""
        for h in range(heads):
            for c in range(width):
                out[h * width + c] = by_head[h]

    @inner
    def sums(values, out):
        """The sum of each head's channels."""
        for h in range(heads):
            out[h] = zero
            for c in range(width):
                out[h] += values[h * width + c]

    @compiled
    def forward(begin, end, graphs, clamp, seed, limit, scale, q, k, v, pair, logit, out, e, weights):
        """out [N, H, 2, width], e [P, H, width], weights [P, H] before dropout."""
        hashed = hash32(seed)
        q, k, v = q.reshape(-1, dim), k.reshape(-1, dim), v.reshape(-1, dim)
        pair, u, e = pair.reshape(-1, 2 * dim), logit.reshape(dim), e.reshape(-1, dim)
        query, value, row = local(number, dim), local(number, dim), local(number, dim)
        peak, total, by_head, wide = local(number, heads), local(number, heads), local(number, heads), local(number, dim)
        for g in range(begin, end):
            node, n, pairs = graphs[g]
            for i in range(node, node + n):
                start = pairs + (i - node) * n
                for c in range(dim):
                    query[c], value[c], row[c] = q[i, c], zero, zero
                for h in range(heads):
                    peak[h], total[h] = -number(np.inf), zero
                for j in range(n):
                    p = start + j
                    for c in range(dim):
                        m = (query[c] + k[node + j, c]) * pair[p, c]
                        root = np.sqrt(max(abs(m), tiny))
                        z = (root if m > zero else -root if m < zero else m) + pair[p, dim + c]
                        z = zero if z < zero else z
                        e[p, c], wide[c] = z, z * u[c]
                    sums(wide, by_head)
                    for h in range(heads):
                        s = by_head[h]
                        s = -clamp if s < -clamp else clamp if s > clamp else s
                        weights[p, h] = s
                        peak[h] = peak[h] if s < peak[h] else s
                for j in range(n):
                    for h in range(heads):
                        s = np.exp(weights[start + j, h] - peak[h])
                        weights[start + j, h] = s
                        total[h] += s
                for j in range(n):
                    p = start + j
                    for h in range(heads):
                        weights[p, h] /= total[h]
                        kept = is_kept(hashed, np.uint32(p * heads + h), limit)
                        by_head[h] = weights[p, h] * scale if kept else zero
                    spread(by_head, wide)
                    for c in range(dim):
                        value[c] += wide[c] * v[node + j, c]
                        row[c] += wide[c] * e[p, c]
                for h in range(heads):
                    for c in range(width):
                        out[i, h, 0, c], out[i, h, 1, c] = value[h * width + c], row[h * width + c]

    @compiled
    def backward(begin, end, graphs, clamp, seed, limit, scale, q, k, v, pair, logit, e, weights, grad, grad_e, dq, dk, dv, dpair, dlogit):
        """dq, dk, dv [N, H, width], dpair [P, 2, H, width] and dlogit [B, H, width] from grad [N, H, 2, width] and grad_e [P, H, width]."""
        hashed = hash32(seed)
        q, k, v, dq, dk, dv = (
            q.reshape(-1, dim),
            k.reshape(-1, dim),
            v.reshape(-1, dim),
            dq.reshape(-1, dim),
            dk.reshape(-1, dim),
            dv.reshape(-1, dim),
        )
        pair, dpair, u, e, grad_e = (
            pair.reshape(-1, 2 * dim),
            dpair.reshape(-1, 2 * dim),
            logit.reshape(dim),
            e.reshape(-1, dim),
            grad_e.reshape(-1, dim),
        )
        query, by_query, by_logit, dvalue, drow = (
            local(number, dim),
            local(number, dim),
            local(number, dim),
            local(number, dim),
            local(number, dim),
        )
        a, b, wide, slope = local(number, dim), local(number, dim), local(number, dim), local(number, dim)
        mean, by_head, score = local(number, heads), local(number, heads), local(number, heads)
        for g in range(begin, end):
            node, n, pairs = graphs[g]
            for c in range(dim):
                by_logit[c] = zero
            for j in range(node, node + n):
                for c in range(dim):
                    dk[j, c], dv[j, c] = zero, zero
            dweight = np.empty((n, heads), number)
            for i in range(node, node + n):
                start = pairs + (i - node) * n
                for h in range(heads):
                    mean[h] = zero
                    for c in range(width):
                        dvalue[h * width + c], drow[h * width + c] = grad[i, h, 0, c], grad[i, h, 1, c]
                for c in range(dim):
                    query[c], by_query[c] = q[i, c], zero
                for j in range(n):
                    p = start + j
                    for c in range(dim):
                        wide[c] = dvalue[c] * v[node + j, c] + drow[c] * e[p, c]
                    sums(wide, by_head)
                    for h in range(heads):
                        d = by_head[h] * scale if is_kept(hashed, np.uint32(p * heads + h), limit) else zero
                        dweight[j, h] = d
                        mean[h] += weights[p, h] * d
                for j in range(n):
                    p = start + j
                    for c in range(dim):
                        wide[c] = e[p, c] * u[c]
                    sums(wide, score)
                    for h in range(heads):
                        by_head[h] = weights[p, h] * scale if is_kept(hashed, np.uint32(p * heads + h), limit) else zero
                        d = weights[p, h] * (dweight[j, h] - mean[h])
                        score[h] = zero if score[h] < -clamp or score[h] > clamp else d
                    spread(by_head, wide)
                    spread(score, slope)
                    for c in range(dim):
                        z, sum_, w = e[p, c], query[c] + k[node + j, c], pair[p, c]
                        by_logit[c] += slope[c] * z
                        dv[node + j, c] += wide[c] * dvalue[c]
                        d = grad_e[p, c] + wide[c] * drow[c] + slope[c] * u[c]
                        d = zero if z <= zero else d
                        m = abs(sum_ * w)
                        a[c] = d
                        b[c] = zero if m < tiny else d * half / np.sqrt(m)
                    for c in range(dim):
                        dpair[p, dim + c] = a[c]
                        dpair[p, c] = b[c] * (query[c] + k[node + j, c])
                        b[c] *= pair[p, c]
                        by_query[c] += b[c]
                        dk[node + j, c] += b[c]
                for c in range(dim):
                    dq[i, c] = by_query[c]
            for h in range(heads):
                for c in range(width):
                    dlogit[g, h, c] = by_logit[h * width + c]

    return SimpleNamespace(forward=forward, backward=backward)
