"""Kernel attention within groups on the CPU, all attentions of a layer in one call.

The sums over a group's entries are a few hundred numbers per head. They are computed in the L1 cache of a core, where
the group's queries read them. The backward pass computes them again. Features of queries are never stored. Features of
keys and gradients of sums are stored during one pass only. Each number is written by one thread: that of a head of a
group, or of a key.
"""

# mypy: disable-error-code="arg-type"

from collections import Counter
from collections.abc import Sequence
from functools import cache
from types import SimpleNamespace

import numba
import numpy as np
import torch
from numba import types
from numba.extending import intrinsic
from torch import Tensor

from gt_models.kernels.compiled import compiled, dot, inner, move, real, run_parts, shares
from gt_models.kernels.grouped import Attention, Groups, Sorted
from gt_models.kernels.once_differentiable import once_differentiable
from gt_models.kernels.vectors import copy, gate, local, mul, muladd

BLOCK = 512  # rows that are summed before they are added to a total; the minimum number of rows of a thread
QUERY, KEY, VALUE, OUT, DQUERY, DKEY, DVALUE, GRAD = range(
    0, 16, 2
)  # columns of a table of matrices: addresses, each before its stride
uintp = (
    np.uintp
)  # an unsigned index: Numba omits its check for negative indices, three instructions for each number read


class _KernelAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, attentions, heads, channels, projection, eps, *matrices) -> tuple[Tensor, ...]:
        first, *others = [a.groups for a in attentions]
        if first.layout is None or list(map(id, first.layout.others)) != list(map(id, others)):
            first.layout = _Layout(first, others)
        layout, kernels = first.layout, _kernels(projection.dtype, projection.size(1), channels, len(projection))
        ends = (
            projection.T.flatten(),
            projection.flatten(),
            real(projection.dtype)(eps),
            uintp(0),
        )  # the last: see `_kernels`
        inputs = [_rows(m) for m in matrices]
        rows = {a.out: len(a.groups.queries.of) for a in attentions}
        outs = [
            projection.new_empty(rows[out], n * heads * channels)
            for out, n in sorted(Counter(a.out for a in attentions).items())
        ]
        table = _table(attentions, heads * channels, inputs, outs)
        phi = projection.new_empty(len(layout.key_costs) * heads * len(projection))
        run_parts(kernels.features, _shares(layout.key_costs), heads, table, *layout.keys, *ends, phi)
        run_parts(kernels.forward, _shares(layout.group_costs, heads), heads, table, *layout.groups, *ends, phi)
        ctx.save_for_backward(projection, *inputs, *outs)
        ctx.rest = attentions, heads, channels, layout, kernels, ends
        return tuple(outs)

    @staticmethod
    @once_differentiable
    def backward(ctx, *grads: Tensor):
        (projection, *saved), (attentions, heads, channels, layout, kernels, ends) = ctx.saved_tensors, ctx.rest
        matrices, outs, of_outs = saved[: -len(grads)], saved[-len(grads) :], [_rows(g) for g in grads]
        features, width = projection.shape
        written = len(attentions) * heads * (2 * width + channels) == sum(m.size(1) for m in matrices)  # all columns
        gradients = [m.new_empty(m.shape) if written else m.new_zeros(m.shape) for m in matrices]
        table = _table(attentions, heads * channels, matrices, outs, gradients, of_outs)
        phi = projection.new_empty(len(layout.key_costs) * heads * features)
        dsums = projection.new_empty(len(layout.group_costs) * heads * features * (channels + 1))
        run_parts(kernels.features, _shares(layout.key_costs), heads, table, *layout.keys, *ends, phi)
        run_parts(
            kernels.backward_by_group,
            _shares(layout.group_costs, heads),
            heads,
            table,
            *layout.groups,
            *ends,
            phi,
            dsums,
        )
        run_parts(kernels.backward_by_key, _shares(layout.key_costs), heads, table, *layout.keys, *ends, dsums)
        return None, None, None, None, None, *gradients


kernel_attention = _KernelAttention.apply


def _rows(t: Tensor) -> Tensor:
    """A tensor with contiguous rows; columns of a wide matrix are not copied."""
    return t if t.stride(1) == 1 else t.contiguous()


