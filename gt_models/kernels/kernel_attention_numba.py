"""Kernel attention within groups on the CPU: no feature of a query or key is ever stored.

The sums over a group's keys are a few hundred numbers per head. They are formed in a core's first cache and read there by the group's
queries; the backward pass forms them again. Large groups are summed in pieces, which are added up between two passes.
"""

# mypy: disable-error-code="arg-type"

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gt_models.kernels.compiled import axpy, compiled, dot, fill, gate, inner, local, real, run, run_parts, scaled
from gt_models.kernels.kernel_attention import Attention, Grouped, Groups

PIECE = 512  # entries, or queries, of one piece of a large group
uintp = np.uintp  # of an index without a sign Numba does not ask whether it counts from the end: three instructions for each number read
BOTH, KEYS, QUERIES = 0, 1, 2  # what a pass goes over: whole groups; pieces of the groups' entries; pieces of their queries


class _KernelAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, attentions, heads, channels, projection, eps, *matrices) -> tuple[Tensor, ...]:
        features, width = projection.shape
        kernels = _kernels(projection.dtype, width, channels, features)
        outs = [projection.new_empty(rows, count * heads * channels) for rows, count in _outputs(attentions)]
        rows, results = [_rows(m) for m in matrices], [_rows(out) for out in outs]
        ends = (projection.T.flatten().numpy(), real(projection.dtype)(eps), uintp(0))
        kept, first = [], [0] * len(outs)
        for a in attentions:
            layout = a.groups.layout = a.groups.layout or _Layout(a.groups)
            arguments = (
                heads,
                *_at(rows, a.query),
                *_at(rows, a.key),
                *_at(rows, a.value),
                *_at(results, (a.out, first[a.out])),
                *layout.rows,
            )
            first[a.out] += heads * channels
            sums = projection.new_empty(0 if layout.whole else len(layout.group_of(KEYS)), heads, features * (channels + 1))
            for over in layout.passes:
                if over == QUERIES:  # of pieces to those of groups
                    groups = layout.group_of(KEYS)
                    sums = sums.new_zeros(a.groups.entries.num_groups, *sums.shape[1:]).index_add_(0, groups, sums)
                _run(kernels.forward, layout.bounds(over), over, *arguments, layout.group_of(over).numpy(), sums.numpy(), *ends)
            kept.append(sums)
        ctx.save_for_backward(projection, *matrices, *outs, *kept)
        ctx.attentions, ctx.sizes, ctx.eps = attentions, (heads, channels, len(matrices), len(outs)), eps
        return tuple(outs)

    @staticmethod
    @once_differentiable
    def backward(ctx, *grads: Tensor):
        heads, channels, num_matrices, num_outs = ctx.sizes
        projection, *saved = ctx.saved_tensors
        matrices, outs, kept = saved[:num_matrices], saved[num_matrices : num_matrices + num_outs], saved[num_matrices + num_outs :]
        features, width = projection.shape
        kernels = _kernels(projection.dtype, width, channels, features)
        written = sum(2 * heads * width + heads * channels for _ in ctx.attentions)  # of all columns, each by one attention
        whole = written == sum(m.size(1) for m in matrices)
        gradients = [m.new_empty(m.shape) if whole else m.new_zeros(m.shape) for m in matrices]
        rows, results, of_results, of_rows = ([_rows(t) for t in ts] for ts in (matrices, outs, grads, gradients))
        ends = (projection.T.flatten().numpy(), projection.flatten().numpy(), real(projection.dtype)(ctx.eps), uintp(0))
        first = [0] * num_outs
        for a, sums in zip(ctx.attentions, kept, strict=True):
            layout, key = a.groups.layout, a.groups.key
            out, dkey = (a.out, first[a.out]), _at(of_rows, a.key)
            if key is not None:  # of entries, and added up by key below
                of_entries = projection.new_empty(len(key.of), heads * width)
                dkey = _rows(of_entries)
            first[a.out] += heads * channels
            inputs = (*_at(rows, a.query), *_at(rows, a.key), *_at(rows, a.value), *_at(results, out), *_at(of_results, out))
            arguments = (heads, *inputs, *_at(of_rows, a.query), *dkey, *_at(of_rows, a.value), *layout.rows)
            dsums = sums.new_empty(0 if layout.whole else len(layout.group_of(QUERIES)), *sums.shape[1:])
            for over in reversed(layout.passes):
                if over == KEYS:
                    dsums = dsums.new_zeros(a.groups.entries.num_groups, *sums.shape[1:]).index_add_(0, layout.group_of(QUERIES), dsums)
                groups = layout.group_of(over).numpy()
                _run(kernels.backward, layout.bounds(over), over, *arguments, groups, sums.numpy(), dsums.numpy(), *ends)
            if key is not None:
                own = gradients[a.key[0]][:, a.key[1] : a.key[1] + heads * width]
                run(kernels.sum_by_key, len(own), *_by_group(key), of_entries, own, grain=1024)
        return None, None, None, None, None, *gradients


