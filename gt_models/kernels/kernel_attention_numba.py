"""Kernel attention within groups on the CPU: no feature of a query or key is ever stored.

The sums over a group's keys are a few hundred numbers per head. They are formed in a core's first cache and read there by the group's
queries; the backward pass forms them again. Large groups are summed in pieces, which are added up between two passes.
"""

# mypy: disable-error-code="arg-type"

from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gt_models.kernels.compiled import axpy, compiled, dot, fill, gate, inner, local, real, run, run_parts
from gt_models.kernels.kernel_attention import Groups

PIECE = 512  # entries, or queries, of one piece of a large group
BOTH, KEYS, QUERIES = 0, 1, 2  # what a pass goes over: whole groups; pieces of the groups' entries; pieces of their queries


class _KernelAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, query, key, value, projection, eps, groups) -> Tensor:
        layout = groups.layout = groups.layout or _Layout(groups)
        heads, channels = value.shape[1:]
        kernels = _kernels(query.dtype, query.size(2), channels, len(projection))
        out = query.new_empty(len(query), heads, channels)
        arguments = (heads, *_rows(query), *_rows(key), *_rows(value), *_rows(out), *layout.rows)
        matrices = (projection.T.flatten(), real(query.dtype)(eps))
        sums = query.new_empty(0 if layout.whole else len(layout.entry_group), heads, len(projection) * (channels + 1))
        if layout.whole:
            run_parts(kernels.forward, layout.bounds(BOTH), BOTH, *arguments, layout.query_group, sums, *matrices)
        else:
            run_parts(kernels.forward, layout.bounds(KEYS), KEYS, *arguments, layout.entry_group, sums, *matrices)
            sums = sums.new_zeros(groups.num_groups, *sums.shape[1:]).index_add_(0, layout.entry_group, sums)
            run_parts(kernels.forward, layout.bounds(QUERIES), QUERIES, *arguments, layout.query_group, sums, *matrices)
        ctx.save_for_backward(query, key, value, out, projection, sums)
        ctx.layout, ctx.eps, ctx.num_groups = layout, eps, groups.num_groups
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        query, key, value, out, projection, sums = ctx.saved_tensors
        layout, (heads, channels) = ctx.layout, value.shape[1:]
        kernels = _kernels(query.dtype, query.size(2), channels, len(projection))
        dquery, dvalue, dkey = query.new_empty(query.shape), value.new_empty(value.shape), key.new_empty(len(value), *key.shape[1:])
        arrays = (query, key, value, out, grad, dquery, dkey, dvalue)
        arguments = (heads, *(part for t in arrays for part in _rows(t)), *layout.rows)
        matrices = (projection.T.flatten(), projection.flatten(), real(query.dtype)(ctx.eps))
        if layout.whole:
            run_parts(kernels.backward, layout.bounds(BOTH), BOTH, *arguments, layout.query_group, sums, sums, *matrices)
        else:
            dsums = sums.new_empty(len(layout.query_group), *sums.shape[1:])
            run_parts(kernels.backward, layout.bounds(QUERIES), QUERIES, *arguments, layout.query_group, sums, dsums, *matrices)
            dsums = dsums.new_zeros(ctx.num_groups, *sums.shape[1:]).index_add_(0, layout.query_group, dsums)
            run_parts(kernels.backward, layout.bounds(KEYS), KEYS, *arguments, layout.entry_group, sums, dsums, *matrices)
        by_key = layout.by_key(len(key))
        if by_key is not None:
            of_entries, dkey = dkey, key.new_empty(key.shape)
            run(kernels.sum_by_key, len(key), *by_key, of_entries.flatten(1), dkey.flatten(1), grain=1024)
        return dquery, dkey, dvalue, None, None, None


kernel_attention = _KernelAttention.apply


