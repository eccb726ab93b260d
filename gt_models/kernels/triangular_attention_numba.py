"""Triangular attention on the CPU: no value per triple of nodes is stored.

Columns j go LANES at a time, packed as [.., channel, j], so that the innermost loops run along j and become vectors. The softmax over l keeps
its maximum and inverse sum for each pair. The backward pass forms each weight again and is split by middle nodes l: all gradients of the
pairs (i, l) and (l, j) have one writer. Graphs are worked on to their own sizes, without padding but that of the last LANES columns.
"""

# mypy: disable-error-code="has-type, misc"

import math
from functools import cache, lru_cache
from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gt_models.kernels.compiled import compiled, exp2, hash32, inner, local, real, run_parts

LANES = 16  # columns j, or rows i, side by side
GROUP = 2  # times LANES columns of a task, forward
ROWS = 4  # rows i that share one reading of the keys, forward
PATHS = 16  # middle nodes of a task, backward
LOG2E = 1.4426950408889634


class _TriangularAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, batch, seed, dropout, fusion_norm=None) -> Tensor:
        x = x.contiguous()
        out = x.new_empty(x.size(0), x.size(2), x.size(3))
        groups, bounds, rows = _tasks(batch.sizes, x.size(2), GROUP * LANES)
        stats = x.new_empty(rows, 2, LANES)
        ctx.numbers = np.uint32(int(seed)), np.uint32(int(dropout * 2**32)), real(x.dtype)(1 / (1 - dropout))
        run_parts(_kernels(x.dtype, x.size(3)).forward, bounds, x, groups, *ctx.numbers, out, stats)
        ctx.save_for_backward(x, out, stats, batch.sizes)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        x, out, stats, sizes = ctx.saved_tensors
        kernels = _kernels(x.dtype, x.size(3))
        columns, bounds, rows = _tasks(sizes, x.size(2), LANES)
        of_pairs, along_j, along_i = x.new_empty(rows, 3, LANES), *x.new_empty(2, rows, x.size(3), LANES)
        run_parts(kernels.pack, bounds, grad.contiguous(), out, stats, columns, of_pairs, along_j, along_i)
        paths, bounds, _ = _tasks(sizes, x.size(2), PATHS)
        dx = torch.empty_like(x)
        run_parts(kernels.backward, bounds, x, of_pairs, along_j, along_i, paths, *ctx.numbers, dx)
        return dx, None, None, None, None


triangular_attention = _TriangularAttention.apply


def _tasks(sizes: Tensor, num_heads: int, width: int) -> tuple[np.ndarray, list[int], int]:
    return _plan(tuple(sizes.tolist()), num_heads, width, torch.get_num_threads())