def _shares(costs: np.ndarray, repeats: int = 1) -> list[int]:
    """`shares` of units that are repeated `repeats` times each; one thread if there are few rows."""
    alone = torch.get_num_threads() == 1 or costs.sum() < 2 * BLOCK
    return [0, repeats * len(costs)] if alone else shares(np.repeat(costs, repeats))


def _table(attentions: Sequence[Attention], width: int, *tensors: Sequence[Tensor]) -> np.ndarray:
    """Addresses and strides of the queries, keys, values and output of each attention, then of their gradients."""
    found = [[(t.data_ptr(), t.element_size(), t.stride(0)) for t in ts] for ts in tensors]
    table, first = [], [0] * len(tensors[1])
    for a in attentions:
        out, row = (a.out, first[a.out]), []
        first[a.out] += width
        for inputs, outputs in zip(found[::2], found[1::2], strict=True):
            for matrices, (number, column) in ((inputs, a.query), (inputs, a.key), (inputs, a.value), (outputs, out)):
                address, size, stride = matrices[number]
                row += [address + size * column, stride]
        table.append(row)
    return np.array(table, np.int64)


class _Layout:
    """The groups of several attentions, one after another, and their keys likewise.

    Attributes:
        groups: of each group its attention; offsets of its entries, their rows and keys; offsets of its queries, their
            rows.
        keys: of each key its attention and its row; offsets of its entries, their rows and groups.
        group_costs, key_costs: rows that a group, or a key, reads.
    """

    def __init__(self, first: Groups, others: list[Groups]):
        self.others, every = others, [first, *others]  # not `first`, which keeps this
        entries, queries = [g.entries.sorted for g in every], [g.queries.sorted for g in every]
        alone = [np.arange(len(g.entries.of) + 1) for g in every]  # each entry has a key of its own
        keys = [Sorted(n[:-1], n, n[:-1]) if g.key is None else g.key.sorted for g, n in zip(every, alone, strict=True)]
        of_group, first_group = _numbered(entries)
        of_key, first_key = _numbered(keys)
        key_of_entry = np.concatenate([k.of[e.rows] + at for e, k, at in zip(entries, keys, first_key, strict=True)])
        group_of_entry = np.concatenate(
            [e.of[k.rows] + at for e, k, at in zip(entries, keys, first_group, strict=True)]
        )
        self.groups = of_group, *_joined(entries), key_of_entry, *_joined(queries)
        self.keys = of_key, np.arange(len(of_key)) - first_key[of_key], *_joined(keys), group_of_entry
        self.group_costs, self.key_costs = np.diff(self.groups[1] + self.groups[4]), np.diff(self.keys[2])


def _numbered(parts: list[Sorted]) -> tuple[np.ndarray, np.ndarray]:
    """The part of each group, the groups of all parts one after another; and the first group of each part."""
    counts = np.array([len(p.ptr) - 1 for p in parts])
    return np.repeat(np.arange(len(parts)), counts), np.cumsum(counts) - counts


def _joined(parts: list[Sorted]) -> tuple[np.ndarray, np.ndarray]:
    """Offsets of the groups of all parts, and their rows."""
    first = np.cumsum([0, *(len(p.rows) for p in parts)])
    ptr = [p.ptr[:-1] + at for p, at in zip(parts, first)]
    return np.concatenate([*ptr, first[-1:]]), np.concatenate([p.rows for p in parts])


@intrinsic
def _pointer(typing, dtype, address):
    def build(context, builder, signature, arguments):
        return builder.inttoptr(arguments[1], context.get_value_type(signature.return_type))

    return types.CPointer(dtype.dtype)(dtype, address), build


@inner
def _matrix(table, attention, column, number):
    """Its numbers from the first column on, and the stride of its rows."""
    return numba.carray(_pointer(number, table[attention, column]), 1), table[attention, column + 1]


@inner
def _form_features(u, first, by_channel, eps, above, phi, width, features):
    """`above` = relu(P u), phi = above + eps; by_channel: the transpose of P."""
    zero, one = phi.dtype.type(0), phi.dtype.type(1)
    copy(above, 0, zero, features)
    for c in range(width):
        muladd(above, 0, u[first + uintp(c)], by_channel, c * features, features)
    gate(above, 0, zero, above, 0, features)
    copy(phi, 0, eps, features)
    muladd(phi, 0, one, above, 0, features)


