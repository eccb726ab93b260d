"""Gated sL2 attention (PPGT, Eq. 5) as a compiled CPU kernel: one head of one graph at a time, each graph at its own size.

No weight of a pair is stored: lanes run along the keys, and backward forms the weights of a row again from its maximum and inverse sum.
Bias and gate are the two largest tensors of a layer; backward leaves their gradients in their places.
"""

import math
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gt_models.nn.llvm import Emitter, Library, in_threads


class GatedAttentionCompiled(torch.autograd.Function):
    """qkv [N, 3 d] of all heads, bias and gate [H, P] over the flat pairs of each graph -> [N, d]; float32 or float64, contiguous, CPU.

    Bias and gate belong to this call alone: their memory holds their gradients after backward. A second backward raises autograd's own
    error. `units`: see `attention_units`.
    """

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, bias: Tensor, gate: Tensor, scale: float, simplified_l2: bool, units: Tensor) -> Tensor:
        num_heads, dim = bias.size(0), qkv.size(1) // 3
        y, stats = qkv.new_empty(qkv.size(0), dim), qkv.new_empty(2, num_heads, qkv.size(0))
        kernel = _kernel(qkv.dtype, dim // num_heads)
        kernel.run("forward", units, [qkv, bias, gate, y, stats], num_heads, scale, simplified_l2)
        ctx.save_for_backward(qkv, bias, gate, y, stats, units)
        ctx.scale, ctx.simplified_l2 = scale, simplified_l2
        return y

    @staticmethod
    @once_differentiable
    @torch.autocast("cpu", enabled=False)  # backward may be called inside autocast
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        qkv, bias, gate, y, stats, units = ctx.saved_tensors
        torch.autograd.graph.increment_version((bias, gate))
        dqkv = torch.empty_like(qkv)
        kernel = _kernel(qkv.dtype, y.size(1) // bias.size(0))
        kernel.run("backward", units, [qkv, bias, gate, y, stats, dy.contiguous(), dqkv], bias.size(0), ctx.scale, ctx.simplified_l2)
        return dqkv, bias, gate, None, None, None


def attention_units(ptr: Tensor, pair_ptr: Tensor, sizes: Tensor, num_heads: int) -> Tensor:
    """Heads of graphs as long [B H, 4]: first node, number of nodes, first pair, head."""
    columns = torch.stack([ptr[: sizes.numel()], sizes, pair_ptr[: sizes.numel()]], 1).repeat_interleave(num_heads, 0)
    return torch.cat([columns, torch.arange(num_heads).repeat(sizes.numel())[:, None]], 1).contiguous()


class _Kernel:
    def __init__(self, dtype: torch.dtype, head_dim: int):
        emitters = [kind(dtype, head_dim) for kind in (_Forward, _Backward)]
        self.like, self.dtype, self.library = emitters[0], dtype, Library(emitters)

    def run(self, name: str, units: Tensor, tensors: list[Tensor], num_heads: int, scale: float, simplified_l2: bool) -> None:
        num_threads, cost = max(1, min(torch.get_num_threads(), len(units))), (units[:, 1] ** 2).cumsum(0)
        cuts = torch.searchsorted(cost, cost[-1] * torch.arange(1, num_threads) // num_threads) if len(units) else cost
        bounds = [0, *cuts.tolist(), len(units)]
        padded = -(-int(units[:, 1].max()) // self.like.lanes) * self.like.lanes if len(units) else 0
        work = torch.empty(num_threads, self.like.scratch(padded) + 64, dtype=self.dtype)
        numbers = (num_heads, tensors[1].size(1), tensors[0].size(0), padded)
        key_scale = -0.5 * self.like.head_dim**-0.5 if simplified_l2 else 0.0

        def part(t: int) -> None:
            aligned = -(-work[t].data_ptr() // 64) * 64
            pointers = [x.data_ptr() for x in tensors]
            self.library[name](units.data_ptr(), bounds[t], bounds[t + 1], *pointers, *numbers, scale, key_scale, aligned)

        in_threads(part, num_threads)


@cache
def _kernel(dtype: torch.dtype, head_dim: int) -> _Kernel:
    return _Kernel(dtype, head_dim)


class _Gated(Emitter):
    """What both functions share. Channels are padded to whole vectors where rows of them are added up."""

    tensors: tuple[str, ...]

    def __init__(self, dtype: torch.dtype, head_dim: int):
        super().__init__(dtype)
        self.head_dim = head_dim
        self.blocks = -(-head_dim // self.lanes)

    def scratch(self, padded: int) -> int:
        return padded * (2 * self.head_dim + 5) + 2 * padded * self.blocks * self.lanes

    @property
    def arguments(self) -> list[tuple[str, str]]:
        pointers, numbers = (
            [("ptr", name) for name in self.tensors],
            [("i64", n) for n in ("num_heads", "num_pairs", "num_nodes", "padded")],
        )
        limits = [("ptr", "units"), ("i64", "begin"), ("i64", "end")]
        return [*limits, *pointers, *numbers, (self.real, "scale"), (self.real, "key_scale"), ("ptr", "work")]

    def body(self) -> None:
        d = self.head_dim
        self.dim = self.integer("mul", "%num_heads", d)
        # arrays along the keys: channels of keys and values, and one number each
        self.keys = "%work"
        self.values = self.at("%work", ("%padded", d))
        arrays = [self.at("%work", ("%padded", 2 * d + i)) for i in range(5)]
        self.lengths, self.scores, self.weights, self.dscores, self.sums = arrays
        # rows of channels, one per key
        self.dkeys = self.at("%work", ("%padded", 2 * d + 5))
        self.dvalues = self.at(self.dkeys, ("%padded", self.blocks * self.lanes))
        with self.loop("%begin", "%end") as u:
            unit = self.at("%units", (u, 4), kind="i64")
            self.node, self.n, self.pair, self.head = (self.scalar(self.at(unit, i, kind="i64"), "i64") for i in range(4))
            self.column = self.integer("mul", self.head, d)
            self.tiles = self.op(f"sdiv i64 {self.integer('add', self.n, self.lanes - 1)}, {self.lanes}")
            self.unit()

    def unit(self) -> None:
        raise TypeError(f"{type(self).__name__} does not say what is done with a unit")

    # -- where things are

    def qkv(self, array: str, which: int, row: str) -> str:
        """This head's queries (0), keys (1) or values (2) of a node of the graph."""
        return self.at(array, (self.integer("add", self.node, row), self.integer("mul", self.dim, 3)), (self.dim, which), self.column)

    def row(self, array: str, row: str) -> str:
        return self.at(array, (self.integer("add", self.node, row), self.dim), self.column)

    def pairs(self, array: str, i: str, first: str) -> str:
        return self.at(array, (self.head, "%num_pairs"), self.pair, (i, self.n), first)

    def stat(self, which: int, i: str) -> str:
        return self.at("%stats", (self.integer("mul", "%num_heads", "%num_nodes"), which), (self.head, "%num_nodes"), self.node, i)

    def channels(self, b: str) -> str:
        return self.first_lanes(self.integer("sub", self.head_dim, self.integer("mul", b, self.lanes)), self.lanes)

    def keys_of(self, tile: str) -> tuple[str, str]:
        """First key of a tile, and which of its lanes are keys."""
        first = self.integer("mul", tile, self.lanes)
        return first, self.first_lanes(self.integer("sub", self.n, first), self.lanes)

    # -- pieces

    def turn(self, which: int, array: str) -> None:
        """Channels of keys or values along the lanes; zeros beyond the last key."""
        with self.loop(0, self.integer("mul", self.tiles, self.lanes)) as j:
            inside = self.op(f"icmp slt i64 {j}, {self.n}")
            source = self.qkv("%qkv", which, self.minimum(j, self.integer("sub", self.n, 1)))
            for c in range(self.head_dim):
                value = self.op(f"select i1 {inside}, {self.real} {self.scalar(self.at(source, c))}, {self.real} 0.0")
                self.lines.append(f"  store {self.real} {value}, ptr {self.at(array, ('%padded', c), j)}")

    def measure_keys(self) -> None:
        """-|k|^2 / (2 sqrt(d)) of each key (Eq. 4)."""
        with self.loop(0, self.tiles) as t:
            total = self.constant(0.0)
            for c in range(self.head_dim):
                k = self.load(self.at(self.keys, ("%padded", c), (t, self.lanes)))
                total = self.fma(k, k, total)
            self.store(self.mul(total, self.splat("%key_scale")), self.tile(self.lengths, (t, 1)))

    def dots(self, scalars: list[str], array: str, tile: str) -> str:
        sums = [self.constant(0.0), self.constant(0.0)]
        for c, scalar in enumerate(scalars):
            sums[c % 2] = self.fma(scalar, self.load(self.at(array, ("%padded", c), (tile, self.lanes))), sums[c % 2])
        return self.add(*sums)

    def logits(self, query: list[str], i: str, tile: str) -> tuple[str, str, str]:
        """Logits of a row's tile of keys in base 2, its first key and its mask; far below all others beyond the last key."""
        first, mask = self.keys_of(tile)
        bias = self.masked_load(self.pairs("%bias", i, first), mask, self.lanes, self.constant(-1e30))
        score = self.fma(
            self.dots(query, self.keys, tile), self.splat("%scale"), self.add(bias, self.load(self.tile(self.lengths, (tile, 1))))
        )
        return self.mul(score, self.constant(1 / math.log(2))), first, mask

    def scalars(self, pointer: str) -> list[str]:
        return [self.broadcast(self.at(pointer, c)) for c in range(self.head_dim)]

    def reduce(self, operation: str, vector: str) -> str:
        name = f"llvm.vector.reduce.{operation}.v{self.lanes}f{8 * self.size}"
        start = f"{self.real} -0.0, " if operation == "fadd" else ""
        kinds = f"{self.real}, {self.vec()}" if operation == "fadd" else self.vec()
        self.declared.add(f"declare {self.real} @{name}({kinds})")
        return self.op(f"call reassoc {self.real} @{name}({start}{self.vec()} {vector})")

    def only(self, mask: str, value: str) -> str:
        return self.op(f"select <{self.lanes} x i1> {mask}, {self.vec()} {value}, {self.vec()} zeroinitializer")

    def put_number(self, value: str, pointer: str) -> None:
        self.lines.append(f"  store {self.real} {value}, ptr {pointer}")


class _Forward(_Gated):
    """softmax(logits) times gate, times the values."""

    name = "forward"
    tensors = ("qkv", "bias", "gate", "y", "stats")

    def unit(self) -> None:
        self.turn(1, self.keys)
        self.measure_keys()
        with self.loop(0, self.n) as i:
            query, largest = self.scalars(self.qkv("%qkv", 0, i)), self.variable(self.vec(), self.constant(-1e30))
            with self.loop(0, self.tiles) as t:
                score, _, _ = self.logits(query, i, t)
                self.store(score, self.tile(self.scores, (t, 1)))
                self.put(largest, self.greater(score, self.get(largest)))
            top = self.reduce("fmax", self.get(largest))
            top_vector, total = self.splat(top), self.variable(self.vec(), self.constant(0.0))
            with self.loop(0, self.tiles) as t:
                _, mask = self.keys_of(t)
                e = self.only(mask, self.exp2(self.sub(self.load(self.tile(self.scores, (t, 1))), top_vector)))
                self.put(total, self.add(self.get(total), e))
                self.store(e, self.tile(self.scores, (t, 1)))
            inverse = self.op(f"fdiv {self.real} 1.0, {self.reduce('fadd', self.get(total))}")
            self.put_number(top, self.stat(0, i))
            self.put_number(inverse, self.stat(1, i))
            inverse = self.splat(inverse)
            with self.loop(0, self.tiles) as t:
                first, mask = self.keys_of(t)
                gate = self.masked_load(self.pairs("%gate", i, first), mask, self.lanes, "zeroinitializer")
                weight = self.mul(self.mul(self.load(self.tile(self.scores, (t, 1))), inverse), gate)
                self.store(weight, self.tile(self.weights, (t, 1)))
            out = self.row("%y", i)
            with self.loop(0, self.blocks) as b:
                mask, total = self.channels(b), self.variable(self.vec(), self.constant(0.0))
                with self.loop(0, self.n) as j:
                    value = self.masked_load(self.tile(self.qkv("%qkv", 2, j), (b, 1)), mask, self.lanes, "zeroinitializer")
                    self.put(total, self.fma(self.broadcast(self.at(self.weights, j)), value, self.get(total)))
                self.masked_store(self.get(total), self.tile(out, (b, 1)), mask, self.lanes)


class _Backward(_Gated):
    """Gradients by queries, keys, values, bias and gate, the last two in the places of these."""

    name = "backward"
    tensors = ("qkv", "bias", "gate", "y", "stats", "dy", "dqkv")

    def unit(self) -> None:
        self.turn(1, self.keys)
        self.turn(2, self.values)
        self.measure_keys()
        with self.loop(0, self.tiles) as t:
            self.store("zeroinitializer", self.tile(self.sums, (t, 1)))
        with self.loop(0, self.integer("mul", self.n, self.blocks)) as k:
            for array in (self.dkeys, self.dvalues):
                self.store("zeroinitializer", self.tile(array, (k, 1)))
        with self.loop(0, self.n) as i:
            self._row(i)
        with self.loop(0, self.n) as j, self.loop(0, self.blocks) as b:
            mask, place = self.channels(b), self.tile("%work", (0, 1))
            for which, array in ((1, self.dkeys), (2, self.dvalues)):
                place = self.tile(self.qkv("%dqkv", which, j), (b, 1))
                gradient = self.load(self.tile(array, (j, self.blocks), (b, 1)))
                if which == 1:  # of the scaled product, and of |k|^2, whose gradient is 2 k
                    key = self.masked_load(self.tile(self.qkv("%qkv", 1, j), (b, 1)), mask, self.lanes, "zeroinitializer")
                    factor = self.mul(self.mul(self.broadcast(self.at(self.sums, j)), self.splat("%key_scale")), self.constant(2.0))
                    gradient = self.fma(key, factor, self.mul(gradient, self.splat("%scale")))
                self.masked_store(gradient, place, mask, self.lanes)

    def _row(self, i: str) -> None:
        query, grad, out = self.qkv("%qkv", 0, i), self.row("%dy", i), self.row("%y", i)
        # sum over keys of weight times its gradient: <dy, y>
        total = self.variable(self.vec(), self.constant(0.0))
        with self.loop(0, self.blocks) as b:
            mask = self.channels(b)
            one, other = (self.masked_load(self.tile(p, (b, 1)), mask, self.lanes, "zeroinitializer") for p in (grad, out))
            self.put(total, self.fma(one, other, self.get(total)))
        inner = self.splat(self.reduce("fadd", self.get(total)))
        top, inverse = self.broadcast(self.stat(0, i)), self.broadcast(self.stat(1, i))
        queries, grads = self.scalars(query), self.scalars(grad)
        with self.loop(0, self.tiles) as t:
            score, first, mask = self.logits(queries, i, t)
            p = self.only(mask, self.mul(self.exp2(self.sub(score, top)), inverse))
            gate_place = self.pairs("%gate", i, first)
            dweight = self.dots(grads, self.values, t)
            weight = self.mul(p, self.masked_load(gate_place, mask, self.lanes, "zeroinitializer"))
            self.masked_store(self.mul(p, dweight), gate_place, mask, self.lanes)
            dscore = self.sub(self.mul(weight, dweight), self.mul(p, inner))
            self.masked_store(dscore, self.pairs("%bias", i, first), mask, self.lanes)
            self.store(weight, self.tile(self.weights, (t, 1)))
            self.store(dscore, self.tile(self.dscores, (t, 1)))
            place = self.tile(self.sums, (t, 1))
            self.store(self.add(self.load(place), dscore), place)
        with self.loop(0, self.blocks) as b:
            mask, dquery = self.channels(b), self.variable(self.vec(), self.constant(0.0))
            row, gradient = (self.masked_load(self.tile(p, (b, 1)), mask, self.lanes, "zeroinitializer") for p in (query, grad))
            with self.loop(0, self.n) as j:
                dscore, weight = self.broadcast(self.at(self.dscores, j)), self.broadcast(self.at(self.weights, j))
                key = self.masked_load(self.tile(self.qkv("%qkv", 1, j), (b, 1)), mask, self.lanes, "zeroinitializer")
                self.put(dquery, self.fma(dscore, key, self.get(dquery)))
                for array, factor, vector in ((self.dkeys, dscore, row), (self.dvalues, weight, gradient)):
                    place = self.tile(array, (j, self.blocks), (b, 1))
                    self.store(self.fma(factor, vector, self.load(place)), place)
            place = self.tile(self.qkv("%dqkv", 0, i), (b, 1))
            self.masked_store(self.mul(self.get(dquery), self.splat("%scale")), place, mask, self.lanes)
