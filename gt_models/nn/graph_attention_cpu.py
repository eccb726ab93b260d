"""Attention over neighbours (GAT, Velickovic et al. 2018) as a compiled CPU kernel over compressed rows.

Only the weights of edges are stored, with the sign of their score, which is all that leaky ReLU's derivative asks for. Each node's
row is read once per edge forward (by target) and once backward (by source): there the product of a target's gradient with the source's
value gives the gradient of the edge's weight while the same row adds to the gradient of the value. Every number is written by one thread
in one order: results do not depend on the number of threads.
"""

import math
from collections.abc import Iterator
from functools import cache

import torch
from torch import Tensor

from gt_models.nn.llvm import Emitter, Library, in_threads, vector_bytes

_BLOCK = 1024  # rows whose sums over nodes are added up together: by blocks, and not by threads, so that threads do not change a sum
_CHUNK = 8  # vectors of channels that stay in registers side by side: of several small heads, or of a part of a large one


@torch.library.custom_op("gt_models::graph_attention_cpu", mutates_args=())
def graph_attention(
    value: Tensor, att_source: Tensor, att_target: Tensor, ptr: Tensor, col: Tensor, ptr_t: Tensor, col_t: Tensor, perm_t: Tensor,
    negative_slope: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """out [N, H * C] and signed weights [B, E, P] of value [N, H * C], att_source and att_target [H, C], all of one dtype.

    ptr [N + 1], col [E]: sources by target; ptr_t, col_t: targets by source; perm_t: entries of the first at entries of the second
    (`Neighbourhood` of one head). A node with no incoming edge gets zeros. B and P: `_blocks`.
    """
    value, att_source, att_target = value.contiguous(), att_source.contiguous(), att_target.contiguous()
    (n, dim), heads, edges = value.shape, att_source.size(0), col.numel()
    blocks, padded = _blocks(heads, value.dtype)
    out, weights, scores = torch.empty_like(value), value.new_empty(blocks, edges, padded), value.new_empty(2, blocks, n, padded)
    functions, numbers = _library(value.dtype, col.dtype, heads, dim // heads), (n, edges, negative_slope)
    _run(functions["scores"], _even(n), [value, att_source, att_target, scores], numbers)
    _run(functions["forward"], _by_edges(ptr), [value, scores, ptr, col, weights, out], numbers)
    return out, weights


@graph_attention.register_fake
def _(value, att_source, att_target, ptr, col, ptr_t, col_t, perm_t, negative_slope):
    blocks, padded = _blocks(att_source.size(0), value.dtype)
    return value.new_empty(value.shape), value.new_empty(blocks, col.numel(), padded)


@torch.library.custom_op("gt_models::graph_attention_cpu_backward", mutates_args=())
def _backward(
    grad: Tensor, weights: Tensor, value: Tensor, att_source: Tensor, att_target: Tensor, ptr: Tensor, ptr_t: Tensor, col_t: Tensor,
    perm_t: Tensor, negative_slope: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Gradients of value and of both attention vectors [2, H, C]."""
    grad, value, att_source, att_target = (t.contiguous() for t in (grad, value, att_source, att_target))
    (n, dim), heads, (blocks, edges, padded) = value.shape, att_source.size(0), weights.shape
    functions, numbers = _library(value.dtype, ptr.dtype, heads, dim // heads), (n, edges, negative_slope)
    # what stands in the places of heads that only fill a vector stays in their lanes
    grad_value, grad_weights, grad_target = torch.empty_like(value), torch.empty_like(weights), value.new_empty(blocks, n, padded)
    _run(functions["by_source"], _by_edges(ptr_t), [value, grad, weights, ptr_t, col_t, perm_t, grad_weights, grad_value], numbers)
    _run(functions["softmax"], _by_edges(ptr), [weights, ptr, grad_weights, grad_target], numbers)
    sums = value.new_zeros(-(-n // _BLOCK), 2, *att_source.shape)
    tensors = [value, grad_weights, grad_target, ptr_t, perm_t, att_source, att_target, grad_value, sums]
    _run(functions["close"], _even(n), tensors, numbers)
    return grad_value, sums.sum(0)


@_backward.register_fake
def _(grad, weights, value, att_source, att_target, ptr, ptr_t, col_t, perm_t, negative_slope):
    return value.new_empty(value.shape), value.new_empty(2, *att_source.shape)


def _save(ctx, inputs, output):
    value, att_source, att_target, ptr, _, *transposed, ctx.negative_slope = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(output[1], value, att_source, att_target, ptr, *transposed)


def _gradient(ctx, grad, _):
    if grad is None:
        return (None,) * 9
    with torch.autocast("cpu", enabled=False):  # backward may be called inside autocast
        grad_value, (grad_source, grad_target) = _backward(grad, *ctx.saved_tensors, ctx.negative_slope)
    return grad_value, grad_source, grad_target, None, None, None, None, None, None


graph_attention.register_autograd(_gradient, setup_context=_save)


def _blocks(num_heads: int, dtype: torch.dtype) -> tuple[int, int]:
    """B blocks of P heads: the least power of two that holds them all, a vector at most, so that a vector has the heads of whole edges."""
    padded = min(1 << (num_heads - 1).bit_length(), vector_bytes() // dtype.itemsize)
    return -(-num_heads // padded), padded


def _run(function, bounds: list[int], tensors: list[Tensor], numbers: tuple) -> None:
    """Rows bounds[t] .. bounds[t + 1] on thread t."""
    pointers = [t.data_ptr() for t in tensors]
    in_threads(lambda t: function(*pointers, bounds[t], bounds[t + 1], *numbers), len(bounds) - 1)


def _even(num_rows: int) -> list[int]:
    """As many whole blocks of rows for each thread."""
    blocks = -(-num_rows // _BLOCK)
    num_threads = max(1, min(torch.get_num_threads(), blocks))
    return [min(num_rows, blocks * t // num_threads * _BLOCK) for t in range(num_threads)] + [num_rows]


def _by_edges(ptr: Tensor) -> list[int]:
    """As many edges for each thread."""
    num_rows, edges = ptr.numel() - 1, int(ptr[-1])
    num_threads = max(1, min(torch.get_num_threads(), num_rows // 64))
    cuts = [int(torch.searchsorted(ptr, edges * t // num_threads)) for t in range(1, num_threads)]
    return [0, *(min(cut, num_rows) for cut in cuts), num_rows]


@cache
def _library(dtype: torch.dtype, index: torch.dtype, num_heads: int, head_dim: int) -> Library:
    return Library([kind(dtype, index, num_heads, head_dim) for kind in (_Scores, _Forward, _BySource, _Softmax, _Close)])


class _Rows(Emitter):
    """Rows begin .. end - 1; edges of a row stand in the places ptr[row] .. ptr[row + 1] - 1."""

    tensors: tuple[str, ...]

    def __init__(self, dtype: torch.dtype, index: torch.dtype, num_heads: int, head_dim: int):
        super().__init__(dtype)
        self.index, self.num_heads, self.head_dim = "i32" if index == torch.int32 else "i64", num_heads, head_dim
        self.dim = num_heads * head_dim
        self.blocks, self.padded = _blocks(num_heads, dtype)
        vectors = range(0, head_dim, self.lanes)  # first channel of each
        self.chunks = [vectors[i : i + _CHUNK] for i in range(0, len(vectors), _CHUNK)]
        # heads whose vectors are one chunk: a row is then read in longer pieces
        self.group = max(g for g in range(1, num_heads + 1) if num_heads % g == 0 and (g == 1 or g * len(vectors) <= _CHUNK))

    @property
    def arguments(self) -> list[tuple[str, str]]:
        numbers = [("i64", name) for name in ("begin", "end", "nodes", "edges")]
        return [("ptr", name) for name in self.tensors] + numbers + [(self.real, "slope")]

    def body(self) -> None:
        with self.loop("%begin", "%end") as row:
            self.row(row)

    def row(self, row: str) -> None:
        raise TypeError(f"{type(self).__name__} does not say what is done with a row")

    # -- channels, of [N, H * C]

    def pieces(self) -> Iterator[tuple[list[str], str, range]]:
        """Heads side by side, first column of theirs, and the channels of each that are one chunk."""
        with self.loop(0, self.num_heads, self.group) as head:
            heads = [self.integer("add", head, h) for h in range(self.group)]
            column = self.integer("mul", head, self.head_dim)
            for chunk in self.chunks:
                yield heads, column, chunk

    def read(self, base: str, c: int, head: int = 0) -> str:
        """A vector of channels from c on, `head` heads after `base`; the last one of a head may be short, and goes on with zeros."""
        left, pointer = self.head_dim - c, self.at(base, head * self.head_dim + c)
        return self.load(pointer) if left >= self.lanes else self.masked_load(pointer, self.short(left), self.lanes, "zeroinitializer")

    def write(self, value: str, base: str, c: int, head: int = 0) -> None:
        left, pointer = self.head_dim - c, self.at(base, head * self.head_dim + c)
        self.store(value, pointer) if left >= self.lanes else self.masked_store(value, pointer, self.short(left), self.lanes)

    def short(self, count: int) -> str:
        return f"<{', '.join(f'i1 {int(i < count)}' for i in range(self.lanes))}>"

    # -- heads, of [B, N or E, P]

    def one(self, array: str, head: str, count: str, index: str) -> str:
        """Pointer to the number of a head and a node (count "%nodes") or an edge ("%edges")."""
        block, lane = self.integer("sdiv", head, self.padded), self.integer("and", head, self.padded - 1)
        return self.at(array, (self.integer("mul", block, count), self.padded), (index, self.padded), lane)

    def of_node(self, array: str, block: str, row: str) -> str:
        """Pointer to the numbers of a node's heads."""
        return self.at(array, (self.integer("mul", block, "%nodes"), self.padded), (row, self.padded))

    def repeated(self, pointer: str) -> str:
        """The numbers of a node's heads, as often as a vector has edges."""
        heads, v = self.load(pointer, self.padded), self.vec(self.padded)
        order = ", ".join(f"i32 {i % self.padded}" for i in range(self.lanes))
        return self.op(f"shufflevector {v} {heads}, {v} poison, <{self.lanes} x i32> <{order}>")

    def over_edges(self, operation: str, vector: str) -> str:
        """Sum ("fadd") or largest ("fmax") of each head's lanes, in all of them."""
        v, step = self.vec(), self.padded
        while step < self.lanes:
            order = ", ".join(f"i32 {i ^ step}" for i in range(self.lanes))
            other = self.op(f"shufflevector {v} {vector}, {v} poison, <{self.lanes} x i32> <{order}>")
            vector = self.add(vector, other) if operation == "fadd" else self.greater(vector, other)
            step *= 2
        return vector

    # -- edges

    def places(self, pointer: str, row: str) -> tuple[str, str]:
        """First and last + 1 entry of a row."""
        return self.whole_number(pointer, row), self.whole_number(pointer, self.integer("add", row, 1))

    def whole_number(self, array: str, place: str) -> str:
        value = self.scalar(self.at(array, place, kind=self.index), self.index)
        return value if self.index == "i64" else self.op(f"sext i32 {value} to i64")

    def tiles(self, first: str, last: str, body) -> None:
        """body(place, mask) for vectors of a row's entries, all of a block's heads of each."""
        with self.loop(first, last, self.lanes // self.padded) as place:
            left = self.integer("mul", self.integer("sub", last, place), self.padded)
            body(place, self.first_lanes(left, self.lanes))

    def block(self, array: str, block: str) -> str:
        """Pointer to a block of [B, E, P]."""
        return self.at(array, (self.integer("mul", block, "%edges"), self.padded))

    def gather(self, base: str, array: str, place: str, mask: str) -> str:
        """Numbers of heads of the rows array[place], array[place + 1], ... of base; zeros beyond the mask."""
        many, all_lanes = self.lanes // self.padded, f"<{self.lanes} x i1>"
        few, indices = self.vec(many, self.index), self.vec(None, self.index)
        first = ", ".join(f"i32 {i * self.padded}" for i in range(many))
        order = ", ".join(f"i32 {i // self.padded}" for i in range(self.lanes))
        lane = ", ".join(f"{self.index} {i % self.padded}" for i in range(self.lanes))
        few_mask = self.op(f"shufflevector {all_lanes} {mask}, {all_lanes} poison, <{many} x i32> <{first}>")
        arguments = [
            ("ptr", self.at(array, place, kind=self.index)),
            ("i32", "4" if self.index == "i32" else "8"),
            (f"<{many} x i1>", few_mask),
        ]
        index = self.call(f"llvm.masked.load.v{many}{self.index}.p0", few, *arguments, (few, "zeroinitializer"))
        index = self.op(f"shufflevector {few} {index}, {few} poison, <{self.lanes} x i32> <{order}>")
        index = self.op(f"mul {indices} {index}, {self.whole_constant(self.padded, self.index)}")
        pointers = self.op(f"getelementptr {self.real}, ptr {base}, {indices} {self.op(f'add {indices} {index}, <{lane}>')}")
        name, kind = f"llvm.masked.gather.v{self.lanes}f{8 * self.size}.v{self.lanes}p0", f"<{self.lanes} x ptr>"
        arguments = [(kind, pointers), ("i32", str(self.size)), (all_lanes, mask), (self.vec(), "zeroinitializer")]
        return self.call(name, self.vec(), *arguments)

    # -- arithmetic

    def size_of(self, value: str) -> str:
        return self.call(f"llvm.fabs.v{self.lanes}f{8 * self.size}", self.vec(), (self.vec(), value))

    def leaky(self, score: str, of: str | None = None) -> str:
        """`of` (the score itself) where the score is positive, else slope times it."""
        of = of or score
        positive = self.op(f"fcmp ogt {self.vec()} {score}, zeroinitializer")
        return self.op(f"select <{self.lanes} x i1> {positive}, {self.vec()} {of}, {self.vec()} {self.mul(of, self.splat('%slope'))}")

    def only(self, mask: str, value: str, other: str = "zeroinitializer") -> str:
        return self.op(f"select <{self.lanes} x i1> {mask}, {self.vec()} {value}, {self.vec()} {other}")

    def total(self, vector: str) -> str:
        name = f"llvm.vector.reduce.fadd.v{self.lanes}f{8 * self.size}"
        self.declared.add(f"declare {self.real} @{name}({self.real}, {self.vec()})")
        return self.op(f"call reassoc {self.real} @{name}({self.real} -0.0, {self.vec()} {vector})")

    def put_number(self, value: str, pointer: str) -> None:
        self.lines.append(f"  store {self.real} {value}, ptr {pointer}")


class _Scores(_Rows):
    """<value, att_source> and <value, att_target> of each node and head, [2, B, N, P]."""

    name = "scores"
    tensors = ("value", "att_source", "att_target", "scores")

    def row(self, row: str) -> None:
        half = self.integer("mul", "%nodes", self.blocks * self.padded)
        with self.loop(0, self.num_heads) as head:
            column = self.integer("mul", head, self.head_dim)
            value = self.at("%value", (row, self.dim), column)
            vectors = [self.at(f"%{name}", column) for name in ("att_source", "att_target")]
            totals = [self.variable(self.vec(), self.constant(0.0)) for _ in vectors]
            for chunk in self.chunks:
                for c in chunk:
                    v = self.read(value, c)
                    for vector, total in zip(vectors, totals, strict=True):
                        self.put(total, self.fma(v, self.read(vector, c), self.get(total)))
            for which, total in enumerate(totals):
                scores = self.at("%scores", (half, which))
                self.put_number(self.total(self.get(total)), self.one(scores, head, "%nodes", row))
        with self.loop(self.num_heads, self.blocks * self.padded) as head:  # heads that only fill a vector
            for which in range(2):
                self.put_number("0.0", self.one(self.at("%scores", (half, which)), head, "%nodes", row))


class _Forward(_Rows):
    """By target: softmax of the scores of a node's edges, and the sum of its sources' values."""

    name = "forward"
    tensors = ("value", "scores", "ptr", "col", "weights", "out")

    def row(self, row: str) -> None:
        first, last = self.places("%ptr", row)
        with self.loop(0, self.blocks) as block:
            self.softmax(row, block, first, last)
        for heads, column, chunk in self.pieces():
            sums = {(h, c): self.variable(self.vec(), self.constant(0.0)) for h in range(self.group) for c in chunk}
            with self.loop(first, last) as e:
                value = self.at("%value", (self.whole_number("%col", e), self.dim), column)
                weight = [self.size_of(self.broadcast(self.one("%weights", head, "%edges", e))) for head in heads]
                for (h, c), total in sums.items():
                    self.put(total, self.fma(weight[h], self.read(value, c, h), self.get(total)))
            for (h, c), total in sums.items():
                self.write(self.get(total), self.at("%out", (row, self.dim), column), c, h)

    def softmax(self, row: str, block: str, first: str, last: str) -> None:
        source, weights = self.of_node("%scores", block, "0"), self.block("%weights", block)
        target = self.repeated(self.of_node(source, str(self.blocks), row))
        lowest = self.constant(-1e30)
        peak, total = self.variable(self.vec(), lowest), self.variable(self.vec(), self.constant(0.0))

        def scores(e, mask):
            score = self.add(self.gather(source, "%col", e, mask), target)
            self.masked_store(score, self.at(weights, (e, self.padded)), mask, self.lanes)
            self.put(peak, self.greater(self.only(mask, self.leaky(score), lowest), self.get(peak)))

        self.tiles(first, last, scores)
        top = self.over_edges("fmax", self.get(peak))

        def exponentials(e, mask):
            place = self.at(weights, (e, self.padded))
            score = self.masked_load(place, mask, self.lanes, "zeroinitializer")
            weight = self.exp2(self.mul(self.sub(self.leaky(score), top), self.constant(1 / math.log(2))))
            self.put(total, self.add(self.get(total), self.only(mask, weight)))
            positive = self.op(f"fcmp ogt {self.vec()} {score}, zeroinitializer")
            signed = self.only(positive, weight, self.op(f"fneg {self.vec()} {weight}"))
            self.masked_store(signed, place, mask, self.lanes)

        self.tiles(first, last, exponentials)
        inverse = self.op(f"fdiv {self.vec()} {self.constant(1.0)}, {self.over_edges('fadd', self.get(total))}")

        def normalise(e, mask):
            place = self.at(weights, (e, self.padded))
            self.masked_store(self.mul(self.masked_load(place, mask, self.lanes, "zeroinitializer"), inverse), place, mask, self.lanes)

        self.tiles(first, last, normalise)


class _BySource(_Rows):
    """By source: gradients of its edges' weights, and what the sums over neighbours give to the gradient of its value."""

    name = "by_source"
    tensors = ("value", "grad", "weights", "ptr_t", "col_t", "perm_t", "grad_weights", "grad_value")

    def row(self, row: str) -> None:
        first, last = self.places("%ptr_t", row)
        for heads, column, chunk in self.pieces():
            value, grad_value = (self.at(f"%{name}", (row, self.dim), column) for name in ("value", "grad_value"))
            values = {(h, c): self.read(value, c, h) for h in range(self.group) for c in chunk}
            sums = {place: self.variable(self.vec(), self.constant(0.0)) for place in values}
            with self.loop(first, last) as place:
                edge = self.whole_number("%perm_t", place)
                grad = self.at("%grad", (self.whole_number("%col_t", place), self.dim), column)
                for h, head in enumerate(heads):
                    weight = self.size_of(self.broadcast(self.one("%weights", head, "%edges", edge)))
                    dot = self.constant(0.0)
                    for c in chunk:
                        g = self.read(grad, c, h)
                        dot = self.fma(g, values[h, c], dot)
                        self.put(sums[h, c], self.fma(weight, g, self.get(sums[h, c])))
                    pointer, product = self.one("%grad_weights", head, "%edges", edge), self.total(dot)
                    if chunk is not self.chunks[0]:
                        product = self.op(f"fadd {self.real} {product}, {self.scalar(pointer)}")
                    self.put_number(product, pointer)
            for (h, c), total in sums.items():
                self.write(self.get(total), grad_value, c, h)


class _Softmax(_Rows):
    """By target: gradients of weights become gradients of scores where they lie; their sums over a target's edges, [B, N, P]."""

    name = "softmax"
    tensors = ("weights", "ptr", "grad_weights", "grad_target")

    def row(self, row: str) -> None:
        first, last = self.places("%ptr", row)
        with self.loop(0, self.blocks) as block:
            weights, grads = (self.block(f"%{name}", block) for name in ("weights", "grad_weights"))
            mean, total = (self.variable(self.vec(), self.constant(0.0)) for _ in range(2))

            def read(e, mask, arrays=(weights, grads)):
                return (self.masked_load(self.at(a, (e, self.padded)), mask, self.lanes, "zeroinitializer") for a in arrays)

            def average(e, mask, mean=mean, read=read):
                weight, grad = read(e, mask)
                self.put(mean, self.fma(self.size_of(weight), grad, self.get(mean)))

            self.tiles(first, last, average)
            middle = self.over_edges("fadd", self.get(mean))

            def score(e, mask, total=total, read=read, middle=middle, grads=grads):
                weight, grad = read(e, mask)
                grad = self.leaky(weight, self.mul(self.size_of(weight), self.sub(grad, middle)))
                self.masked_store(grad, self.at(grads, (e, self.padded)), mask, self.lanes)
                self.put(total, self.add(self.get(total), grad))

            self.tiles(first, last, score)
            summed = self.narrow(self.over_edges("fadd", self.get(total)), self.padded)
            self.store(summed, self.of_node("%grad_target", block, row), self.padded)


class _Close(_Rows):
    """By source: what the scores give to the gradient of the value, and the gradients of both vectors, summed over a block of nodes."""

    name = "close"
    tensors = ("value", "grad_scores", "grad_target", "ptr_t", "perm_t", "att_source", "att_target", "grad_value", "sums")

    def row(self, row: str) -> None:
        first, last = self.places("%ptr_t", row)
        sums = self.at("%sums", (self.integer("sdiv", row, _BLOCK), 2 * self.dim))
        heads = self.variable(f"[{self.blocks * self.lanes} x {self.real}]", "zeroinitializer")
        with self.loop(0, self.blocks) as block:
            total, grads = self.variable(self.vec(), self.constant(0.0)), self.block("%grad_scores", block)

            def add(place, mask, total=total, grads=grads):
                self.put(total, self.add(self.get(total), self.gather(grads, "%perm_t", place, mask)))

            self.tiles(first, last, add)
            self.store(self.over_edges("fadd", self.get(total)), self.at(heads, (block, self.padded)))
        with self.loop(0, self.num_heads) as head:
            source, target = self.broadcast(self.at(heads, head)), self.broadcast(self.one("%grad_target", head, "%nodes", row))
            column = self.integer("mul", head, self.head_dim)
            value, grad = (self.at(f"%{name}", (row, self.dim), column) for name in ("value", "grad_value"))
            for c in (c for chunk in self.chunks for c in chunk):
                v, g = self.read(value, c), self.read(grad, c)
                for which, (name, factor) in enumerate((("att_source", source), ("att_target", target))):
                    g = self.fma(factor, self.read(self.at(f"%{name}", column), c), g)
                    place = self.at(sums, which * self.dim, column)
                    self.write(self.fma(factor, v, self.read(place, c)), place, c)
                self.write(g, grad, c)