@inner
def _write_gradient(dphi, above, by_feature, spread, nil, du, target, first, width, features):
    """By phi to by u."""
    gate(dphi, 0, dphi.dtype.type(0), above, 0, features)
    copy(spread, 0, dphi, 0, features)
    copy(du, 0, dphi.dtype.type(0), width)
    for f in range(features):
        muladd(du, 0, spread[nil + uintp(f)], by_feature, f * width, width)
    copy(target, first, du, 0, width)


@inner
def _sum_entries(begin, end, entry_row, entry_key, value, stride, h, heads, phi, S, channels, features, size):
    """S^T and z of the entries from `begin` to `end`; size: of both together."""
    zero, one = S.dtype.type(0), S.dtype.type(1)
    block, z = local(S.dtype, size), features * channels
    copy(S, 0, zero, size)
    for first in range(begin, end, BLOCK):
        copy(block, 0, zero, size)
        for e in range(first, min(end, first + BLOCK)):
            p, v = (entry_key[uintp(e)] * heads + h) * features, uintp(entry_row[uintp(e)] * stride + h * channels)
            for c in range(channels):
                muladd(block, c * features, value[v + uintp(c)], phi, p, features)
            muladd(block, z, one, phi, p, features)
        muladd(S, 0, one, block, 0, size)