kernel_attention = _KernelAttention.apply


def _run(kernel: Callable[..., None], bounds: list[int], *arguments: Any) -> None:
    """As `run_parts`; with one part the kernel itself, since there are many calls and each is short."""
    if len(bounds) == 2:
        kernel(*bounds, *arguments)
    else:
        run_parts(kernel, bounds, *arguments)


def _outputs(attentions: Sequence[Attention]) -> list[tuple[int, int]]:
    """Rows of each output, and how many attentions are side by side in it."""
    counts = Counter(a.out for a in attentions)
    rows = {a.out: len(a.groups.queries.of) for a in attentions}
    return [(rows[out], counts[out]) for out in range(len(counts))]


class _Layout:
    """The rows of `groups` in units, of which a thread does one after another: whole groups, or pieces where any group is large."""

    def __init__(self, groups: Groups):
        self._entries, self._queries = groups.entries, groups.queries
        self.whole = _largest(groups.entries) <= PIECE and _largest(groups.queries) <= PIECE
        self.passes = (BOTH,) if self.whole else (KEYS, QUERIES)
        entry_ptr, entry, _ = _units(groups.entries, self.whole)
        query_ptr, query, _ = _units(groups.queries, self.whole)
        key = entry if groups.key is None else groups.key.of.numpy()[entry]
        self.rows = (entry_ptr, key, entry, query_ptr, query)
        self._bounds: dict[tuple[int, int], list[int]] = {}

    def group_of(self, over: int) -> Tensor:
        """The group of each unit."""
        return _units(self._entries if over == KEYS else self._queries, self.whole)[2]

    def bounds(self, over: int) -> list[int]:
        """Of each thread's units, in shares of about as many rows."""
        num_threads = torch.get_num_threads()
        if (over, num_threads) not in self._bounds:
            ptr = self.rows[3] if over == QUERIES else self.rows[0] if over == KEYS else self.rows[0] + self.rows[3]
            parts = max(1, min(num_threads, int(ptr[-1]) // PIECE))
            ends = np.searchsorted(ptr, ptr[-1] * np.arange(1, parts) // parts)
            self._bounds[over, num_threads] = [0, *ends.tolist(), len(ptr) - 1]
        return self._bounds[over, num_threads]


def _kept(rows: Grouped, what: Any, build: Callable[[], Any]) -> Any:
    if what not in rows.kept:
        rows.kept[what] = build()
    return rows.kept[what]


def _sizes(rows: Grouped) -> Tensor:
    return _kept(rows, "sizes", lambda: torch.bincount(rows.of, minlength=rows.num_groups))


def _largest(rows: Grouped) -> int:
    return _kept(rows, "largest", lambda: int(_sizes(rows).max()) if rows.num_groups else 0)


def _by_group(rows: Grouped) -> tuple[np.ndarray, np.ndarray]:
    """The rows of each group, as offsets and order."""
    return _units(rows, True)[:2]


def _units(rows: Grouped, whole: bool) -> tuple[np.ndarray, np.ndarray, Tensor]:
    """Offsets of each unit's rows, the rows in order, and the group of each unit: whole groups, or pieces of them."""

    def build() -> tuple[np.ndarray, np.ndarray, Tensor]:
        sizes, numbers = _sizes(rows), torch.arange(rows.num_groups)
        order = _kept(rows, "order", lambda: torch.argsort(rows.of, stable=True))
        ptr = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
        if whole:
            return ptr.numpy(), order.numpy(), numbers
        pieces = -(-sizes // PIECE)
        of_piece = torch.repeat_interleave(numbers, pieces)
        number = torch.arange(of_piece.numel()) - (pieces.cumsum(0) - pieces)[of_piece]
        return torch.cat([ptr[of_piece] + number * PIECE, ptr[-1:]]).numpy(), order.numpy(), of_piece

    return _kept(rows, whole, build)


def _rows(t: Tensor) -> tuple[np.ndarray, int]:
    """[r, width] as one array of contiguous numbers, and the stride of its rows: columns of a wide matrix are not copied."""
    size, width = t.shape
    if size < 2 or t.stride(1) != 1 or t.stride(0) < width:
        t = t.contiguous()
    length = (size - 1) * t.stride(0) + width if size else 0
    return t.detach().as_strided((length,), (1,)).numpy(), t.stride(0)


def _at(rows: Sequence[tuple[np.ndarray, int]], place: tuple[int, int]) -> tuple[np.ndarray, int]:
    """The matrix of this number from this column on."""
    array, stride = rows[place[0]]
    return array[place[1] :], stride


@cache
def _kernels(dtype: torch.dtype, width: int, channels: int, features: int) -> SimpleNamespace:
    """For heads of `width` channels of queries and keys and `channels` of values.

    Features that are taken one by one are read from `spread`, at `nil` + f: `nil` is 0, which LLVM does not know, so that a number comes from
    memory to all lanes in the instruction that multiplies by it, and not out of a register by two of its own.

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
            axpy(above, 0, u[first + uintp(c)], by_channel, c * features, features)
        gate(above, 0, zero, above, 0, features)
        fill(phi, 0, eps, phi, 0, features)
        axpy(phi, 0, one, above, 0, features)

    @inner
    def write_gradient(dphi, spread, nil, above, by_feature, du, target, first):
        """By phi to by u."""
        gate(dphi, 0, zero, above, 0, features)
        scaled(spread, 0, one, dphi, 0, features)
        fill(du, 0, zero, du, 0, width)
        for f in range(features):
            axpy(du, 0, spread[nil + uintp(f)], by_feature, f * width, width)
        scaled(target, first, one, du, 0, width)

    @compiled
    def forward(begin, end, over, heads, query, query_stride, key, key_stride, value, value_stride, out, out_stride,
                entry_ptr, key_row, entry_row, query_ptr, query_row, group, sums, by_channel, eps, nil):  # fmt: skip
        """Whole groups: out. Entries: `sums` of each unit. Queries: out from the `sums` of each unit's group."""
        above, phi, S, read = local(number, features), local(number, features), local(number, size), local(number, channels)
        spread = local(number, features)
        for unit in range(begin, end):
            for h in range(heads):
                if over == QUERIES:
                    for i in range(size):
                        S[i] = sums[group[unit], h, i]
                else:
                    for i in range(size):
                        S[i] = zero
                    for e in range(entry_ptr[unit], entry_ptr[unit + 1]):
                        form_features(key, uintp(key_row[uintp(e)] * key_stride + h * width), by_channel, eps, above, phi)
                        scaled(spread, 0, one, phi, 0, features)
                        v = entry_row[uintp(e)] * value_stride + h * channels
                        for f in range(features):
                            axpy(S, f * channels, spread[nil + uintp(f)], value, v, channels)
                        axpy(S, z, one, phi, 0, features)
                if over == KEYS:
                    for i in range(size):
                        sums[unit, h, i] = S[i]
                    continue
                for r in range(query_ptr[unit], query_ptr[unit + 1]):
                    row = query_row[uintp(r)]
                    form_features(query, uintp(row * query_stride + h * width), by_channel, eps, above, phi)
                    scaled(spread, 0, one, phi, 0, features)
                    below = dot(phi, 0, S, z, features)
                    fill(read, 0, zero, read, 0, channels)
                    for f in range(features):
                        axpy(read, 0, spread[nil + uintp(f)], S, f * channels, channels)
                    o = row * out_stride + h * channels
                    scaled(out, o, one / (one if below == zero else below), read, 0, channels)

    @compiled
    def backward(begin, end, over, heads, query, query_stride, key, key_stride, value, value_stride, out, out_stride, grad, grad_stride,
                 dquery, dquery_stride, dkey, dkey_stride, dvalue, dvalue_stride,
                 entry_ptr, key_row, entry_row, query_ptr, query_row, group, sums, dsums, by_channel, by_feature, eps, nil):  # fmt: skip
        """Whole groups: all gradients, those of keys by entry. Queries: dquery, and `dsums` of each unit. Entries: dkey and dvalue, from
        the `dsums` of each unit's group."""
        above, phi, dphi = local(number, features), local(number, features), local(number, features)
        spread, share = local(number, features), local(number, channels)
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
                        form_features(key, uintp(key_row[uintp(e)] * key_stride + h * width), by_channel, eps, above, phi)
                        v = uintp(entry_row[uintp(e)] * value_stride + h * channels)
                        for c in range(channels):
                            axpy(S, c * features, value[v + uintp(c)], phi, 0, features)
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
                        row = query_row[uintp(r)]
                        form_features(query, uintp(row * query_stride + h * width), by_channel, eps, above, phi)
                        below = dot(phi, 0, S, z, features)
                        inverse = one / (one if below == zero else below)
                        g = row * grad_stride + h * channels
                        by_z = -inverse * dot(grad, g, out, row * out_stride + h * channels, channels)
                        scaled(share, 0, inverse, grad, g, channels)
                        scaled(dphi, 0, by_z, S, z, features)
                        axpy(dS, z, by_z, phi, 0, features)
                        for c in range(channels):
                            axpy(dphi, 0, share[nil + uintp(c)], S, c * features, features)
                            axpy(dS, c * features, share[nil + uintp(c)], phi, 0, features)
                        write_gradient(dphi, spread, nil, above, by_feature, du, dquery, row * dquery_stride + h * width)
                    for f in range(features):
                        for c in range(channels):
                            turned[f * channels + c] = dS[c * features + f]
                        turned[z + f] = dS[z + f]
                if over == QUERIES:
                    for i in range(size):
                        dsums[unit, h, i] = turned[i]
                    continue
                for e in range(entry_ptr[unit], entry_ptr[unit + 1]):
                    row = entry_row[uintp(e)]
                    form_features(key, uintp(key_row[uintp(e)] * key_stride + h * width), by_channel, eps, above, phi)
                    scaled(dphi, 0, one, dS, z, features)
                    v = uintp(row * value_stride + h * channels)
                    for c in range(channels):
                        axpy(dphi, 0, value[v + uintp(c)], dS, c * features, features)
                    scaled(spread, 0, one, phi, 0, features)
                    fill(dv, 0, zero, dv, 0, channels)
                    for f in range(features):
                        axpy(dv, 0, spread[nil + uintp(f)], turned, f * channels, channels)
                    scaled(dvalue, row * dvalue_stride + h * channels, one, dv, 0, channels)
                    write_gradient(dphi, spread, nil, above, by_feature, du, dkey, row * dkey_stride + h * width)

    @compiled
    def sum_by_key(begin, end, ptr, order, of_entries, out):
        for k in range(begin, end):
            for c in range(out.shape[1]):
                out[k, c] = zero
            for place in range(ptr[k], ptr[k + 1]):
                for c in range(out.shape[1]):
                    out[k, c] += of_entries[order[place], c]

    return SimpleNamespace(forward=forward, backward=backward, sum_by_key=sum_by_key)
