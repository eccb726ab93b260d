"""Kernel attention within groups on the CPU: no feature of a query or key is kept for the backward pass.

The sums over a group's keys are a few hundred numbers per head. They are formed in a core's first cache and read there by the group's
queries; the backward pass forms them again. Large groups are summed in pieces, which are added up between two passes. A pass is one call for
all attentions of a layer, so that it costs the interpreter little.
"""

# mypy: disable-error-code="arg-type"

from collections.abc import Callable, Sequence
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numba import carray, types
from numba.extending import intrinsic
from torch import Tensor
from torch.autograd.function import once_differentiable

from gt_models.kernels.compiled import axpy, compiled, dot, fill, gate, inner, local, real, run, run_parts
from gt_models.kernels.kernel_attention import Attention, Grouped

PIECE = 512  # entries, or queries, of one piece of a large group
uintp = np.uintp  # of an index without a sign Numba does not ask whether it counts from the end: three instructions for each number read
A, FIRST_ENTRY, LAST_ENTRY, FIRST_QUERY, LAST_QUERY, READ, WRITE, READ_GRADIENT = range(8)  # of a unit, see `_Plan`


class _KernelAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, attentions, heads, channels, projection, eps, *given) -> tuple[Tensor, ...]:
        plan, size = _plan(attentions, channels * heads, len(given)), len(projection) * (channels + 1)
        kernels = _kernels(projection.dtype, projection.size(1), channels, len(projection))
        matrices = [_rows(m) for m in given]
        outs = [projection.new_empty(rows, count * heads * channels) for rows, count in plan.outputs]
        table = _table(plan, 4, [*matrices, *outs])
        ends = (projection.T.flatten().numpy(), real(projection.dtype)(eps))
        features = plan.features(kernels, table, heads, projection, ends)
        sums = projection.new_empty(len(plan.of_entries), heads * size)
        arguments = (plan.units, *plan.rows, table, heads, features)
        _run(kernels.forward, plan.bounds(0), *arguments, sums.numpy().reshape(-1), *ends, uintp(0))
        if len(plan.of_entries):
            sums = sums.new_zeros(plan.num_groups, heads * size).index_add_(0, plan.of_entries, sums)
            _run(kernels.forward, plan.bounds(1), *arguments, sums.numpy().reshape(-1), *ends, uintp(0))
        ctx.save_for_backward(projection, sums, *matrices, *outs)
        ctx.plan, ctx.sizes, ctx.eps = plan, (heads, channels, len(matrices)), eps
        return tuple(outs)

    @staticmethod
    @once_differentiable
    def backward(ctx, *grads: Tensor):
        heads, channels, num_matrices = ctx.sizes
        projection, sums, *saved = ctx.saved_tensors
        plan, matrices, outs, of_outs = ctx.plan, saved[:num_matrices], saved[num_matrices:], [_rows(g) for g in grads]
        width, size = projection.size(1), len(projection) * (channels + 1)
        kernels = _kernels(projection.dtype, width, channels, len(projection))
        written = len(plan.number) * heads * (2 * width + channels)  # of all columns, each by one attention
        whole = written == sum(m.size(1) for m in matrices)
        gradients = [m.new_empty(m.shape) if whole else m.new_zeros(m.shape) for m in matrices]
        table = _table(plan, 8, [*matrices, *outs, *of_outs, *gradients])
        ends = (projection.T.flatten().numpy(), real(projection.dtype)(ctx.eps))
        by_feature = projection.flatten().numpy()
        features = plan.features(kernels, table, heads, projection, ends)
        of_entries = projection.new_empty(len(plan.rows[0]) * heads * len(projection)).numpy()  # gradients of features
        dsums = projection.new_empty(len(plan.of_queries), heads * size)
        arguments = (plan.units, *plan.rows, table, heads, features, of_entries, sums.numpy().reshape(-1))
        _run(kernels.backward, plan.bounds(2), *arguments, dsums.numpy().reshape(-1), by_feature, *ends, uintp(0))
        if len(plan.of_queries):
            dsums = dsums.new_zeros(plan.num_groups, heads * size).index_add_(0, plan.of_queries, dsums)
            _run(kernels.backward, plan.bounds(3), *arguments, dsums.numpy().reshape(-1), by_feature, *ends, uintp(0))
        arguments = (plan.owner, plan.first_key, *plan.users, table, heads, of_entries, by_feature, *ends, uintp(0))
        run(kernels.key_gradients, len(plan.owner), *arguments, grain=1024)
        return None, None, None, None, None, *gradients