@lru_cache(64)
def _plan(sizes: tuple[int, ...], num_heads: int, width: int, num_threads: int) -> tuple[np.ndarray, list[int], int]:
    """Tasks (first pair, nodes, head, first index, first packed row), `width` indices of one head of one graph each; bounds of shares of
    about equal cost; the number of packed rows, n for each LANES columns of a head."""
    tasks, cost, pair, row = [], [], 0, 0
    for n in sizes:
        for head in range(num_heads):
            tasks += [(pair, n, head, first, row) for first in range(0, n, width)]
            cost += [n * n * min(width, n - first) for first in range(0, n, width)]
            row += n * -(-n // LANES)
        pair += n * n
    num_threads = max(1, min(num_threads, len(tasks)))
    total = np.cumsum([0, *cost])
    shares = np.searchsorted(total, total[-1] * np.arange(1, num_threads) / num_threads).tolist()
    return np.array(tasks, dtype=np.int64).reshape(-1, 5), [0, *shares, len(tasks)], row


@cache
def _kernels(dtype: torch.dtype, d: int) -> SimpleNamespace:
    """For heads of d channels: the innermost loops have a known length. Loops over lanes that do little for each lane are unrolled by LLVM
    before it makes vectors; here they do the work of several rows or channels for each lane. Results go through local arrays: what is on the
    heap may overlap, for LLVM."""
    number, power = real(dtype), exp2(dtype)
    zero, one, lowest = number(0), number(1), number(-float("inf"))
    root, scale = number(1 / math.sqrt(d)), number(LOG2E / math.sqrt(d))
    block = max((c for c in range(4, 9) if d % c == 0), default=d)  # channels whose sums fit into registers
    blocks = d // block
    size, of_block, of_rows = d * LANES, block * LANES, ROWS * LANES
    step = np.uint32(0x9E3779B9)

    @inner
    def stays(row, j, limit):
        """Whether the weight of column j stays, by the hash of its row."""
        return hash32(np.uint32(row + np.uint32(j) * step)) >= limit

    @inner
    def scores(n, tile, q, k, weight, highest):
        """weight[l, r, j] = <Q_rl, K_lj> / sqrt(d) log2(e), and its maximum over l."""
        s, peak = local(number, of_rows), local(number, of_rows)
        for m in range(of_rows):
            peak[m] = lowest
        for l in range(n):
            for j in range(LANES):
                for r in range(ROWS):
                    product = zero
                    for c in range(d):
                        product += q[r, l, c] * k[tile, l, c, j]
                    product *= scale
                    s[r * LANES + j] = product
                    peak[r * LANES + j] = peak[r * LANES + j] if product < peak[r * LANES + j] else product
            for m in range(of_rows):
                weight[l, m] = s[m]
        for m in range(of_rows):
            highest[m] = peak[m]

    @inner
    def powers(n, weight, highest, sums):
        """Scores become powers in place."""
        w, peak, total = local(number, of_rows), local(number, of_rows), local(number, of_rows)
        for m in range(of_rows):
            peak[m], total[m] = highest[m], zero
        for l in range(n):
            for m in range(of_rows):
                w[m] = power(weight[l, m] - peak[m])
                total[m] += w[m]
            for m in range(of_rows):
                weight[l, m] = w[m]
        for m in range(of_rows):
            sums[m] = total[m]

    @inner
    def drop(n, hashes, weight, j0, limit, keep):
        """Weights are dropped in place."""
        factor = local(number, of_rows)
        for l in range(n):
            for j in range(LANES):
                for r in range(ROWS):
                    factor[r * LANES + j] = keep if stays(hashes[r, l], j0 + j, limit) else zero
            for m in range(of_rows):
                weight[l, m] *= factor[m]

    @inner
    def weigh(n, r, tile, b, weight, v1, v2, out):
        """out[s, c, j] = sum over l of weight[l, s, j] V1_sl[c] V2_lj[c], for two rows s, r and r + 1, and a block of channels."""
        first, second = local(number, of_block), local(number, of_block)
        for m in range(of_block):
            first[m] = zero
        for m in range(of_block):
            second[m] = zero
        for l in range(n):
            for j in range(LANES):
                for c in range(block):
                    first[c * LANES + j] += weight[l, r, j] * v1[r, l, b * block + c] * v2[tile, l, b * block + c, j]
                    second[c * LANES + j] += weight[l, r + 1, j] * v1[r + 1, l, b * block + c] * v2[tile, l, b * block + c, j]
        for m in range(of_block):
            out[r, b, m] = first[m]
        for m in range(of_block):
            out[r + 1, b, m] = second[m]

    @inner
    def copy(x, p, kind, h, out, l, i):
        row = local(number, d)
        for c in range(d):
            row[c] = x[p, kind, h, c]
        for c in range(d):
            out[l, i, c] = row[c]

    @compiled
    def forward(begin, end, x, tasks, seed, limit, keep, out, stats):
        """x [P, 4, H, d] -> out [P, H, d] and, packed, the maximum (in base 2) and the inverse sum of each softmax."""
        o, highest, sums = np.empty((ROWS, blocks, of_block), number), np.empty(of_rows, number), np.empty(of_rows, number)
        for t in range(begin, end):
            p0, n, h, first, place = tasks[t]
            tiles = -(-min(GROUP * LANES, n - first) // LANES)
            k, v2 = np.zeros((tiles, n, d, LANES), number), np.zeros((tiles, n, d, LANES), number)
            q, v1 = np.empty((ROWS, n, d), number), np.empty((ROWS, n, d), number)
            weight, hashes = np.empty((n, ROWS, LANES), number), np.empty((ROWS, n), np.uint32)
            flat = weight.reshape(n, of_rows)
            for tile in range(tiles):
                j0 = first + tile * LANES
                for l in range(n):
                    for j in range(min(LANES, n - j0)):
                        for c in range(d):
                            p = p0 + l * n + j0 + j
                            k[tile, l, c, j], v2[tile, l, c, j] = x[p, 1, h, c], x[p, 3, h, c]
            for i in range(0, n, ROWS):
                for r in range(ROWS):
                    for l in range(n):
                        p = p0 + min(i + r, n - 1) * n + l
                        hashes[r, l] = hash32(np.uint32(np.uint32(p * x.shape[2] + h) ^ seed))
                        copy(x, p, 0, h, q, r, l)
                        copy(x, p, 2, h, v1, r, l)
                for tile in range(tiles):
                    j0 = first + tile * LANES
                    scores(n, tile, q, k, flat, highest)
                    powers(n, flat, highest, sums)
                    if limit > 0:
                        drop(n, hashes, flat, j0, limit, keep)
                    for r in range(0, min(ROWS, n - i), 2):
                        for b in range(blocks):
                            weigh(n, r, tile, b, weight, v1, v2, o)
                    for r in range(min(ROWS, n - i)):
                        at = place + j0 // LANES * n + i + r
                        for j in range(LANES):
                            stats[at, 0, j], stats[at, 1, j] = highest[r * LANES + j], one / sums[r * LANES + j]
                        for j in range(min(LANES, n - j0)):
                            for c in range(d):
                                out[p0 + (i + r) * n + j0 + j, h, c] = o[r, c // block, c % block * LANES + j] * stats[at, 1, j]

    @compiled
    def pack(begin, end, grad, out, stats, tasks, of_pairs, along_j, along_i):
        """The gradient with its channels apart: along_j[(tile of j, i), channel, j] and along_i[(tile of i, j), channel, i]; of_pairs has, for
        each (tile of j, i), maximum and inverse sum of the softmax and the sum over l of A dA = <O, dO>."""
        for t in range(begin, end):
            p0, n, h, first, place = tasks[t]
            place += first // LANES * n
            lanes = min(LANES, n - first)
            along_j[place : place + n], along_i[place : place + n], of_pairs[place : place + n] = zero, zero, zero
            for i in range(n):
                for lane in range(lanes):
                    p, p_t, product = p0 + i * n + first + lane, p0 + (first + lane) * n + i, zero
                    for c in range(d):
                        along_j[place + i, c, lane], along_i[place + i, c, lane] = grad[p, h, c], grad[p_t, h, c]
                        product += grad[p, h, c] * out[p, h, c]
                    of_pairs[place + i, 0, lane], of_pairs[place + i, 1, lane] = stats[place + i, 0, lane], stats[place + i, 1, lane]
                    of_pairs[place + i, 2, lane] = product

    @inner
    def through_softmax(l, i0, rows, j0, at, q, v1, k, v2, g, of_pairs, hashes, limit, keep, weight, ds):
        """For one l, some rows i and LANES columns j: dropped weights and the gradients of the scores."""
        of_j, w_row, ds_row = local(number, size), local(number, LANES), local(number, LANES)
        for m in range(size):
            of_j[m] = k[l, m]
        for i in range(rows):
            for j in range(LANES):
                s = zero
                for c in range(d):
                    s += q[l, i0 + i, c] * of_j[c * LANES + j]
                w_row[j] = power(s * scale - of_pairs[at + i, 0, j]) * of_pairs[at + i, 1, j]
            for j in range(LANES):
                weight[0, i, j] = w_row[j]
        for m in range(size):
            of_j[m] = v2[l, m]
        for i in range(rows):
            for j in range(LANES):
                da, w = zero, weight[0, i, j]
                for c in range(d):
                    da += v1[l, i0 + i, c] * (g[at + i, c, j] * of_j[c * LANES + j])
                w_row[j] = w * keep if stays(hashes[l, i0 + i], j0 + j, limit) else zero
                ds_row[j] = (w_row[j] * da - w * of_pairs[at + i, 2, j]) * root
            for j in range(LANES):
                weight[0, i, j] = w_row[j]
            for j in range(LANES):
                ds[0, i, j] = ds_row[j]

    @inner
    def collect(rows, w, weight, ds, l, i0, q, v1, at, g, place, dk, dv2):
        """dK_j += sum over i of dS_ij Q_i and dV2_j += sum over i of A_ij V1_i dO_ij; the same with i and j changed."""
        first, second = local(number, of_block), local(number, of_block)
        for b in range(blocks):
            for m in range(of_block):
                first[m] = dk[place, b, m]
            for m in range(of_block):
                second[m] = dv2[place, b, m]
            for i in range(rows):
                for j in range(LANES):
                    for c in range(block):
                        first[c * LANES + j] += ds[w, i, j] * q[l, i0 + i, b * block + c]
                        second[c * LANES + j] += weight[w, i, j] * v1[l, i0 + i, b * block + c] * g[at + i, b * block + c, j]
            for m in range(of_block):
                dk[place, b, m] = first[m]
            for m in range(of_block):
                dv2[place, b, m] = second[m]

    @inner
    def write(sums, at, lane, dx, p, kind, h):
        row = local(number, d)
        for c in range(d):
            row[c] = sums[at, c // block, c % block * LANES + lane]
        for c in range(d):
            dx[p, kind, h, c] = row[c]

    @inner
    def transpose(a, rows, columns, l, out):
        for j in range(columns):
            for i in range(rows):
                out[l, j, i] = a[0, i, j]

    @compiled
    def backward(begin, end, x, of_pairs, along_j, along_i, tasks, seed, limit, keep, dx):
        """dx [P, 4, H, d]."""
        num_heads = x.shape[2]
        # (unpacking one array would make arrays that are not known to be contiguous)
        weight, ds = np.zeros((1, LANES, LANES), number), np.zeros((1, LANES, LANES), number)
        weight_t, ds_t = np.zeros((PATHS, LANES, LANES), number), np.zeros((PATHS, LANES, LANES), number)
        k_lanes, v2_lanes = np.empty((PATHS, size), number), np.empty((PATHS, size), number)
        dk, dv2 = np.empty((PATHS, blocks, of_block), number), np.empty((PATHS, blocks, of_block), number)
        for t in range(begin, end):
            p0, n, h, l0, place = tasks[t]
            paths, tiles = min(PATHS, n - l0), -(-n // LANES)
            q, v1 = np.empty((paths, n, d), number), np.empty((paths, n, d), number)
            k, v2 = np.empty((paths, n, d), number), np.empty((paths, n, d), number)
            dq, dv1 = np.zeros((paths * tiles, blocks, of_block), number), np.zeros((paths * tiles, blocks, of_block), number)
            hashes = np.empty((paths, n), np.uint32)
            for l in range(paths):
                for i in range(n):
                    p, p_t = p0 + i * n + l0 + l, p0 + (l0 + l) * n + i
                    hashes[l, i] = hash32(np.uint32(np.uint32(p * num_heads + h) ^ seed))
                    copy(x, p, 0, h, q, l, i)
                    copy(x, p, 2, h, v1, l, i)
                    copy(x, p_t, 1, h, k, l, i)
                    copy(x, p_t, 3, h, v2, l, i)
            for tile in range(tiles):
                j0 = tile * LANES
                columns = min(LANES, n - j0)
                k_lanes[:], v2_lanes[:], dk[:], dv2[:] = zero, zero, zero, zero
                for l in range(paths):
                    for j in range(columns):
                        for c in range(d):
                            k_lanes[l, c * LANES + j], v2_lanes[l, c * LANES + j] = k[l, j0 + j, c], v2[l, j0 + j, c]
                for i in range(0, n, LANES):
                    rows, at, at_t = min(LANES, n - i), place + tile * n + i, place + i // LANES * n + j0
                    for l in range(paths):
                        through_softmax(l, i, rows, j0, at, q, v1, k_lanes, v2_lanes, along_j, of_pairs, hashes, limit, keep, weight, ds)
                        transpose(weight, rows, columns, l, weight_t)
                        transpose(ds, rows, columns, l, ds_t)
                        collect(rows, 0, weight, ds, l, i, q, v1, at, along_j, l, dk, dv2)
                    for l in range(paths):
                        collect(columns, l, weight_t, ds_t, l, j0, k, v2, at_t, along_i, l * tiles + i // LANES, dq, dv1)
                for l in range(paths):
                    for j in range(columns):
                        write(dk, l, j, dx, p0 + (l0 + l) * n + j0 + j, 1, h)
                        write(dv2, l, j, dx, p0 + (l0 + l) * n + j0 + j, 3, h)
            for l in range(paths):
                for i in range(n):
                    write(dq, l * tiles + i // LANES, i % LANES, dx, p0 + i * n + l0 + l, 0, h)
                    write(dv1, l * tiles + i // LANES, i % LANES, dx, p0 + i * n + l0 + l, 2, h)

    return SimpleNamespace(forward=forward, pack=pack, backward=backward)
