"""Triangular attention as a compiled CPU kernel: no value per triple of nodes is ever stored (Edge Transformer, Eqs. 1 and 2).

The three-operand contraction has no matrix product in it, and written with torch operations it waits for memory. Here LLVM code is
generated for one head width (llvmlite: pip is all it needs) and run on torch's number of threads. Lanes run along j. The softmax over l
keeps its maximum and inverse sum per pair; the backward pass computes each weight again and is split over l, so that every gradient has
one writer: the result does not depend on the number of threads. Graphs of a batch are worked on to their own sizes, without padding.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, lru_cache

import torch
from torch import Tensor

from gt_models.nn.llvm import Emitter, Library, in_threads

# sizes of the pieces that stay in a core's caches
_GROUP = 4  # tiles of columns j that share one gathering of queries, forward
_ROWS = 8  # rows i at a time, forward
_STEPS = 64  # middle nodes l between two corrections of the running softmax, forward
_PATHS = 32  # middle nodes l per task, backward
_BACKWARD_ROWS = 8  # rows i at a time, backward
_ACCUMULATORS = 16  # vectors kept in registers at a time


@torch.library.custom_op("gt_models::triangular_forward", mutates_args=())
def triangular_forward(x: Tensor, sizes: Tensor, seed: Tensor, dropout: float) -> tuple[Tensor, Tensor]:
    """Queries, keys and both values x [P, 4, H, d_h] of graphs with `sizes` nodes, P = sum n_b^2 -> out [P, H, d_h], stats [2, H, P].

    float32 or float64, on the CPU. `stats` are the maximum over l of the scores (in base 2) and the inverse sum of their exponentials.
    `seed` long [1] decides which weights are dropped, as `dropout_mask` does.
    """
    x = x.contiguous()
    num_pairs, _, num_heads, head_dim = x.shape
    out, stats = x.new_empty(num_pairs, num_heads, head_dim), x.new_empty(2, num_heads, num_pairs)
    kernel = _kernel(x.dtype, head_dim, dropout > 0.0)
    tasks = _tasks(sizes, num_heads, kernel.lanes * _GROUP, kernel.lanes)
    largest = int(sizes.max()) if sizes.numel() else 0
    scratch = largest * (2 * _GROUP * head_dim * kernel.lanes + 2 * _ROWS * kernel.padded) + kernel.lanes * _ROWS * (_STEPS + 4 + head_dim)
    numbers = (num_heads, num_pairs, int(seed), int(dropout * 2**32))
    kernel.run("forward", tasks, [x, out, stats], numbers, [head_dim**-0.5, 1 / (1 - dropout)], scratch)
    return out, stats


@torch.library.custom_op("gt_models::triangular_backward", mutates_args=())
@torch.autocast("cpu", enabled=False)  # backward may be called inside autocast, and the kernel reads what it is told to read
def triangular_backward(grad: Tensor, x: Tensor, out: Tensor, stats: Tensor, sizes: Tensor, seed: Tensor, dropout: float) -> Tensor:
    """Gradient by x [P, 4, H, d_h] from the gradient by out [P, H, d_h]."""
    x, grad = x.contiguous(), grad.contiguous()
    num_pairs, _, num_heads, head_dim = x.shape
    # sum over l of A_ilj dA_ilj, which the softmax's derivative subtracts
    inner = torch.bmm(grad.view(-1, 1, head_dim), out.view(-1, head_dim, 1)).view(num_pairs, num_heads).T.contiguous()  # [H, P]
    dx = torch.empty_like(x)
    kernel = _kernel(x.dtype, head_dim, dropout > 0.0)
    largest, lanes, padded = int(sizes.max()) if sizes.numel() else 0, kernel.lanes, kernel.padded
    tasks = _tasks(sizes, num_heads, _PATHS, lanes)
    scratch = _BACKWARD_ROWS * lanes * 5 + _PATHS * (lanes * (4 * head_dim + 2 * padded) + 4 * largest * padded)
    numbers, reals = (num_heads, num_pairs, int(seed), int(dropout * 2**32)), [head_dim**-0.5, 1 / (1 - dropout)]
    # every l reads all of the gradient: packed once, as vectors along j and as rows
    num_tiles = int((sizes * ((sizes + lanes - 1) // lanes)).sum()) * num_heads
    vectors, rows = x.new_empty(num_tiles, head_dim, lanes), x.new_empty(num_tiles, lanes, padded)
    kernel.run("pack", tasks, [grad, vectors, rows], numbers, reals, 0)
    kernel.run("backward", tasks, [x, vectors, rows, stats, inner, dx], numbers, reals, scratch)
    return dx


@triangular_forward.register_fake
def _(x, sizes, seed, dropout):
    return x.new_empty(x.size(0), x.size(2), x.size(3)), x.new_empty(2, x.size(2), x.size(0))


@triangular_backward.register_fake
def _(grad, x, out, stats, sizes, seed, dropout):
    return x.new_empty(x.shape)


def _save(ctx, inputs, output):
    x, sizes, seed, ctx.dropout = inputs
    ctx.save_for_backward(x, *output, sizes, seed)
    ctx.mark_non_differentiable(output[1])


def _differentiate(ctx, grad, _):
    x, out, stats, sizes, seed = ctx.saved_tensors
    return triangular_backward(grad, x, out, stats, sizes, seed, ctx.dropout), None, None, None


triangular_forward.register_autograd(_differentiate, setup_context=_save)


def _tasks(sizes: Tensor, num_heads: int, width: int, lanes: int) -> tuple[Tensor, list[int]]:
    """Every piece of work and, for each thread, where its share of them ends: see `_plan`."""
    return _plan(tuple(sizes.tolist()), num_heads, width, lanes, torch.get_num_threads())


@lru_cache(64)
def _plan(graph_sizes: tuple[int, ...], num_heads: int, width: int, lanes: int, num_threads: int) -> tuple[Tensor, list[int]]:
    """Pieces of work, `width` indices of one head of one graph each, as long [T, 6]: first pair, nodes, head, first and last index, and
    the head's place in an array of tiles, n ceil(n / lanes) per graph and head; and the bounds of shares of equal cost."""
    sizes = torch.tensor(graph_sizes, dtype=torch.long)
    tiles = sizes * ((sizes + lanes - 1) // lanes)
    first_pair, first_tile = ((values.cumsum(0) - values) for values in (sizes**2, tiles * num_heads))
    pieces = (sizes + width - 1) // width * num_heads  # per graph
    graph = torch.repeat_interleave(torch.arange(sizes.numel()), pieces)
    number = torch.arange(graph.numel()) - (pieces.cumsum(0) - pieces)[graph]
    n, head, start = sizes[graph], number % num_heads, number // num_heads * width
    stop = torch.minimum(start + width, n)
    tasks = torch.stack([first_pair[graph], n, head, start, stop, first_tile[graph] + head * tiles[graph]], 1).contiguous()
    num_threads = max(1, min(num_threads, len(tasks)))
    cost = ((stop - start) * n**2).double().cumsum(0)
    shares = cost[-1:] * torch.arange(1, num_threads) / num_threads
    return tasks, [0, *torch.searchsorted(cost, shares).tolist(), len(tasks)]


class _Kernel:
    """The functions for one type and head width."""

    def __init__(self, dtype: torch.dtype, head_dim: int, dropout: bool):
        emitters = [kind(dtype, head_dim, dropout) for kind in (_Forward, _Pack, _Backward)]
        self.dtype, self.lanes, self.padded = dtype, emitters[0].lanes, emitters[0].padded
        self.library = Library(emitters)

    def run(self, name: str, plan: tuple, tensors: list[Tensor], numbers: tuple[int, ...], reals: list[float], scratch: int) -> None:
        tasks, bounds = plan
        work = torch.empty(len(bounds) - 1, scratch + 64 // self.dtype.itemsize, dtype=self.dtype)
        pointers = [t.data_ptr() for t in tensors]

        def part(t: int) -> None:
            aligned = -(-work[t].data_ptr() // 64) * 64
            self.library[name](tasks.data_ptr(), bounds[t], bounds[t + 1], *pointers, *numbers, *reals, aligned)

        in_threads(part, len(bounds) - 1)


@cache
def _kernel(dtype: torch.dtype, head_dim: int, dropout: bool) -> _Kernel:
    return _Kernel(dtype, head_dim, dropout)


class _Triangular(Emitter):
    """What the functions share: heads of rows into vectors along j and back, and the dropping of weights."""

    tensors: tuple[str, ...]

    def __init__(self, dtype: torch.dtype, head_dim: int, dropout: bool):
        super().__init__(dtype)
        self.head_dim, self.dropout = head_dim, dropout
        # the head's channels in pieces that fit a vector: (first channel, lanes)
        self.blocks = [(c, min(self.lanes, 1 << (head_dim - c - 1).bit_length())) for c in range(0, head_dim, self.lanes)]
        self.starts = [sum(lanes for _, lanes in self.blocks[:k]) for k in range(len(self.blocks))]  # the same with padding
        self.padded = sum(lanes for _, lanes in self.blocks)

    @property
    def arguments(self) -> list[tuple[str, str]]:
        numbers = [("i64", name) for name in ("num_heads", "num_pairs", "seed", "threshold")]
        reals = [(self.real, name) for name in ("scale", "keep_scale")]
        pointers = [("ptr", name) for name in self.tensors]
        return [("ptr", "tasks"), ("i64", "begin"), ("i64", "end"), *pointers, *numbers, *reals, ("ptr", "work")]

    def row_piece(self, pointer: str, block: tuple[int, int]) -> str:
        """Channels of one block of a row; zeros beyond the head."""
        channel, lanes = block
        piece, real = self.at(pointer, channel), min(lanes, self.head_dim - channel)
        if real == lanes:
            return self.load(piece, lanes)
        return self.masked_load(piece, self.first_lanes(real, lanes), lanes, "zeroinitializer")

    def copy_row(self, source: str, target: str) -> None:
        """One head's channels of a row into packed memory, padded with zeros."""
        for block in self.blocks:
            self.store(self.row_piece(source, block), self.at(target, block[0]), block[1])

    def write_rows(self, channels: list[str], base: str, stride: str, first: str, n: str) -> None:
        """Vectors along j, one per channel of the head -> rows `first`.. of memory, those below n."""
        for channel, lanes in self.blocks:
            real = min(lanes, self.head_dim - channel)
            part = channels[channel : channel + real]
            part = part + ["zeroinitializer"] * (self.lanes - len(part))
            for r, row in enumerate(self.transpose(part, self.lanes)):
                j = self.integer("add", first, r)
                inside = self.op(f"icmp slt i64 {j}, {n}")
                count = self.op(f"select i1 {inside}, i64 {real}, i64 0")
                self.masked_store(self.narrow(row, lanes), self.at(base, (j, stride), channel), self.first_lanes(count, lanes), lanes)

    def read_rows(self, base: str, stride: str, first: str, n: str) -> tuple[list[list[str]], list[str]]:
        """`lanes` rows from `first` on -> pieces per block and row, and one vector along j per channel. Rows beyond n repeat the last."""
        pieces, channels = [], []
        last = self.integer("sub", n, 1)
        pointers = [self.at(base, (self.minimum(self.integer("add", first, r), last), stride)) for r in range(self.lanes)]
        for block in self.blocks:
            rows = [self.row_piece(p, block) for p in pointers]
            pieces.append(rows)
            real = min(block[1], self.head_dim - block[0])
            channels += self.transpose([self.widen(r, block[1]) for r in rows], self.lanes)[:real]
        return pieces, channels

    def pack(self, base, stride, j0, n, index, vectors, rows) -> None:
        """Rows j0.. of memory into entry `index` of an array of vectors and of an array of rows."""
        pieces, channels = self.read_rows(base, stride, j0, n)
        for c, vector in enumerate(channels):
            self.store(vector, self.tile(vectors, (index, self.head_dim), (c, 1)), aligned=True)
        for (_, lanes), start, block in zip(self.blocks, self.starts, pieces, strict=True):
            for k, row in enumerate(block):
                self.store(row, self.at(rows, (index, self.lanes * self.padded), k * self.padded + start), lanes)

    def dropped(self, value: str, pair: str, first: str) -> str:
        """`value` along j from `first` on, of the row `pair` = (i, l): zero where the hash falls below the rate, else scaled up."""
        narrow = "i32"
        number = self.affine((pair, "%num_heads"), self.head)
        row = self.op(f"xor i32 {self.op(f'trunc i64 {number} to i32')}, {self.op('trunc i64 %seed to i32')}")
        row = self.hash32(row, "i32")
        step = self.op(f"mul i32 {self.op(f'trunc i64 {first} to i32')}, {0x9E3779B9}")
        start = self.splat(self.op(f"add i32 {row}, {step}"), kind=narrow)
        offsets = f"<{', '.join(f'i32 {i * 0x9E3779B9 & 0xFFFFFFFF}' for i in range(self.lanes))}>"
        v = self.vec(None, narrow)
        draw = self.hash32(self.op(f"add {v} {start}, {offsets}"), v)
        limit = self.splat(self.op("trunc i64 %threshold to i32"), kind=narrow)
        keep = self.op(f"icmp uge {v} {draw}, {limit}")
        scaled = self.mul(value, self.splat("%keep_scale"))
        return self.op(f"select <{self.lanes} x i1> {keep}, {self.vec()} {scaled}, {self.vec()} zeroinitializer")

    def read_task(self, t: str) -> tuple[str, ...]:
        pointer = self.at("%tasks", (t, 6), kind="i64")
        values = tuple(self.scalar(self.at(pointer, i, kind="i64"), "i64") for i in range(6))
        self.head = values[2]
        return values


class _Forward(_Triangular):
    """A task: one head of one graph, a group of columns j."""

    name = "forward"

    tensors = ("x", "out", "stats")

    def body(self) -> None:
        d, w = self.head_dim, self.lanes
        width = self.integer("mul", "%num_heads", d)
        stride = self.integer("mul", width, 4)
        # arrays of vectors along j: one per ...
        self.scores = "%work"  # step of l, row
        self.largest = self.tile(self.scores, (_STEPS, _ROWS))  # row
        self.larger = self.tile(self.largest, (_ROWS, 1))  # row
        self.total = self.tile(self.larger, (_ROWS, 1))  # row
        self.correction = self.tile(self.total, (_ROWS, 1))  # row
        self.sums = self.tile(self.correction, (_ROWS, 1))  # row, channel
        keys = self.tile(self.sums, (_ROWS, d))  # tile of j, l, channel
        with self.loop("%begin", "%end") as t:
            p0, n, head, j_start, j_stop, _ = self.read_task(t)
            column, tile_size = self.integer("mul", head, d), self.affine((n, d))
            values = self.tile(keys, (tile_size, _GROUP))  # tile of j, l, channel
            self.queries = self.tile(values, (tile_size, _GROUP))  # rows of channels, one per l and row
            self.firsts = self.at(self.queries, (n, _ROWS * self.padded))
            with self.loop(j_start, j_stop, w) as j0, self.loop(0, n) as l:
                tile = self.op(f"sdiv i64 {self.integer('sub', j0, j_start)}, {w}")
                base = self.at("%x", (self.affine(p0, (l, n)), stride), column)
                for which, packed in ((1, keys), (3, values)):
                    _, channels = self.read_rows(self.at(base, (width, which)), stride, j0, n)
                    place = self.tile(packed, (self.affine((tile, tile_size), (l, d)), 1))
                    for c, vector in enumerate(channels):
                        self.store(vector, self.tile(place, (c, 1)), aligned=True)
            with self.loop(0, n, _ROWS) as i0:
                rows = self.minimum(_ROWS, self.integer("sub", n, i0))
                with self.loop(0, rows) as r, self.loop(0, n) as l:
                    base = self.at("%x", (self.affine(p0, (self.integer("add", i0, r), n), l), stride), column)
                    place = self.affine((l, _ROWS * self.padded), (r, self.padded))
                    self.copy_row(base, self.at(self.queries, place))
                    self.copy_row(self.at(base, (width, 2)), self.at(self.firsts, place))
                with self.loop(j_start, j_stop, w) as j0:
                    offset = self.integer("mul", self.op(f"sdiv i64 {self.integer('sub', j0, j_start)}, {w}"), tile_size)
                    with self.loop(0, rows) as r:
                        for array in (self.largest, self.larger):
                            self.store(self.constant(-1e30), self.tile(array, (r, 1)), aligned=True)
                        self.store("zeroinitializer", self.tile(self.total, (r, 1)), aligned=True)
                        for c in range(d):
                            self.store("zeroinitializer", self.tile(self.sums, (r, d), (c, 1)), aligned=True)
                    with self.loop(0, n, _STEPS) as l0:
                        l1 = self.minimum(self.integer("add", l0, _STEPS), n)
                        self._scores(l0, l1, rows, self.tile(keys, (offset, 1)))
                        self._softmax(p0, n, i0, l0, l1, j0, rows)
                        self._weigh(l0, l1, rows, self.tile(values, (offset, 1)))
                    self._write(p0, n, i0, j0, rows, width, column)

    def _scores(self, l0, l1, rows, keys) -> None:
        d, scale = self.head_dim, self.mul(self.splat("%scale"), self.constant(1 / math.log(2)))
        with self.loop(l0, l1) as l:
            step = self.integer("sub", l, l0)
            vectors = [self.load(self.tile(keys, (l, d), (c, 1)), aligned=True) for c in range(d)]
            with self.loop(0, rows) as r:
                s = self.mul(self.dot(self.at(self.queries, (l, _ROWS * self.padded), (r, self.padded)), vectors), scale)
                self.store(s, self.tile(self.scores, (step, _ROWS), (r, 1)), aligned=True)
                place = self.tile(self.larger, (r, 1))
                self.store(self.greater(s, self.load(place, aligned=True)), place, aligned=True)

    def _softmax(self, p0, n, i0, l0, l1, j0, rows) -> None:
        with self.loop(0, rows) as r:
            larger = self.load(self.tile(self.larger, (r, 1)), aligned=True)
            correction = self.exp2(self.sub(self.load(self.tile(self.largest, (r, 1)), aligned=True), larger))
            total = self.variable(self.vec(), self.mul(self.load(self.tile(self.total, (r, 1)), aligned=True), correction))
            with self.loop(l0, l1) as l:
                place = self.tile(self.scores, (self.integer("sub", l, l0), _ROWS), (r, 1))
                e = self.exp2(self.sub(self.load(place, aligned=True), larger))
                self.put(total, self.add(self.get(total), e))
                if self.dropout:
                    e = self.dropped(e, self.affine(p0, (self.integer("add", i0, r), n), l), j0)
                self.store(e, place, aligned=True)
            for array, value in ((self.largest, larger), (self.correction, correction), (self.total, self.get(total))):
                self.store(value, self.tile(array, (r, 1)), aligned=True)

    def _weigh(self, l0, l1, rows, values) -> None:
        """Rows two at a time, so that a packed value read from the cache serves twice; a last single row is done twice."""
        d, half = self.head_dim, _ACCUMULATORS // 2
        with self.loop(0, rows, 2) as r:
            pair = [r, self.minimum(self.integer("add", r, 1), self.integer("sub", rows, 1))]
            corrections = [self.load(self.tile(self.correction, (k, 1)), aligned=True) for k in pair]
            for c0 in range(0, d, half):
                channels = range(c0, min(d, c0 + half))
                places = [[self.tile(self.sums, (k, d), (c, 1)) for c in channels] for k in pair]
                sums = [
                    [self.variable(self.vec(), self.mul(self.load(p, aligned=True), correction)) for p in row]
                    for row, correction in zip(places, corrections, strict=True)
                ]
                with self.loop(l0, l1) as l:
                    step = self.integer("sub", l, l0)
                    weights = [self.load(self.tile(self.scores, (step, _ROWS), (k, 1)), aligned=True) for k in pair]
                    firsts = [self.at(self.firsts, (l, _ROWS * self.padded), (k, self.padded)) for k in pair]
                    for k, c in enumerate(channels):
                        value = self.load(self.tile(values, (l, d), (c, 1)), aligned=True)
                        for weight, first, row in zip(weights, firsts, sums, strict=True):
                            product = self.mul(weight, self.broadcast(self.at(first, c)))
                            self.put(row[k], self.fma(product, value, self.get(row[k])))
                for row, row_places in zip(sums, places, strict=True):
                    for s, place in zip(row, row_places, strict=True):
                        self.store(self.get(s), place, aligned=True)

    def _write(self, p0, n, i0, j0, rows, width, column) -> None:
        d, mask = self.head_dim, self.first_lanes(self.integer("sub", n, j0), self.lanes)
        with self.loop(0, rows) as r:
            row = self.affine(p0, (self.integer("add", i0, r), n))
            total = self.load(self.tile(self.total, (r, 1)), aligned=True)
            inverse = self.op(f"fdiv fast {self.vec()} {self.constant(1.0)}, {total}")
            place = self.at("%stats", (self.head, "%num_pairs"), row, j0)
            self.masked_store(self.load(self.tile(self.largest, (r, 1)), aligned=True), place, mask, self.lanes)
            self.masked_store(inverse, self.at(place, ("%num_heads", "%num_pairs")), mask, self.lanes)
            out = [self.mul(self.load(self.tile(self.sums, (r, d), (c, 1)), aligned=True), inverse) for c in range(d)]
            self.write_rows(out, self.at("%out", (row, width), column), width, j0, n)


class _Pack(_Triangular):
    """A task: the gradient of some rows i of one head of one graph, tile of j by tile and row by row."""

    name = "pack"
    tensors = ("grad", "grads", "grad_rows")

    def body(self) -> None:
        width = self.integer("mul", "%num_heads", self.head_dim)
        with self.loop("%begin", "%end") as t:
            p0, n, head, i0, i1, tile = self.read_task(t)
            with self.loop(0, n, self.lanes) as j0, self.loop(i0, i1) as i:
                place = self.affine(tile, (self.op(f"sdiv i64 {j0}, {self.lanes}"), n), i)
                row = self.at("%grad", (self.affine(p0, (i, n)), width), (head, self.head_dim))
                self.pack(row, width, j0, n, place, "%grads", "%grad_rows")


class _Backward(_Triangular):
    """A task: one head of one graph, a group of middle nodes l; all gradients of pairs (i, l) and (l, j) are its own."""

    name = "backward"

    tensors = ("x", "grads", "grad_rows", "stats", "inner", "dx")

    def body(self) -> None:
        d, w, padded, rows = self.head_dim, self.lanes, self.padded, _BACKWARD_ROWS
        width = self.integer("mul", "%num_heads", d)
        stride = self.integer("mul", width, 4)
        # arrays of vectors along j: one per ...
        self.largest = "%work"  # row
        self.inverse = self.tile(self.largest, (rows, 1))  # row
        self.inner = self.tile(self.inverse, (rows, 1))  # row
        self.weights = self.tile(self.inner, (rows, 1))  # row
        self.dscores = self.tile(self.weights, (rows, 1))  # row
        self.keys = self.tile(self.dscores, (rows, 1))  # l, channel
        self.values = self.tile(self.keys, (_PATHS, d))  # l, channel
        self.dkeys = self.tile(self.values, (_PATHS, d))  # l, channel
        self.dvalues = self.tile(self.dkeys, (_PATHS, d))  # l, channel
        # arrays of rows of channels: one per ...
        self.key_rows = self.tile(self.dvalues, (_PATHS, d))  # l, j
        self.value_rows = self.at(self.key_rows, _PATHS * w * padded)  # l, j
        self.queries = self.at(self.value_rows, _PATHS * w * padded)  # l, i
        with self.loop("%begin", "%end") as t:
            p0, n, head, l0, l1, tile = self.read_task(t)
            column, paths, size = self.integer("mul", head, d), self.integer("sub", l1, l0), self.integer("mul", n, padded)
            self.firsts = self.at(self.queries, (size, _PATHS))  # l, i
            self.dqueries = self.at(self.firsts, (size, _PATHS))  # l, i
            self.dfirsts = self.at(self.dqueries, (size, _PATHS))  # l, i
            with self.loop(0, n) as i, self.loop(0, paths) as l:
                base = self.at("%x", (self.affine(p0, (i, n), self.integer("add", l0, l)), stride), column)
                place = self.affine((l, size), (i, padded))
                self.copy_row(base, self.at(self.queries, place))
                self.copy_row(self.at(base, (width, 2)), self.at(self.firsts, place))
                for packed in (self.dqueries, self.dfirsts):
                    for (_, lanes), start in zip(self.blocks, self.starts, strict=True):
                        self.store("zeroinitializer", self.at(packed, place, start), lanes)
            with self.loop(0, n, w) as j0:
                with self.loop(0, paths) as l:
                    base = self.at("%x", (self.affine(p0, (self.integer("add", l0, l), n)), stride), column)
                    self.pack(self.at(base, width), stride, j0, n, l, self.keys, self.key_rows)
                    self.pack(self.at(base, (width, 3)), stride, j0, n, l, self.values, self.value_rows)
                    for c in range(d):
                        self.store("zeroinitializer", self.tile(self.dkeys, (l, d), (c, 1)), aligned=True)
                        self.store("zeroinitializer", self.tile(self.dvalues, (l, d), (c, 1)), aligned=True)
                with self.loop(0, n, rows) as i0:
                    count = self.minimum(rows, self.integer("sub", n, i0))
                    self._read_stats(p0, n, i0, count, j0)
                    first = self.affine(tile, (self.op(f"sdiv i64 {j0}, {w}"), n), i0)  # tile of (i0, j0)
                    self.grads, self.grad_rows = self.tile("%grads", (first, d)), self.at("%grad_rows", (first, w * padded))
                    with self.loop(0, paths) as l:
                        pair = self.affine(p0, (i0, n), l0, l)  # (i0, l)
                        offset = self.affine((l, size), (i0, padded))
                        rows_of = [self.at(a, offset) for a in (self.queries, self.firsts, self.dqueries, self.dfirsts)]
                        self._path(l, count, pair, n, j0, *rows_of)
                with self.loop(0, paths) as l:
                    base = self.at("%dx", (self.affine(p0, (self.integer("add", l0, l), n)), stride), column)
                    for which, packed in ((1, self.dkeys), (3, self.dvalues)):
                        channels = [self.load(self.tile(packed, (l, d), (c, 1)), aligned=True) for c in range(d)]
                        self.write_rows(channels, self.at(base, (width, which)), stride, j0, n)
            with self.loop(0, n) as i, self.loop(0, paths) as l:
                base = self.at("%dx", (self.affine(p0, (i, n), self.integer("add", l0, l)), stride), column)
                for which, packed in ((0, self.dqueries), (2, self.dfirsts)):
                    for (channel, lanes), start in zip(self.blocks, self.starts, strict=True):
                        value = self.load(self.at(packed, (l, size), (i, padded), start), lanes)
                        mask = self.first_lanes(min(lanes, d - channel), lanes)
                        self.masked_store(value, self.at(base, (width, which), channel), mask, lanes)

    def _read_stats(self, p0, n, i0, count, j0) -> None:
        mask = self.first_lanes(self.integer("sub", n, j0), self.lanes)
        with self.loop(0, count) as r:
            place = self.affine((self.head, "%num_pairs"), p0, (self.integer("add", i0, r), n), j0)
            second = self.affine(place, ("%num_heads", "%num_pairs"))
            # lanes beyond n get inverse sum 0, so weight 0: they add nothing to any sum over j
            for array, source, other in (
                (self.largest, self.at("%stats", place), self.constant(1e30)),
                (self.inverse, self.at("%stats", second), "zeroinitializer"),
                (self.inner, self.at("%inner", place), "zeroinitializer"),
            ):
                self.store(self.masked_load(source, mask, self.lanes, other), self.tile(array, (r, 1)), aligned=True)

    def _path(self, l, count, pair, n, j0, queries, firsts, dqueries, dfirsts) -> None:
        """All that one l adds, for `count` rows i and one tile of columns j."""
        d, padded = self.head_dim, self.padded
        scale, log_scale = self.splat("%scale"), self.constant(1 / math.log(2))
        log_scale = self.mul(scale, log_scale)
        keys = [self.load(self.tile(self.keys, (l, d), (c, 1)), aligned=True) for c in range(d)]
        with self.loop(0, count) as r:  # A_ilj, once more
            s = self.mul(self.dot(self.at(queries, (r, padded)), keys), log_scale)
            largest, inverse = (self.load(self.tile(a, (r, 1)), aligned=True) for a in (self.largest, self.inverse))
            self.store(self.mul(self.exp2(self.sub(s, largest)), inverse), self.tile(self.weights, (r, 1)), aligned=True)
        values = [self.load(self.tile(self.values, (l, d), (c, 1)), aligned=True) for c in range(d)]
        with self.loop(0, count) as r:  # dA_ilj = <dO_ij, V1_il * V2_lj>, then through the softmax
            products = [self.mul(self.load(self.tile(self.grads, (r, d), (c, 1)), aligned=True), values[c]) for c in range(d)]
            dweight = self.dot(self.at(firsts, (r, padded)), products)
            place = self.tile(self.weights, (r, 1))
            weight = self.load(place, aligned=True)
            if self.dropout:
                row = self.affine(pair, (r, n))
                dweight = self.dropped(dweight, row, j0)
                self.store(self.dropped(weight, row, j0), place, aligned=True)
            inner = self.load(self.tile(self.inner, (r, 1)), aligned=True)
            dscore = self.mul(self.mul(weight, self.sub(dweight, inner)), scale)
            self.store(dscore, self.tile(self.dscores, (r, 1)), aligned=True)
        for c0 in range(0, d, _ACCUMULATORS):
            channels = range(c0, min(d, c0 + _ACCUMULATORS))
            with self.accumulate(self.dkeys, l, channels) as sums, self.loop(0, count) as r:  # dK_lj = sum_i dS_ilj Q_il
                dscore = self.load(self.tile(self.dscores, (r, 1)), aligned=True)
                for s, c in zip(sums, channels, strict=True):
                    self.put(s, self.fma(dscore, self.broadcast(self.at(queries, (r, padded), c)), self.get(s)))
            with self.accumulate(self.dvalues, l, channels) as sums, self.loop(0, count) as r:  # dV2_lj = sum_i A_ilj V1_il dO_ij
                weight = self.load(self.tile(self.weights, (r, 1)), aligned=True)
                for s, c in zip(sums, channels, strict=True):
                    product = self.mul(weight, self.broadcast(self.at(firsts, (r, padded), c)))
                    self.put(s, self.fma(product, self.load(self.tile(self.grads, (r, d), (c, 1)), aligned=True), self.get(s)))
        for (_, lanes), start in zip(self.blocks, self.starts, strict=True):
            with self.loop(0, count) as r:  # dQ_il = sum_j dS_ilj K_lj
                lines = [self._row(self.key_rows, l, k, start, lanes) for k in range(self.lanes)]
                self._add_row(self.at(dqueries, (r, padded), start), self.dscores, r, lanes, lines)
            with self.loop(0, count) as r:  # dV1_il = sum_j A_ilj V2_lj dO_ij
                lines = [self._row(self.value_rows, l, k, start, lanes) for k in range(self.lanes)]
                lines = [self.mul(line, self._row(self.grad_rows, r, k, start, lanes), lanes) for k, line in enumerate(lines)]
                self._add_row(self.at(dfirsts, (r, padded), start), self.weights, r, lanes, lines)

    @contextmanager
    def accumulate(self, array, index, channels) -> Iterator[list[str]]:
        """Variables that start from, and end in, the vectors of entry `index`."""
        places = [self.tile(array, (index, self.head_dim), (c, 1)) for c in channels]
        sums = [self.variable(self.vec(), self.load(p, aligned=True)) for p in places]
        yield sums
        for s, place in zip(sums, places, strict=True):
            self.store(self.get(s), place, aligned=True)

    def _row(self, rows, index, k, start, lanes) -> str:
        return self.load(self.at(rows, (index, self.lanes * self.padded), k * self.padded + start), lanes)

    def _add_row(self, target, scalars, r, lanes, lines) -> None:
        """target += sum over the lanes k of scalars[r] of that lane times line k, in four interleaved sums."""
        sums = [self.load(target, lanes), *[self.constant(0.0, lanes)] * 3]
        for k, line in enumerate(lines):
            sums[k % 4] = self.fma(self.broadcast(self.at(scalars, (r, self.lanes), k), lanes), line, sums[k % 4], lanes)
        self.store(self.add(self.add(sums[0], sums[1], lanes), self.add(sums[2], sums[3], lanes), lanes), target, lanes)