kernel_attention = _KernelAttention.apply


def _run(kernel: Callable[..., None], bounds: list[int], *arguments: Any) -> None:
    """As `run_parts`; with one part the kernel itself, since there are many calls and each is short."""
    if len(bounds) == 2:
        kernel(*bounds, *arguments)
    else:
        run_parts(kernel, bounds, *arguments)


class _Plan:
    """What passes over several attentions do, by their places and groups alone.

    A thread does one unit after another: whole groups, or pieces of the entries and of the queries where any group of an attention is large.
    A unit reads and writes rows of sums, and of their gradients; -1 is none. Keys have numbers over all attentions, and so have entries and
    queries, group by group.

    Attributes:
        number, first: [attentions, 8], the matrix and the first column of query, key, value, output, and the gradients of output, query, key
            and value; matrices come first, then outputs, then gradients of these, then of those.
        outputs: rows of each output, and how many attentions are side by side in it.
        units: long [units, 8], of four passes one after another: forward, forward of pieces of queries, backward, backward of pieces of entries.
        rows: the key, the row of values, of each entry; the row of each query.
        of_entries, of_queries: the group of each piece of entries, and of queries.
        owner, first_key, users: the attention of each key, the number of its first key; the entries of each key, as offsets and order.
    """

    def __init__(self, attentions: Sequence[Attention], width: int, num_matrices: int):
        outs = [a.out for a in attentions]
        self.outputs = [(len(attentions[outs.index(out)].groups.queries.of), outs.count(out)) for out in sorted(set(outs))]
        columns = [width * (at - outs.index(out)) for at, out in enumerate(outs)]
        places = [(a.query, a.key, a.value, (num_matrices + a.out, at)) for a, at in zip(attentions, columns, strict=True)]
        number, first = np.array(places).transpose(2, 0, 1)
        later = number + len(self.outputs) + np.array([1, 1, 1, 0]) * num_matrices  # gradients are in the same order
        later[:, :3] += len(self.outputs)
        self.number, self.first = (np.concatenate([x, y[:, [3, 0, 1, 2]]], 1) for x, y in ((number, later), (first, first)))
        self.others = [a.groups for a in attentions if a.groups is not attentions[0].groups]  # `_plan` knows them by their identity
        passes: list[list[np.ndarray]] = [[], [], [], []]
        keys, entries, queries, of_entries, of_queries, owners, first_key, users, user_ptr = ([] for _ in range(9))
        at_entry = at_query = num_keys = self.num_groups = pieces = query_pieces = 0
        for at, a in enumerate(attentions):
            groups = a.groups
            whole = _largest(groups.entries) <= PIECE and _largest(groups.queries) <= PIECE
            entry_ptr, entry, of_entry = _units(groups.entries, whole)
            query_ptr, query, of_query = _units(groups.queries, whole)
            of_rows = (entry_ptr + at_entry, query_ptr + at_query)
            if whole:
                passes[0].append(_unit(at, *of_rows))
                passes[2].append(_unit(at, *of_rows))
            else:
                own, theirs, group = np.arange(len(of_entry)) + pieces, np.arange(len(of_query)) + query_pieces, self.num_groups
                passes[0].append(_unit(at, of_rows[0], None, write=own))
                passes[1].append(_unit(at, None, of_rows[1], read=of_query.numpy() + group))
                passes[2].append(_unit(at, None, of_rows[1], read=of_query.numpy() + group, write=theirs))
                passes[3].append(_unit(at, of_rows[0], None, read_gradient=of_entry.numpy() + group))
                of_entries.append(of_entry + group)
                of_queries.append(of_query + group)
                pieces, query_pieces = pieces + len(own), query_pieces + len(theirs)
                self.num_groups += groups.entries.num_groups
            place = _kept(groups.entries, "places", partial(np.argsort, entry))  # of each entry, the other way round
            key_ptr, of_key = (np.arange(len(entry) + 1), place) if groups.key is None else _units(groups.key, True)[:2]
            keys.append((entry if groups.key is None else groups.key.of.numpy()[entry]) + num_keys)
            owners.append(np.full(len(key_ptr) - 1, at))
            first_key.append(num_keys)
            num_keys += len(key_ptr) - 1
            users.append((place if groups.key is None else place[of_key]) + at_entry)
            user_ptr.append(key_ptr[:-1] + at_entry)
            entries.append(entry)
            queries.append(query)
            at_entry, at_query = at_entry + len(entry), at_query + len(query)
        self.units = np.concatenate([unit for units in passes for unit in units])
        self.ends = np.cumsum([0] + [sum(map(len, units)) for units in passes])
        self.rows = tuple(np.concatenate(rows) for rows in (keys, entries, queries))
        self.of_entries, self.of_queries = (torch.cat(of) if of else torch.empty(0, dtype=torch.long) for of in (of_entries, of_queries))
        self.owner, self.first_key = np.concatenate(owners), np.array(first_key)
        self.users = np.concatenate([*user_ptr, [at_entry]]), np.concatenate(users)
        self._bounds: dict[tuple[int, int], list[int]] = {}

    def features(self, kernels: SimpleNamespace, table: np.ndarray, heads: int, projection: Tensor, ends: tuple[Any, ...]) -> np.ndarray:
        """Of every key."""
        features = projection.new_empty(len(self.owner) * heads * len(projection)).numpy()
        run(kernels.key_features, len(self.owner), self.owner, self.first_key, table, heads, features, *ends, grain=1024)
        return features

    def bounds(self, number: int) -> list[int]:
        """Of each thread's units in a pass, in shares of about as many rows."""
        num_threads = torch.get_num_threads()
        if (number, num_threads) not in self._bounds:
            begin, end = self.ends[number : number + 2]
            units = self.units[begin:end]
            rows = np.cumsum(units[:, LAST_ENTRY] - units[:, FIRST_ENTRY] + units[:, LAST_QUERY] - units[:, FIRST_QUERY])
            parts = max(1, min(num_threads, int(rows[-1]) // PIECE)) if len(rows) else 1
            cuts = [begin + np.searchsorted(rows, rows[-1] * part // parts) for part in range(1, parts)]
            self._bounds[number, num_threads] = [int(begin), *map(int, cuts), int(end)]
        return self._bounds[number, num_threads]


def _unit(
    attention: int, entries: np.ndarray | None, queries: np.ndarray | None, read: Any = -1, write: Any = -1, read_gradient: Any = -1
) -> np.ndarray:
    """Units with these rows, as offsets."""
    units = np.zeros((len(queries if entries is None else entries) - 1, 8), np.int64)
    units[:, A] = attention
    for first, ptr in ((FIRST_ENTRY, entries), (FIRST_QUERY, queries)):
        if ptr is not None:
            units[:, first], units[:, first + 1] = ptr[:-1], ptr[1:]
    units[:, READ], units[:, WRITE], units[:, READ_GRADIENT] = read, write, read_gradient
    return units


def _plan(attentions: Sequence[Attention], width: int, num_matrices: int) -> _Plan:
    """Kept where its groups are: layers of one kind share it."""
    kept = attentions[0].groups.plans
    key = (width, num_matrices, *((*a[:3], a.out, id(a.groups)) for a in attentions))
    if key not in kept:
        kept[key] = _Plan(attentions, width, num_matrices)
    return kept[key]


def _kept(rows: Grouped, what: Any, build: Callable[[], Any]) -> Any:
    if what not in rows.kept:
        rows.kept[what] = build()
    return rows.kept[what]


def _sizes(rows: Grouped) -> Tensor:
    return _kept(rows, "sizes", lambda: torch.bincount(rows.of, minlength=rows.num_groups))


def _largest(rows: Grouped) -> int:
    return _kept(rows, "largest", lambda: int(_sizes(rows).max()) if rows.num_groups else 0)


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


def _rows(t: Tensor) -> Tensor:
    """[r, width] with contiguous rows: columns of a wide matrix are not copied."""
    return t if t.stride(1) == 1 or t.size(1) == 1 else t.contiguous()


def _table(plan: "_Plan", places: int, tensors: Sequence[Tensor]) -> np.ndarray:
    """Address and stride of each place of each attention in these matrices."""
    address, stride = (np.array(values) for values in ([t.data_ptr() for t in tensors], [t.stride(0) for t in tensors]))
    table, number = np.empty((len(plan.number), 2 * places), np.int64), plan.number[:, :places]
    table[:, ::2] = address[number] + plan.first[:, :places] * tensors[0].element_size()
    table[:, 1::2] = stride[number]
    return table


@intrinsic
def _pointer(typing, address, dtype):
    """To numbers at an address."""

    def build(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], context.get_data_type(dtype.dtype).as_pointer())

    return types.CPointer(dtype.dtype)(address, dtype), build


@inner
def _numbers(table, attention, place, dtype):
    """The numbers from a place of `table` on."""
    return carray(_pointer(table[attention, 2 * place], dtype), 1)


@cache
def _kernels(dtype: torch.dtype, width: int, channels: int, features: int) -> SimpleNamespace:
    """For heads of `width` channels of queries and keys and `channels` of values.

    Features that are taken one by one are read from `spread`, at `nil` + f: `nil` is 0, which LLVM does not know, so that a number comes from
    memory to all lanes in the instruction that multiplies by it, and not out of a register by two of its own.

    `table` has address and stride of query, key, value and output of each attention, then of the gradients of output, query, key and value.
    sums [rows x heads x size]: S [features, channels], then z; their gradients S by [channels, features].
    """
    number = real(dtype)
    zero, one = number(0), number(1)
    z, size = features * channels, features * channels + features

    @inner
    def form_features(u, first, by_channel, eps, above, phi, at):
        """above = relu(P u), phi = above + eps; by_channel: the transpose of P."""
        fill(above, 0, zero, above, 0, features)
        for c in range(width):
            axpy(above, 0, u[first + uintp(c)], by_channel, c * features, features)
        gate(above, 0, zero, above, 0, features)
        fill(phi, at, eps, phi, at, features)
        axpy(phi, at, one, above, 0, features)

    @inner
    def write_gradient(dphi, spread, nil, above, by_feature, du, target, first):
        """By phi to by u."""
        gate(dphi, 0, zero, above, 0, features)
        fill(spread, 0, zero, spread, 0, features)
        axpy(spread, 0, one, dphi, 0, features)
        fill(du, 0, zero, du, 0, width)
        for f in range(features):
            axpy(du, 0, spread[nil + uintp(f)], by_feature, f * width, width)
        fill(target, first, zero, target, first, width)
        axpy(target, first, one, du, 0, width)

    @compiled
    def key_features(begin, end, owner, first_key, table, heads, phis, by_channel, eps):
        above = local(number, features)
        for k in range(begin, end):
            key, row = _numbers(table, owner[k], 1, number), (k - first_key[owner[k]]) * table[owner[k], 3]
            for h in range(heads):
                form_features(key, uintp(row + h * width), by_channel, eps, above, phis, (k * heads + h) * features)

    @compiled
    def forward(begin, end, units, key_of, entry_row, query_row, table, heads, phis, sums, by_channel, eps, nil):
        above, phi, S, read = local(number, features), local(number, features), local(number, size), local(number, channels)
        spread = local(number, features)
        for unit in range(begin, end):
            a = units[unit, A]
            query, value, out = _numbers(table, a, 0, number), _numbers(table, a, 2, number), _numbers(table, a, 3, number)
            query_stride, value_stride, out_stride = table[a, 1], table[a, 5], table[a, 7]
            for h in range(heads):
                fill(S, 0, zero, S, 0, size)
                if units[unit, READ] >= 0:
                    axpy(S, 0, one, sums, (units[unit, READ] * heads + h) * size, size)
                for e in range(units[unit, FIRST_ENTRY], units[unit, LAST_ENTRY]):
                    k = uintp((key_of[uintp(e)] * heads + h) * features)
                    v = entry_row[uintp(e)] * value_stride + h * channels
                    for f in range(features):
                        axpy(S, f * channels, phis[k + uintp(f)], value, v, channels)
                    axpy(S, z, one, phis, k, features)
                if units[unit, WRITE] >= 0:
                    to = (units[unit, WRITE] * heads + h) * size
                    fill(sums, to, zero, sums, to, size)
                    axpy(sums, to, one, S, 0, size)
                for r in range(units[unit, FIRST_QUERY], units[unit, LAST_QUERY]):
                    row = query_row[uintp(r)]
                    form_features(query, uintp(row * query_stride + h * width), by_channel, eps, above, phi, 0)
                    fill(spread, 0, zero, spread, 0, features)
                    axpy(spread, 0, one, phi, 0, features)
                    below = dot(phi, 0, S, z, features)
                    fill(read, 0, zero, read, 0, channels)
                    for f in range(features):
                        axpy(read, 0, spread[nil + uintp(f)], S, f * channels, channels)
                    o = row * out_stride + h * channels
                    fill(out, o, zero, out, o, channels)
                    axpy(out, o, one / (one if below == zero else below), read, 0, channels)

    @compiled
    def backward(begin, end, units, key_of, entry_row, query_row, table, heads, phis, dphis, sums, dsums,
                 by_feature, by_channel, eps, nil):  # fmt: skip
        """The gradients of features of keys are of entries."""
        above, phi, dphi = local(number, features), local(number, features), local(number, features)
        spread, scaled = local(number, features), local(number, channels)
        # [channels, features] and z, where vectors go over features; `turned` [features, channels]
        S, dS, turned, du, dv = local(number, size), local(number, size), local(number, size), local(number, width), local(number, channels)
        for unit in range(begin, end):
            a = units[unit, A]
            query, value, out = _numbers(table, a, 0, number), _numbers(table, a, 2, number), _numbers(table, a, 3, number)
            grad, dquery, dvalue = _numbers(table, a, 4, number), _numbers(table, a, 5, number), _numbers(table, a, 7, number)
            query_stride, value_stride, out_stride, grad_stride = table[a, 1], table[a, 5], table[a, 7], table[a, 9]
            dquery_stride, dvalue_stride = table[a, 11], table[a, 15]
            first_entry, last_entry = units[unit, FIRST_ENTRY], units[unit, LAST_ENTRY]
            for h in range(heads):
                fill(S, 0, zero, S, 0, size)
                fill(dS, 0, zero, dS, 0, size)
                if units[unit, READ_GRADIENT] >= 0:
                    axpy(dS, 0, one, dsums, (units[unit, READ_GRADIENT] * heads + h) * size, size)
                elif units[unit, READ] >= 0:
                    at = uintp((units[unit, READ] * heads + h) * size)
                    for f in range(features):
                        for c in range(channels):
                            S[c * features + f] = sums[at + uintp(f * channels + c)]
                    axpy(S, z, one, sums, at + uintp(z), features)
                else:
                    for e in range(first_entry, last_entry):
                        k, v = uintp((key_of[uintp(e)] * heads + h) * features), uintp(entry_row[uintp(e)] * value_stride + h * channels)
                        for c in range(channels):
                            axpy(S, c * features, value[v + uintp(c)], phis, k, features)
                        axpy(S, z, one, phis, k, features)
                for r in range(units[unit, FIRST_QUERY], units[unit, LAST_QUERY]):
                    row = query_row[uintp(r)]
                    form_features(query, uintp(row * query_stride + h * width), by_channel, eps, above, phi, 0)
                    below = dot(phi, 0, S, z, features)
                    inverse = one / (one if below == zero else below)
                    g = row * grad_stride + h * channels
                    by_z = -inverse * dot(grad, g, out, row * out_stride + h * channels, channels)
                    fill(scaled, 0, zero, scaled, 0, channels)
                    axpy(scaled, 0, inverse, grad, g, channels)
                    fill(dphi, 0, zero, dphi, 0, features)
                    axpy(dphi, 0, by_z, S, z, features)
                    axpy(dS, z, by_z, phi, 0, features)
                    for c in range(channels):
                        axpy(dphi, 0, scaled[nil + uintp(c)], S, c * features, features)
                        axpy(dS, c * features, scaled[nil + uintp(c)], phi, 0, features)
                    write_gradient(dphi, spread, nil, above, by_feature, du, dquery, row * dquery_stride + h * width)
                if units[unit, WRITE] >= 0:
                    to = (units[unit, WRITE] * heads + h) * size
                    fill(dsums, to, zero, dsums, to, size)
                    axpy(dsums, to, one, dS, 0, size)
                for f in range(features):
                    for c in range(channels):
                        turned[f * channels + c] = dS[c * features + f]
                for e in range(first_entry, last_entry):
                    row = entry_row[uintp(e)]
                    k, v = uintp((key_of[uintp(e)] * heads + h) * features), uintp(row * value_stride + h * channels)
                    fill(dphi, 0, zero, dphi, 0, features)
                    axpy(dphi, 0, one, dS, z, features)
                    for c in range(channels):
                        axpy(dphi, 0, value[v + uintp(c)], dS, c * features, features)
                    to = (e * heads + h) * features
                    fill(dphis, to, zero, dphis, to, features)
                    axpy(dphis, to, one, dphi, 0, features)
                    fill(dv, 0, zero, dv, 0, channels)
                    for f in range(features):
                        axpy(dv, 0, phis[k + uintp(f)], turned, f * channels, channels)
                    fill(dvalue, row * dvalue_stride + h * channels, zero, dvalue, row * dvalue_stride + h * channels, channels)
                    axpy(dvalue, row * dvalue_stride + h * channels, one, dv, 0, channels)

    @compiled
    def key_gradients(begin, end, owner, first_key, ptr, order, table, heads, dphis, by_feature, by_channel, eps, nil):
        above, phi, dphi = local(number, features), local(number, features), local(number, features)
        spread, du = local(number, features), local(number, width)
        for k in range(begin, end):
            a, row = owner[k], k - first_key[owner[k]]
            key, dkey = _numbers(table, a, 1, number), _numbers(table, a, 6, number)
            for h in range(heads):
                fill(dphi, 0, zero, dphi, 0, features)
                for place in range(ptr[k], ptr[k + 1]):
                    axpy(dphi, 0, one, dphis, (order[place] * heads + h) * features, features)
                form_features(key, uintp(row * table[a, 3] + h * width), by_channel, eps, above, phi, 0)
                write_gradient(dphi, spread, nil, above, by_feature, du, dkey, row * table[a, 13] + h * width)

    return SimpleNamespace(key_features=key_features, forward=forward, backward=backward, key_gradients=key_gradients)