@cache
def _kernels(dtype: torch.dtype, width: int, channels: int, features: int) -> SimpleNamespace:
    """For heads of `width` channels of queries and keys and `channels` of values.

    Features that are taken one by one are read from `spread`, at `nil` + f: `nil` is 0, which LLVM does not know, so
    that a number comes from memory to all lanes in the instruction that multiplies by it, and not out of a register by
    two of its own.

    phi [keys, heads, features]. Sums [groups, heads, size]: S^T [channels, features], then z.
    """
    number, z, size = real(dtype), features * channels, features * channels + features
    zero, one = number(0), number(1)

    @compiled
    def form(
        begin, end, heads, table, attention_of, row_of, ptr, entry_row, group_of, by_channel, by_feature, eps, nil, phi
    ):
        above, own = local(number, features), local(number, features)
        for k in range(begin, end):
            key, stride = _matrix(table, attention_of[k], KEY, number)
            for h in range(heads):
                _form_features(key, uintp(row_of[k] * stride + h * width), by_channel, eps, above, own, width, features)
                copy(phi, (k * heads + h) * features, own, 0, features)

    @compiled
    def forward(begin, end, heads, table, attention_of, entry_ptr, entry_row, entry_key, query_ptr, query_row,
                by_channel, by_feature, eps, nil, phi):  # fmt: skip
        above, own, spread = local(number, features), local(number, features), local(number, features)
        S, turned, read = local(number, size), local(number, size), local(number, channels)
        for unit in range(begin, end):
            g, h = unit // heads, unit % heads
            query, query_stride = _matrix(table, attention_of[g], QUERY, number)
            value, value_stride = _matrix(table, attention_of[g], VALUE, number)
            out, out_stride = _matrix(table, attention_of[g], OUT, number)
            _sum_entries(
                entry_ptr[g], entry_ptr[g + 1], entry_row, entry_key, value, value_stride, h, heads, phi, S, channels,
                features, size,
            )  # fmt: skip
            move(S, 0, 1, features, features, channels, one, turned, 0, channels, 1)
            for r in range(query_ptr[g], query_ptr[g + 1]):
                row = query_row[uintp(r)]
                _form_features(
                    query, uintp(row * query_stride + h * width), by_channel, eps, above, own, width, features
                )
                copy(spread, 0, own, 0, features)
                below = dot(own, 0, S, z, features)
                copy(read, 0, zero, channels)
                for f in range(features):
                    muladd(read, 0, spread[nil + uintp(f)], turned, f * channels, channels)
                mul(out, row * out_stride + h * channels, one / (one if below == zero else below), read, 0, channels)

    @compiled
    def backward_by_group(begin, end, heads, table, attention_of, entry_ptr, entry_row, entry_key, query_ptr, query_row,
                          by_channel, by_feature, eps, nil, phi, dsums):  # fmt: skip
        """Gradients of queries, of the sums, and of values."""
        above, own, dphi = local(number, features), local(number, features), local(number, features)
        spread, share = local(number, features), local(number, channels)
        S, dS, block, turned = local(number, size), local(number, size), local(number, size), local(number, size)
        du, dv = local(number, width), local(number, channels)
        for unit in range(begin, end):
            g, h = unit // heads, unit % heads
            query, query_stride = _matrix(table, attention_of[g], QUERY, number)
            value, value_stride = _matrix(table, attention_of[g], VALUE, number)
            out, out_stride = _matrix(table, attention_of[g], OUT, number)
            grad, grad_stride = _matrix(table, attention_of[g], GRAD, number)
            dquery, dquery_stride = _matrix(table, attention_of[g], DQUERY, number)
            dvalue, dvalue_stride = _matrix(table, attention_of[g], DVALUE, number)
            _sum_entries(
                entry_ptr[g], entry_ptr[g + 1], entry_row, entry_key, value, value_stride, h, heads, phi, S, channels,
                features, size,
            )  # fmt: skip
            copy(dS, 0, zero, size)
            for first in range(query_ptr[g], query_ptr[g + 1], BLOCK):
                copy(block, 0, zero, size)
                for r in range(first, min(query_ptr[g + 1], first + BLOCK)):
                    row = query_row[uintp(r)]
                    _form_features(
                        query, uintp(row * query_stride + h * width), by_channel, eps, above, own, width, features
                    )
                    below = dot(own, 0, S, z, features)
                    inverse = one / (one if below == zero else below)
                    place = row * grad_stride + h * channels
                    by_z = -inverse * dot(grad, place, out, row * out_stride + h * channels, channels)
                    mul(share, 0, inverse, grad, place, channels)
                    mul(dphi, 0, by_z, S, z, features)
                    muladd(block, z, by_z, own, 0, features)
                    for c in range(channels):
                        muladd(dphi, 0, share[nil + uintp(c)], S, c * features, features)
                        muladd(block, c * features, share[nil + uintp(c)], own, 0, features)
                    _write_gradient(
                        dphi, above, by_feature, spread, nil, du, dquery, row * dquery_stride + h * width, width,
                        features,
                    )  # fmt: skip
                muladd(dS, 0, one, block, 0, size)
            copy(dsums, unit * size, dS, 0, size)
            move(dS, 0, 1, features, features, channels, one, turned, 0, channels, 1)
            for e in range(entry_ptr[g], entry_ptr[g + 1]):
                p = uintp((entry_key[uintp(e)] * heads + h) * features)
                copy(dv, 0, zero, channels)
                for f in range(features):
                    muladd(dv, 0, phi[p + uintp(f)], turned, f * channels, channels)
                copy(dvalue, entry_row[uintp(e)] * dvalue_stride + h * channels, dv, 0, channels)

    @compiled
    def backward_by_key(
        begin, end, heads, table, attention_of, row_of, ptr, entry_row, group_of, by_channel, by_feature, eps, nil,
        dsums,
    ):  # fmt: skip
        """Gradients of keys."""
        above, own, dphi = local(number, features), local(number, features), local(number, features)
        spread, du = local(number, features), local(number, width)
        for k in range(begin, end):
            key, stride = _matrix(table, attention_of[k], KEY, number)
            value, value_stride = _matrix(table, attention_of[k], VALUE, number)
            dkey, dkey_stride = _matrix(table, attention_of[k], DKEY, number)
            for h in range(heads):
                _form_features(key, uintp(row_of[k] * stride + h * width), by_channel, eps, above, own, width, features)
                copy(dphi, 0, zero, features)
                for e in range(ptr[k], ptr[k + 1]):
                    dS = (group_of[uintp(e)] * heads + h) * size
                    v = uintp(entry_row[uintp(e)] * value_stride + h * channels)
                    muladd(dphi, 0, one, dsums, dS + z, features)
                    for c in range(channels):
                        muladd(dphi, 0, value[v + uintp(c)], dsums, dS + c * features, features)
                _write_gradient(
                    dphi, above, by_feature, spread, nil, du, dkey, row_of[k] * dkey_stride + h * width, width, features
                )

    return SimpleNamespace(
        features=form, forward=forward, backward_by_group=backward_by_group, backward_by_key=backward_by_key
    )
