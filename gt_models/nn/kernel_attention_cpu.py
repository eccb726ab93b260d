"""Kernel attention (Kim et al. 2021, Eq. 21, generalized kernel) as a compiled CPU kernel: no feature of a query or key is ever stored.

The sums over a group's keys, phi(K) (V, 1)^T, are a few hundred numbers per head. They are formed in a core's first cache and read there
by the group's queries; rows are gathered and written where they lie. Backward forms them again. The groups of a node are done one after
another (local); a class whose group is a whole graph (global) sums in pieces, which are added up between two passes. Every entry of every
result has one writer: the bits do not depend on the number of threads.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from gt_models.nn.llvm import Emitter, Library, in_threads
from gt_models.nn.tuples import segment_sum

_PIECE = 512  # keys, or queries, of one piece of a global class


class Heads(NamedTuple):
    """Number of heads, width of a head's queries and keys, width of its values."""

    count: int
    width: int
    value: int


class Grouping:
    """Keys and queries of one class by group, as the kernel walks over them.

    Args:
        keys, queries: long, group of each key and each query.
        num_groups: number of groups.
        source: row of each key's features; None: key e has row e.
        local: see above.
    """

    def __init__(self, keys: Tensor, queries: Tensor, num_groups: int, source: Tensor | None, local: bool):
        self.num_groups, self.local = num_groups, local
        self.key_ptr, self.entry, self.key_group = _units(keys, num_groups, local)
        self.query_ptr, self.query_row, self.query_group = _units(queries, num_groups, local)
        self.key_row = self.entry if source is None else source[self.entry]
        self._shares: dict[tuple[str, int], Tensor] = {}

    def shares(self, of: str, num_threads: int) -> Tensor:
        """Bounds of each thread's units, long [num_threads + 1], in shares of equally many rows of "keys", "queries" or "both"."""
        if (of, num_threads) not in self._shares:
            ptr = {"keys": self.key_ptr, "queries": self.query_ptr}.get(of)
            ptr = self.key_ptr + self.query_ptr if ptr is None else ptr
            ends = torch.searchsorted(ptr, ptr[-1] * torch.arange(1, num_threads) // num_threads)
            self._shares[of, num_threads] = torch.cat([ends.new_zeros(1), ends, ends.new_tensor([ptr.numel() - 1])])
        return self._shares[of, num_threads]


class Plan(NamedTuple):
    """Classes that sum over the same entries: (number of the tensor, first column) of their keys and of their values, how many they are,
    and where many entries share a key, the entries of each key as (ptr, order)."""

    key: tuple[int, int]
    value: tuple[int, int]
    count: int
    shared: tuple[Tensor, Tensor] | None


class Slot(NamedTuple):
    """One class: its grouping, number of its plan and place there, and (number of the tensor, first column) of its queries and output."""

    grouping: Grouping
    plan: int
    place: int
    query: tuple[int, int]
    out: tuple[int, int]


@dataclass(frozen=True)
class Layer:
    """All classes of one attention layer. `shapes`: of the outputs. `rest`: a tensor of rows and how many of its last columns are neither
    queries nor keys."""

    heads: Heads
    plans: Sequence[Plan]
    slots: Sequence[Slot]
    shapes: Sequence[tuple[int, int]]
    rest: tuple[int, int] | None
    eps: float


def attend(layer: Layer, rows: Sequence[Tensor], values: Sequence[Tensor], projection: Tensor) -> tuple[list[Tensor], Tensor | None]:
    """phi(Q_j)^T sums / Z_j for all classes, phi(u) = relu(projection u) + eps (Eq. 21); and the rest of the rows.

    Args:
        rows: queries and keys [r, width] of each order; a row's queries of one class are in one group.
        values: [r, classes x width] of the plans that sum over the same rows.
        projection: [features, width of a head], the kernel's scale in it. float32 or float64, all on the CPU.
    """
    *out, rest = _Attend.apply(layer, len(rows), projection.clone(), *rows, *values)
    return out, None if layer.rest is None else rest


class _Attend(Function):
    @staticmethod
    def forward(ctx: Any, layer: Layer, num_rows: int, projection: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        tensors = tuple(t.contiguous() for t in tensors)
        out = [projection.new_empty(shape) for shape in layer.shapes]
        kernel, run = _prepare(layer, projection)
        sums, first, second = [], [], []
        for slot in layer.slots:
            g, where = slot.grouping, kernel.places(layer, slot, tensors[:num_rows], tensors[num_rows:], out)
            if g.local:
                first.append(kernel.task(g, "both", where, sums=True, queries=True))
                sums.append(None)
            else:
                sums.append(projection.new_empty(len(g.key_group), layer.heads.count, kernel.size))
                first.append(kernel.task(g, "keys", where, at=(sums[-1], None), sums=True))
        run("forward", first)
        for i, slot in enumerate(layer.slots):
            if sums[i] is not None:
                g, where = slot.grouping, kernel.places(layer, slot, tensors[:num_rows], tensors[num_rows:], out)
                sums[i] = _add_up(sums[i], g.key_group, g.num_groups)
                second.append(kernel.task(g, "queries", where, at=(sums[i], g.query_group), queries=True))
        run("forward", second)
        ctx.layer, ctx.num_rows, ctx.sums = layer, num_rows, sums
        ctx.save_for_backward(projection, *tensors)
        rest = projection.new_empty(0) if layer.rest is None else tensors[layer.rest[0]][:, -layer.rest[1] :].clone()
        return *out, rest

    @staticmethod
    @once_differentiable
    @torch.autocast("cpu", enabled=False)  # backward may be called inside autocast
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        projection, *tensors = ctx.saved_tensors
        layer, width = ctx.layer, ctx.layer.heads.count * ctx.layer.heads.width
        grads = [g.contiguous() for g in grads]
        into = [torch.empty_like(t) for t in tensors]  # queries, keys and the rest fill every column of a row
        rows, values = tensors[: ctx.num_rows], tensors[ctx.num_rows :]
        drows, dvalues = into[: ctx.num_rows], into[ctx.num_rows :]
        # gradients of shared keys stand by entry first
        shared = {p.key: projection.new_empty(values[p.value[0]].size(0), p.count * width) for p in layer.plans if p.shared is not None}
        kernel, run = _prepare(layer, projection)
        first, second, kept = [], [], []
        for slot, total in zip(layer.slots, ctx.sums, strict=True):
            g, where = (
                slot.grouping,
                kernel.places(layer, slot, rows, values, grads, drows, dvalues, shared.get(layer.plans[slot.plan].key)),
            )
            if g.local:
                first.append(kernel.task(g, "both", where, sums=True, queries=True, keys=True))
            else:
                kept.append((slot, where, projection.new_empty(len(g.query_group), layer.heads.count, kernel.size)))
                first.append(kernel.task(g, "queries", where, at=(total, g.query_group), to=(kept[-1][2], None), queries=True))
        run("backward", first)
        totals = [_add_up(pieces, slot.grouping.query_group, slot.grouping.num_groups) for slot, _, pieces in kept]
        for (slot, where, _), total in zip(kept, totals, strict=True):
            second.append(kernel.task(slot.grouping, "keys", where, to=(total, slot.grouping.key_group), keys=True))
        run("backward", second)
        for plan in (p for p in layer.plans if p.shared is not None):
            tensor, column = plan.key
            drows[tensor][:, column : column + plan.count * width] = segment_sum(shared[plan.key], *plan.shared)
        if layer.rest is not None:
            drows[layer.rest[0]][:, -layer.rest[1] :] = grads[-1]
        return None, None, None, *into


def _units(group: Tensor, num_groups: int, local: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Offsets of each unit of rows, the rows in order, and the group of each unit: a whole group, or a piece of one."""
    sizes, order = torch.bincount(group, minlength=num_groups), torch.argsort(group, stable=True)
    if local:
        return torch.cat([sizes.new_zeros(1), sizes.cumsum(0)]), order, torch.arange(num_groups)
    pieces = -(-sizes // _PIECE)
    of_piece = torch.repeat_interleave(torch.arange(num_groups), pieces)
    number = torch.arange(of_piece.numel()) - (pieces.cumsum(0) - pieces)[of_piece]
    return torch.cat([(sizes.cumsum(0) - sizes)[of_piece] + number * _PIECE, sizes.sum()[None]]), order, of_piece


def _add_up(pieces: Tensor, group: Tensor, num_groups: int) -> Tensor:
    return pieces.new_zeros(num_groups, *pieces.shape[1:]).index_add_(0, group, pieces)


def _prepare(layer: Layer, projection: Tensor) -> tuple["_Kernel", Any]:
    kernel = _kernel(projection.dtype, layer.heads.width, layer.heads.value, projection.size(0))
    constants = kernel.constants(projection, layer.eps)
    return kernel, lambda name, tasks: kernel.run(name, tasks, layer.heads.count, constants)


# what the compiled functions are told of one class, in this order
_FIELDS = ("bounds", "key_ptr", "key_row", "entry", "query_ptr", "query_row", "sums", "sums_index", "sums_step", "sums_head")
_FIELDS += ("dsums", "dsums_index", "dsums_step", "dsums_head", "do_sums", "do_queries", "do_keys")
_FIELDS += ("query", "query_step", "key", "key_step", "value", "value_step", "out", "out_step")
_FIELDS += ("dkey", "dkey_step", "dvalue", "dvalue_step", "dquery", "dquery_step")


class _Kernel:
    """The two functions for one type and one set of widths."""

    def __init__(self, dtype: torch.dtype, width: int, value: int, features: int):
        emitters = [kind(dtype, width, value, features) for kind in (_Forward, _Backward)]
        self.like, self.dtype, self.library = emitters[0], dtype, Library(emitters)
        self.size = self.like.features * self.like.values  # numbers of a head's sums

    def constants(self, projection: Tensor, eps: float) -> list[Tensor]:
        e, (m, d) = self.like, projection.shape
        padded = projection.new_zeros(e.features, e.channels)
        padded[:m, :d] = projection
        by_channel = padded.view(-1, e.lanes, e.channels).transpose(1, 2)[:, :d].contiguous()  # [blocks of features, channel, lanes]
        added, ones = projection.new_zeros(e.features), projection.new_zeros(e.values)
        added[:m], ones[e.value] = eps, 1.0
        return [by_channel, padded, added, ones]

    def places(self, layer: Layer, slot: Slot, rows, values, out, drows=None, dvalues=None, shared=None) -> list[int]:
        """Address and step of each array that the class reads and writes."""
        heads, plan = layer.heads, layer.plans[slot.plan]
        key, value = slot.place * heads.count * heads.width, slot.place * heads.count * heads.value
        arrays = [(rows, slot.query, 0), (rows, plan.key, key), (values, plan.value, value), (out, slot.out, 0)]
        if drows is not None:
            arrays.append((drows, plan.key, key) if shared is None else ([shared], (0, 0), key))
            arrays += [(dvalues, plan.value, value), (drows, slot.query, 0)]
        found = [(tensors[number], first + more) for tensors, (number, first), more in arrays]
        return [number for t, column in found for number in (t.data_ptr() + column * t.element_size(), t.size(1))]

    def task(self, g: Grouping, of: str, where: list[int], at=None, to=None, sums=False, queries=False, keys=False) -> list[int]:
        """One class' entry in the table. `at`, `to`: (array, index of each unit or None) of its sums and of their gradient, if not local."""
        bounds = g.shares(of, torch.get_num_threads())
        numbers = [t.data_ptr() for t in (bounds, g.key_ptr, g.key_row, g.entry, g.query_ptr, g.query_row)]
        for array in (at, to):
            if array is None:
                numbers += [0, 0, 0, 0]
            else:
                numbers += [array[0].data_ptr(), 0 if array[1] is None else array[1].data_ptr(), array[0].size(1) * self.size, self.size]
        numbers += [int(sums), int(queries), int(keys), *where]
        return numbers + [0] * (len(_FIELDS) - len(numbers))

    def run(self, name: str, tasks: list[list[int]], num_heads: int, constants: list[Tensor]) -> None:
        if not tasks:
            return
        num_threads, table = torch.get_num_threads(), torch.tensor(tasks, dtype=torch.long)
        work = torch.empty(num_threads, self.like.scratch + 64, dtype=self.dtype)
        pointers = [t.data_ptr() for t in constants]

        def part(t: int) -> None:
            aligned = -(-work[t].data_ptr() // 64) * 64
            self.library[name](table.data_ptr(), len(tasks), t, num_heads, *pointers, aligned)

        in_threads(part, num_threads)


@cache
def _kernel(dtype: torch.dtype, width: int, value: int, features: int) -> _Kernel:
    return _Kernel(dtype, width, value, features)


class _Attention(Emitter):
    """What both functions share. Features, values and channels are padded to whole vectors; sums are [features, values], 1 after the last
    value, so that the column after the last value adds up to Z."""

    def __init__(self, dtype: torch.dtype, width: int, value: int, features: int):
        super().__init__(dtype)
        self.width, self.value = width, value
        blocks = [-(-size // self.lanes) for size in (features, value + 1, width)]
        self.feature_blocks, self.value_blocks, self.channel_blocks = blocks
        self.features, self.values, self.channels = (b * self.lanes for b in blocks)
        self.scratch = 2 * self.features + 2 * self.values + 4 * self.features * self.values

    @property
    def arguments(self) -> list[tuple[str, str]]:
        numbers = [("i64", name) for name in ("num_tasks", "thread", "num_heads")]
        return [("ptr", "table"), *numbers, *[("ptr", name) for name in ("by_channel", "projection", "eps", "ones", "work")]]

    def body(self) -> None:
        size = self.features * self.values
        self.phi, self.dphi = "%work", self.at("%work", self.features)
        self.read, self.vector = self.at("%work", 2 * self.features), self.at("%work", 2 * self.features + self.values)
        local = self.at("%work", 2 * self.features + 2 * self.values)
        local_gradient, self.turned = self.at(local, size), self.at(local, 2 * size)
        with self.loop(0, "%num_tasks") as number:
            line = self.at("%table", (number, len(_FIELDS)), kind="i64")
            self.told = {name: self.scalar(self.at(line, i, kind="i64"), "i64") for i, name in enumerate(_FIELDS)}
            begin = self.number("bounds", "%thread")
            end = self.number("bounds", self.integer("add", "%thread", 1))
            with self.loop(begin, end) as unit:
                # the rows of a unit lie far apart: fetched while the unit before is worked on
                self.prefetch(self.minimum(self.integer("add", unit, 1), self.integer("sub", end, 1)))
                with self.loop(0, "%num_heads") as head:
                    self.head = head
                    self.unit(
                        unit, lambda: self.matrix("sums", unit, head, local), lambda: self.matrix("dsums", unit, head, local_gradient)
                    )

    def unit(self, unit: str, sums, dsums) -> None:
        raise TypeError(f"{type(self).__name__} does not say what is done with a unit")

    def fetch(self, name: str, index: str, width: int) -> None:
        """Asks for all heads of a row."""
        function = "llvm.prefetch.p0"
        self.declared.add(f"declare void @{function}(ptr, i32, i32, i32)")
        first = self.at(self.pointer(name), (index, self.told[name + "_step"]))
        with self.loop(0, self.integer("mul", "%num_heads", width), 64 // self.size) as c:
            self.lines.append(f"  call void @{function}(ptr {self.at(first, c)}, i32 0, i32 3, i32 1)")

    # -- what the table tells

    def pointer(self, name: str) -> str:
        return self.op(f"inttoptr i64 {self.told[name]} to ptr")

    def number(self, name: str, index: str) -> str:
        """Entry of a table of whole numbers."""
        return self.scalar(self.at(self.pointer(name), index, kind="i64"), "i64")

    def row(self, name: str, index: str, width: int) -> str:
        """This head's part of a row."""
        return self.at(self.pointer(name), (index, self.told[name + "_step"]), (self.head, width))

    def matrix(self, name: str, unit: str, head: str, local: str) -> str:
        """The unit's sums of this head: in the class' array, or where there is none in this thread's memory."""
        found = self.variable("ptr", local)
        there = self.op(f"zext i1 {self.op(f'icmp ne i64 {self.told[name]}, 0')} to i64")
        with self.loop(0, there):
            index = self.variable("i64", unit)
            listed = self.op(f"icmp ne i64 {self.told[name + '_index']}, 0")
            listed = self.op(f"zext i1 {listed} to i64")
            with self.loop(0, listed):
                self.put(index, self.number(name + "_index", unit), "i64")
            place = self.at(self.pointer(name), (self.get(index, "i64"), self.told[name + "_step"]), (head, self.told[name + "_head"]))
            self.put(found, place, "ptr")
        return self.get(found, "ptr")

    def rows(self, unit: str, ptr: str):
        """Loop over the rows of a unit."""
        return self.loop(self.number(ptr, unit), self.number(ptr, self.integer("add", unit, 1)))

    # -- arithmetic on this thread's vectors

    def form_features(self, u: str) -> None:
        """phi of one query or key."""
        scalars = [self.broadcast(self.at(u, c)) for c in range(self.width)]
        with self.loop(0, self.feature_blocks) as b:
            sums = [self.constant(0.0), self.constant(0.0)]
            for c, scalar in enumerate(scalars):
                sums[c % 2] = self.fma(scalar, self.load(self.tile("%by_channel", (b, self.width), (c, 1))), sums[c % 2])
            pre = self.add(*sums)
            negative = self.op(f"fcmp olt {self.vec()} {pre}, zeroinitializer")
            pre = self.op(f"select <{self.lanes} x i1> {negative}, {self.vec()} zeroinitializer, {self.vec()} {pre}")
            self.store(self.add(pre, self.load(self.tile("%eps", (b, 1)))), self.tile(self.phi, (b, 1)), aligned=True)

    def read_value(self, v: str) -> None:
        """One row of values and a one after it."""
        with self.loop(0, self.value_blocks) as b:
            other = self.load(self.tile("%ones", (b, 1)))
            self.store(
                self.masked_load(self.tile(v, (b, 1)), self.lanes_of(b, self.value), self.lanes, other),
                self.tile(self.vector, (b, 1)),
                aligned=True,
            )

    def lanes_of(self, block: str, width: int) -> str:
        return self.first_lanes(self.integer("sub", width, self.integer("mul", block, self.lanes)), self.lanes)

    def clear(self, matrix: str) -> None:
        with self.loop(0, self.features * self.value_blocks) as i:
            self.store("zeroinitializer", self.tile(matrix, (i, 1)))

    def add_outer(self, matrix: str) -> None:
        """matrix += phi vector^T."""
        with self.loop(0, self.value_blocks) as b:
            vector = self.load(self.tile(self.vector, (b, 1)), aligned=True)
            with self.loop(0, self.features, self.lanes) as f0:
                for f in range(self.lanes):
                    place = self.tile(matrix, (self.integer("add", f0, f), self.value_blocks), (b, 1))
                    self.store(self.fma(self.broadcast(self.at(self.phi, f0, f)), vector, self.load(place)), place)

    def product(self, scalars: str, matrix: str, b: str, blocks: int, count: int) -> str:
        """Block b of scalars^T matrix, over `count` rows of `blocks` vectors: in four interleaved sums."""
        sums = [self.variable(self.vec(), self.constant(0.0)) for _ in range(4)]
        whole = count // self.lanes * self.lanes

        def add(f: str, k: int) -> None:
            line = self.load(self.tile(matrix, (f, blocks), (b, 1)))
            self.put(sums[k % 4], self.fma(self.broadcast(self.at(scalars, f)), line, self.get(sums[k % 4])))

        with self.loop(0, whole, self.lanes) as f0:
            for k in range(self.lanes):
                add(self.integer("add", f0, k), k)
        for k in range(whole, count):
            add(str(k), k)
        a = [self.get(s) for s in sums]
        return self.add(self.add(a[0], a[1]), self.add(a[2], a[3]))

    def read_sums(self, matrix: str) -> None:
        """read = phi^T matrix."""
        with self.loop(0, self.value_blocks) as b:
            self.store(self.product(self.phi, matrix, b, self.value_blocks, self.features), self.tile(self.read, (b, 1)), aligned=True)

    def inverse(self) -> str:
        """1 / Z of what was read; 1 where there are no keys."""
        z = self.scalar(self.at(self.read, self.value))
        none = self.op(f"fcmp oeq {self.real} {z}, 0.0")
        z = self.op(f"select i1 {none}, {self.real} 1.0, {self.real} {z}")
        return self.splat(self.op(f"fdiv {self.real} 1.0, {z}"))

    def turn(self, matrix: str) -> None:
        """The transposed matrix beside it: [values, features]."""
        with self.loop(0, self.feature_blocks) as a, self.loop(0, self.value_blocks) as b:
            first = self.integer("mul", a, self.lanes)
            lines = [self.load(self.tile(matrix, (self.integer("add", first, k), self.value_blocks), (b, 1))) for k in range(self.lanes)]
            first = self.integer("mul", b, self.lanes)
            for k, line in enumerate(self.transpose(lines, self.lanes)):
                self.store(line, self.tile(self.turned, (self.integer("add", first, k), self.feature_blocks), (a, 1)), aligned=True)

    def write_gradient(self, target: str) -> None:
        """From `vector`, the gradient by what phi^T matrix reads: back through the turned matrix, relu and the projection."""
        with self.loop(0, self.feature_blocks) as b:
            d = self.product(self.vector, self.turned, b, self.feature_blocks, self.value + 1)
            above = self.op(
                f"fcmp ogt {self.vec()} {self.load(self.tile(self.phi, (b, 1)), aligned=True)}, {self.load(self.tile('%eps', (b, 1)))}"
            )
            d = self.op(f"select <{self.lanes} x i1> {above}, {self.vec()} {d}, {self.vec()} zeroinitializer")
            self.store(d, self.tile(self.dphi, (b, 1)), aligned=True)
        with self.loop(0, self.channel_blocks) as b:
            d = self.product(self.dphi, "%projection", b, self.channel_blocks, self.features)
            self.masked_store(d, self.tile(target, (b, 1)), self.lanes_of(b, self.width), self.lanes)

    def add_keys(self, unit: str, sums: str) -> None:
        self.clear(sums)
        with self.rows(unit, "key_ptr") as e:
            self.form_features(self.row("key", self.number("key_row", e), self.width))
            self.read_value(self.row("value", self.number("entry", e), self.value))
            self.add_outer(sums)


class _Forward(_Attention):
    """Sums of each unit's keys, and what its queries read."""

    name = "forward"

    def prefetch(self, unit: str) -> None:
        with self.loop(0, self.told["do_sums"]), self.rows(unit, "key_ptr") as e:
            self.fetch("key", self.number("key_row", e), self.width)
            self.fetch("value", self.number("entry", e), self.value)
        with self.loop(0, self.told["do_queries"]), self.rows(unit, "query_ptr") as r:
            row = self.number("query_row", r)
            self.fetch("query", row, self.width)
            self.fetch("out", row, self.value)

    def unit(self, unit: str, sums, dsums) -> None:
        matrix = sums()
        with self.loop(0, self.told["do_sums"]):
            self.add_keys(unit, matrix)
        with self.loop(0, self.told["do_queries"]), self.rows(unit, "query_ptr") as r:
            row = self.number("query_row", r)
            self.form_features(self.row("query", row, self.width))
            self.read_sums(matrix)
            inverse, out = self.inverse(), self.row("out", row, self.value)
            with self.loop(0, self.value_blocks) as b:
                value = self.mul(self.load(self.tile(self.read, (b, 1)), aligned=True), inverse)
                self.masked_store(value, self.tile(out, (b, 1)), self.lanes_of(b, self.value), self.lanes)


class _Backward(_Attention):
    """The sums once more; gradients of each unit's queries and by its sums; from these the gradients of its keys and values."""

    name = "backward"

    def prefetch(self, unit: str) -> None:
        with self.loop(0, self.told["do_keys"]), self.rows(unit, "key_ptr") as e:
            entry = self.number("entry", e)
            self.fetch("key", self.number("key_row", e), self.width)
            self.fetch("value", entry, self.value)
            self.fetch("dkey", entry, self.width)
            self.fetch("dvalue", entry, self.value)
        with self.loop(0, self.told["do_queries"]), self.rows(unit, "query_ptr") as r:
            row = self.number("query_row", r)
            self.fetch("query", row, self.width)
            self.fetch("out", row, self.value)
            self.fetch("dquery", row, self.width)

    def unit(self, unit: str, sums, dsums) -> None:
        matrix, gradient = sums(), dsums()
        with self.loop(0, self.told["do_sums"]):
            self.add_keys(unit, matrix)
        with self.loop(0, self.told["do_queries"]):
            self.turn(matrix)
            self.clear(gradient)
            with self.rows(unit, "query_ptr") as r:
                row = self.number("query_row", r)
                self.form_features(self.row("query", row, self.width))
                self.read_sums(matrix)
                self._read_gradient(self.row("out", row, self.value))
                self.write_gradient(self.row("dquery", row, self.width))
                self.add_outer(gradient)
        with self.loop(0, self.told["do_keys"]):
            self.turn(gradient)
            with self.rows(unit, "key_ptr") as e:
                row, entry = self.number("key_row", e), self.number("entry", e)
                self.form_features(self.row("key", row, self.width))
                self.read_value(self.row("value", entry, self.value))
                self.read_sums(gradient)
                target = self.row("dvalue", entry, self.value)
                with self.loop(0, self.value_blocks) as b:
                    value = self.load(self.tile(self.read, (b, 1)), aligned=True)
                    self.masked_store(value, self.tile(target, (b, 1)), self.lanes_of(b, self.value), self.lanes)
                self.write_gradient(self.row("dkey", entry, self.width))

    def _read_gradient(self, grad: str) -> None:
        """Of above / Z: grad / Z for what is above, -<grad, above / Z> / Z for Z."""
        inverse, inner = self.inverse(), self.variable(self.vec(), self.constant(0.0))

        def scaled(b: str) -> str:
            d = self.masked_load(self.tile(grad, (b, 1)), self.lanes_of(b, self.value), self.lanes, "zeroinitializer")
            d, out = self.mul(d, inverse), self.mul(self.load(self.tile(self.read, (b, 1)), aligned=True), inverse)
            self.put(inner, self.fma(d, out, self.get(inner)))
            return d

        last = self.value_blocks - 1
        with self.loop(0, last) as b:
            self.store(scaled(b), self.tile(self.vector, (b, 1)), aligned=True)
        d = scaled(str(last))
        name = f"llvm.vector.reduce.fadd.v{self.lanes}f{8 * self.size}"
        self.declared.add(f"declare {self.real} @{name}({self.real}, {self.vec()})")
        total = self.op(f"call reassoc {self.real} @{name}({self.real} -0.0, {self.vec()} {self.get(inner)})")
        total = self.op(f"fneg {self.real} {total}")
        # put in its place before the store: a vector read over two stores waits for both
        d = self.op(f"insertelement {self.vec()} {d}, {self.real} {total}, i64 {self.value - last * self.lanes}")
        self.store(d, self.tile(self.vector, (last, 1)), aligned=True)