class _Layout:
    """The rows of `groups` in units, of which a thread does one after another: whole groups, or pieces where any group is large."""

    def __init__(self, groups: Groups):
        sizes = [torch.bincount(g, minlength=groups.num_groups) for g in (groups.entries, groups.queries)]
        self.whole = all(int(s.max()) <= PIECE for s in sizes if s.numel())
        entry_ptr, entry, self.entry_group = _units(groups.entries, sizes[0], self.whole)
        query_ptr, query, self.query_group = _units(groups.queries, sizes[1], self.whole)
        self._ptr = {BOTH: entry_ptr + query_ptr if self.whole else None, KEYS: entry_ptr, QUERIES: query_ptr}
        self._key = groups.key
        key = entry if groups.key is None else groups.key[entry]
        self.rows = [t.numpy() for t in (entry_ptr, key, entry, query_ptr, query)]
        self._kept: dict[Any, Any] = {}

    def bounds(self, over: int) -> list[int]:
        """Of each thread's units, in shares of about as many rows."""
        ptr, num_threads = self._ptr[over], torch.get_num_threads()
        if (over, num_threads) not in self._kept:
            parts = max(1, min(num_threads, int(ptr[-1]) // PIECE))  # type: ignore[index]
            ends = torch.searchsorted(ptr, ptr[-1] * torch.arange(1, parts) // parts)  # type: ignore[index]
            self._kept[over, num_threads] = [0, *ends.tolist(), len(ptr) - 1]
        return self._kept[over, num_threads]

    def by_key(self, num_keys: int) -> tuple[np.ndarray, np.ndarray] | None:
        """The entries of each key, as offsets and order; None where entry e has key e."""
        if self._key is not None and "by key" not in self._kept:
            counts = torch.bincount(self._key, minlength=num_keys)
            ptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
            self._kept["by key"] = ptr.numpy(), torch.argsort(self._key, stable=True).numpy()
        return self._kept.get("by key")


def _units(group: Tensor, sizes: Tensor, whole: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Offsets of each unit's rows, the rows in order, and the group of each unit."""
    order, numbers, start = torch.argsort(group, stable=True), torch.arange(sizes.numel()), sizes.cumsum(0) - sizes
    if whole:
        return torch.cat([start, sizes.sum()[None]]), order, numbers
    pieces = -(-sizes // PIECE)
    of_piece = torch.repeat_interleave(numbers, pieces)
    number = torch.arange(of_piece.numel()) - (pieces.cumsum(0) - pieces)[of_piece]
    return torch.cat([start[of_piece] + number * PIECE, sizes.sum()[None]]), order, of_piece


def _rows(t: Tensor) -> tuple[np.ndarray, int]:
    """[r, heads, width] as one array of contiguous numbers, and the stride of its rows: columns of a wide matrix are not copied."""
    size, heads, width = t.shape
    if size < 2 or t.stride()[1:] != (width, 1) or t.stride(0) < heads * width:
        t = t.contiguous()
    length = (size - 1) * t.stride(0) + heads * width if size else 0
    return t.detach().as_strided((length,), (1,)).numpy(), t.stride(0)


@cache
def _kernels(dtype: torch.dtype, width: int, channels: int, features: int) -> SimpleNamespace:
    """For heads of `width` channels of queries and keys and `channels` of values.

    Arrays of rows come with their stride. A unit's entries are key[e] and entry[e], e in entry_ptr[unit] .. entry_ptr[unit + 1], its queries
    likewise. sums [units or groups, heads, size]: S [features, channels], then z.
    """
    number = real(dtype)
    zero, one = number(0), number(1)
    z, size = features * channels, features * channels + features

    @inner
    def form_features(u, first, by_channel, eps, above, phi):
        """above = relu(P u), phi = above + eps; by_channel: the transpose of P."""
        fill(above, 0, zero, above, 0, features)
        for c in range(width):
            axpy(above, 0, u[first + c], by_channel, c * features, features)
        gate(above, 0, zero, above, 0, features)
        fill(phi, 0, eps, phi, 0, features)
        axpy(phi, 0, one, above, 0, features)

    @inner
    def write_gradient(dphi, above, by_feature, du, target, first):
        """By phi to by u."""
        gate(dphi, 0, zero, above, 0, features)
        fill(du, 0, zero, du, 0, width)
        for f in range(features):
            axpy(du, 0, dphi[f], by_feature, f * width, width)
        fill(target, first, zero, target, first, width)
        axpy(target, first, one, du, 0, width)

    @compiled
    def forward(begin, end, over, heads, query, query_stride, key, key_stride, value, value_stride, out, out_stride,
                entry_ptr, key_row, entry_row, query_ptr, query_row, group, sums, by_channel, eps):  # fmt: skip
        """Whole groups: out. Entries: `sums` of each unit. Queries: out from the `sums` of each unit's group."""
        above, phi, S, read = local(number, features), local(number, features), local(number, size), local(number, channels)
        for unit in range(begin, end):
            for h in range(heads):
                if over == QUERIES:
                    for i in range(size):
                        S[i] = sums[group[unit], h, i]
                else:
                    for i in range(size):
                        S[i] = zero
                    for e in range(entry_ptr[unit], entry_ptr[unit + 1]):
                        form_features(key, key_row[e] * key_stride + h * width, by_channel, eps, above, phi)
                        v = entry_row[e] * value_stride + h * channels
                        for f in range(features):
                            axpy(S, f * channels, phi[f], value, v, channels)
                        axpy(S, z, one, phi, 0, features)
                if over == KEYS:
                    for i in range(size):
                        sums[unit, h, i] = S[i]
                    continue
                for r in range(query_ptr[unit], query_ptr[unit + 1]):
                    form_features(query, query_row[r] * query_stride + h * width, by_channel, eps, above, phi)
                    below = dot(phi, 0, S, z, features)
                    fill(read, 0, zero, read, 0, channels)
                    for f in range(features):
                        axpy(read, 0, phi[f], S, f * channels, channels)
                    o = query_row[r] * out_stride + h * channels
                    fill(out, o, zero, out, o, channels)
                    axpy(out, o, one / (one if below == zero else below), read, 0, channels)

    @compiled
    def backward(begin, end, over, heads, query, query_stride, key, key_stride, value, value_stride, out, out_stride, grad, grad_stride,
                 dquery, dquery_stride, dkey, dkey_stride, dvalue, dvalue_stride,
                 entry_ptr, key_row, entry_row, query_ptr, query_row, group, sums, dsums, by_channel, by_feature, eps):  # fmt: skip
        """Whole groups: all gradients, those of keys by entry. Queries: dquery, and `dsums` of each unit. Entries: dkey and dvalue, from
        the `dsums` of each unit's group."""
        above, phi, dphi = local(number, features), local(number, features), local(number, features)
        # [channels, features] and z, where vectors go over features; `turned` as `sums`
        S, dS, turned, du, dv = local(number, size), local(number, size), local(number, size), local(number, width), local(number, channels)
        for unit in range(begin, end):
            for h in range(heads):
                for i in range(size):
                    S[i], dS[i] = zero, zero
                if over == QUERIES:
                    for f in range(features):
                        for c in range(channels):
                            S[c * features + f] = sums[group[unit], h, f * channels + c]
                        S[z + f] = sums[group[unit], h, z + f]
                elif over == BOTH:
                    for e in range(entry_ptr[unit], entry_ptr[unit + 1]):
                        form_features(key, key_row[e] * key_stride + h * width, by_channel, eps, above, phi)
                        v = entry_row[e] * value_stride + h * channels
                        for c in range(channels):
                            axpy(S, c * features, value[v + c], phi, 0, features)
                        axpy(S, z, one, phi, 0, features)
                if over == KEYS:
                    for i in range(size):
                        turned[i] = dsums[group[unit], h, i]
                    for f in range(features):
                        for c in range(channels):
                            dS[c * features + f] = turned[f * channels + c]
                        dS[z + f] = turned[z + f]
                else:
                    for r in range(query_ptr[unit], query_ptr[unit + 1]):
                        row = query_row[r]
                        form_features(query, row * query_stride + h * width, by_channel, eps, above, phi)
                        below = dot(phi, 0, S, z, features)
                        inverse = one / (one if below == zero else below)
                        g = row * grad_stride + h * channels
                        by_z = -inverse * dot(grad, g, out, row * out_stride + h * channels, channels)
                        fill(dphi, 0, zero, dphi, 0, features)
                        axpy(dphi, 0, by_z, S, z, features)
                        axpy(dS, z, by_z, phi, 0, features)
                        for c in range(channels):
                            axpy(dphi, 0, grad[g + c] * inverse, S, c * features, features)
                            axpy(dS, c * features, grad[g + c] * inverse, phi, 0, features)
                        write_gradient(dphi, above, by_feature, du, dquery, row * dquery_stride + h * width)
                    for f in range(features):
                        for c in range(channels):
                            turned[f * channels + c] = dS[c * features + f]
                        turned[z + f] = dS[z + f]
                if over == QUERIES:
                    for i in range(size):
                        dsums[unit, h, i] = turned[i]
                    continue
                for e in range(entry_ptr[unit], entry_ptr[unit + 1]):
                    row = entry_row[e]
                    form_features(key, key_row[e] * key_stride + h * width, by_channel, eps, above, phi)
                    fill(dphi, 0, zero, dphi, 0, features)
                    axpy(dphi, 0, one, dS, z, features)
                    for c in range(channels):
                        axpy(dphi, 0, value[row * value_stride + h * channels + c], dS, c * features, features)
                    fill(dv, 0, zero, dv, 0, channels)
                    for f in range(features):
                        axpy(dv, 0, phi[f], turned, f * channels, channels)
                    first = row * dvalue_stride + h * channels
                    fill(dvalue, first, zero, dvalue, first, channels)
                    axpy(dvalue, first, one, dv, 0, channels)
                    write_gradient(dphi, above, by_feature, du, dkey, row * dkey_stride + h * width)

    @compiled
    def sum_by_key(begin, end, ptr, order, of_entries, out):
        for k in range(begin, end):
            for c in range(out.shape[1]):
                out[k, c] = zero
            for place in range(ptr[k], ptr[k + 1]):
                for c in range(out.shape[1]):
                    out[k, c] += of_entries[order[place], c]

    return SimpleNamespace(forward=forward, backward=backward, sum_by_key=sum_by_key)
