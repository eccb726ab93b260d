"""Softmax attention among the tokens of each graph as a compiled CPU kernel: no padding, no copies into groups, no weight stored.

Tokens of all graphs lie one after the other. One head of one graph at a time, lanes along its queries: a weight's exponential and the
sums over keys then need nothing from other lanes, and keys and values are read as single numbers. Backward forms the weights again from
the largest score and the inverse sum of each row (Dao et al. 2022, "FlashAttention", Section 3, without its tiles: scores of a few queries
fit the cache). Every gradient has one writer: the result does not depend on the number of threads.
"""

import math
from collections.abc import Callable
from functools import cache, lru_cache

import torch
from torch import Tensor

from gt_models.nn.llvm import Library
from gt_models.nn.team import TeamEmitter, run_on_team

_KEYS = 8  # keys whose scores are summed side by side, in registers


@torch.library.custom_op("gt_models::packed_attention", mutates_args=())
def packed_attention(query: Tensor | None, tokens: Tensor, bias: Tensor, counts: Tensor, num_heads: int) -> tuple[Tensor, Tensor]:
    """softmax(q k^T / sqrt(d_h)) v for each head of each graph.

    Args:
        query: None, or one query for each graph [B, d].
        tokens: queries, keys and values side by side [T, 3 d], or keys and values [T, 2 d] beside a `query`; float32 or float64, CPU.
        bias: added to each row of `tokens`, [3 d] or [2 d]: here it costs nothing, beside the matrix product a pass over memory.
        counts: tokens of each graph in the order in which they lie, long [B] on the CPU, none of them 0.
        num_heads: H, which divides d.

    Returns [T, d], or [B, d] with a `query`; and stats [2, H, T or B], the largest score of each row (in base 2) and the inverse sum of
    the exponentials.
    """
    query, tokens, bias = None if query is None else query.contiguous(), tokens.contiguous(), bias.contiguous()
    dim = tokens.size(1) // 3 if query is None else query.size(1)
    rows = tokens.size(0) if query is None else query.size(0)
    out, stats, none = tokens.new_empty(rows, dim), tokens.new_empty(2, num_heads, rows), tokens.new_zeros(dim)
    pointers = [*_parts(query, tokens, dim), *_parts(None if query is None else none, bias, dim), out.data_ptr(), stats.data_ptr()]
    _kernel(tokens.dtype, dim // num_heads).run("forward", query is None, counts, pointers, rows, num_heads)
    return out, stats


@torch.library.custom_op("gt_models::packed_attention_backward", mutates_args=())
@torch.autocast("cpu", enabled=False)  # backward may be called inside autocast, and the kernel reads what it is told to read
def packed_attention_backward(
    grad: Tensor, query: Tensor | None, tokens: Tensor, bias: Tensor, stats: Tensor, counts: Tensor, num_heads: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients by `query` ([0] where there is none), `tokens` and `bias`, from the gradient by the output."""
    query, tokens, bias, grad = None if query is None else query.contiguous(), tokens.contiguous(), bias.contiguous(), grad.contiguous()
    dim, rows = grad.size(1), grad.size(0)
    dquery, dtokens = tokens.new_empty(0) if query is None else torch.empty_like(query), torch.empty_like(tokens)
    dbias, none = tokens.new_empty(3, counts.numel(), dim), tokens.new_zeros(dim)  # of queries, keys, values; graph by graph
    pointers = [*_parts(query, tokens, dim), *_parts(None if query is None else none, bias, dim), grad.data_ptr(), stats.data_ptr()]
    pointers += [*_parts(None if query is None else dquery, dtokens, dim), dbias.data_ptr()]
    _kernel(tokens.dtype, dim // num_heads).run("backward", query is None, counts, pointers, rows, num_heads)
    return dquery, dtokens, (dbias if query is None else dbias[1:]).sum(1).flatten()


@packed_attention.register_fake
def _(query, tokens, bias, counts, num_heads):
    out = tokens.new_empty(tokens.size(0), tokens.size(1) // 3) if query is None else query.new_empty(query.shape)
    return out, tokens.new_empty(2, num_heads, out.size(0))


@packed_attention_backward.register_fake
def _(grad, query, tokens, bias, stats, counts, num_heads):
    return tokens.new_empty(0 if query is None else query.shape), tokens.new_empty(tokens.shape), bias.new_empty(bias.shape)


def _save(ctx, inputs, output):
    query, tokens, bias, counts, ctx.num_heads = inputs
    ctx.save_for_backward(query, tokens, bias, output[1], counts)
    ctx.mark_non_differentiable(output[1])


def _differentiate(ctx, grad, _):
    query, *rest = ctx.saved_tensors
    dquery, dtokens, dbias = packed_attention_backward(grad, query, *rest, ctx.num_heads)
    return None if query is None else dquery, dtokens, dbias, None, None


packed_attention.register_autograd(_differentiate, setup_context=_save)


def _parts(query: Tensor | None, tokens: Tensor, dim: int) -> list[int]:
    """Addresses of the first query, key and value."""
    first, width = tokens.data_ptr(), dim * tokens.element_size()
    return [first, first + width, first + 2 * width] if query is None else [query.data_ptr(), first, first + width]


@lru_cache(64)
def _graphs(counts: tuple[int, ...], own_queries: bool) -> Tensor:
    """First query, queries, first key and keys of each graph, long [B, 4]."""
    keys = torch.tensor(counts, dtype=torch.long)
    first, graphs = keys.cumsum(0) - keys, torch.arange(len(counts))
    return torch.stack([first, keys, first, keys] if own_queries else [graphs, torch.ones_like(keys), first, keys], 1).contiguous()


class _Kernel:
    """The functions for one type and head width."""

    def __init__(self, dtype: torch.dtype, head_dim: int):
        emitters = [kind(dtype, head_dim) for kind in (_Forward, _Backward)]
        self.like, self.library = emitters[0], Library(emitters)

    def run(self, name: str, own_queries: bool, counts: Tensor, pointers: list[int], rows: int, num_heads: int) -> None:
        sizes = tuple(counts.tolist())
        if not sizes:
            return
        longest, units, dim = -(-max(sizes) // _KEYS) * _KEYS, len(sizes) * num_heads, num_heads * self.like.head_dim
        chunk = max(1, min(num_heads, units // (8 * torch.get_num_threads())))  # heads of a graph lie side by side
        steps = [3 * dim, 3 * dim] if own_queries else [dim, 2 * dim]
        graphs = _graphs(sizes, own_queries)
        table = [graphs.data_ptr(), *pointers, num_heads, len(sizes), rows, longest, *steps]
        run_on_team(self.library[name], units, chunk, self.like.scratch(longest) * self.like.size, table)


@cache
def _kernel(dtype: torch.dtype, head_dim: int) -> _Kernel:
    return _Kernel(dtype, head_dim)


class _Packed(TeamEmitter):
    """What both functions share. A unit is one head of one graph."""

    tensors: tuple[str, ...]

    def __init__(self, dtype: torch.dtype, head_dim: int):
        super().__init__(dtype)
        self.head_dim = head_dim
        # the head's channels in pieces that fit a vector: (first channel, lanes)
        self.blocks = [(c, min(self.lanes, 1 << (head_dim - c - 1).bit_length())) for c in range(0, head_dim, self.lanes)]
        self.padded = sum(lanes for _, lanes in self.blocks)  # channels of a row in this thread's memory, zeros at its end
        self.sums = 16 if self.lanes * self.size == 64 else 8  # vectors kept in registers; the widest come with twice as many
        self.width = 1  # vectors of queries that the text being written works on

    def scratch(self, longest: int) -> int:
        return 2 * (longest * 2 * (self.lanes + self.padded) + 2 * self.lanes * (self.head_dim + self.padded))

    @property
    def table(self) -> tuple[str, ...]:
        return "graphs", *self.tensors, "num_heads", "num_graphs", "num_rows", "longest", "query_step", "key_step"

    def prepare(self) -> None:
        self.array = {name: self.pointer(name) for name in ("graphs", *self.tensors)}
        self.dim = self.integer("mul", self.told["num_heads"], self.head_dim)
        longest, vectors = self.told["longest"], (self.head_dim, 2 * self.lanes)
        # arrays of one or two vectors along the queries of a tile: per ...
        self.scores = self.work  # key; then the weights
        self.dscores = self.at(self.scores, (longest, 2 * self.lanes))  # key
        self.queries = self.at(self.dscores, (longest, 2 * self.lanes))  # channel
        self.grads = self.at(self.queries, vectors)  # channel
        # arrays of rows of channels: one per ...
        self.keys = self.at(self.grads, vectors)  # key
        self.values, self.dkeys, self.dvalues = (self.at(self.keys, (longest, i * self.padded)) for i in (1, 2, 3))  # key
        self.query_rows = self.at(self.keys, (longest, 4 * self.padded))  # query of a tile
        self.grad_rows = self.at(self.query_rows, (2 * self.lanes, self.padded))  # query of a tile

    def unit(self, unit: str) -> None:
        self.graph = graph = self.integer("sdiv", unit, self.told["num_heads"])
        self.head = self.integer("sub", unit, self.integer("mul", graph, self.told["num_heads"]))
        place = self.at(self.array["graphs"], (graph, 4), kind="i64")
        self.q0, self.num_queries, self.k0, self.num_keys = (self.scalar(self.at(place, i, kind="i64"), "i64") for i in range(4))
        self.last_key = self.integer("sub", self.num_keys, 1)
        # rows lie too far apart for the machine to foresee: the next head's, and what is written at the end, are asked for now
        for names, first, rows, step in (
            (self.query_arrays, self.q0, self.num_queries, self.told["query_step"]),
            (self.key_arrays, self.k0, self.num_keys, self.told["key_step"]),
            (self.out_arrays, self.q0, self.num_queries, self.dim),
        ):
            with self.loop(0, rows) as i:
                for name in names:
                    self.fetch(self.row(name, first, i, step), name in self.written)
        biases = {name: [self.piece(self.row("b" + name, 0, 0, 0), block) for block in self.blocks] for name in "qkv"}
        self.query_bias = biases["q"]
        with self.loop(0, self.num_keys) as j:
            for source, target in (("k", self.keys), ("v", self.values)):
                for (channel, lanes), bias in zip(self.blocks, biases[source], strict=True):
                    piece = self.add(self.piece(self.row(source, self.k0, j, self.told["key_step"]), (channel, lanes)), bias, lanes)
                    self.store(piece, self.at(target, (j, self.padded), channel), lanes)
        self.head_of_graph()

    def head_of_graph(self) -> None:
        raise TypeError(f"{type(self).__name__} does not say what is done with a head")

    def tiles(self, body: Callable[[str], None]) -> None:
        """body(first query) of two vectors of queries at a time, which share what is read of keys and values, and of a last single one."""
        pairs = self.integer("sdiv", self.integer("add", self.num_queries, self.lanes - 1), 2 * self.lanes)
        rest = self.integer("mul", pairs, 2 * self.lanes)
        for width, first, stop in ((2, 0, rest), (1, rest, self.num_queries)):
            self.width = width
            with self.loop(first, stop, width * self.lanes) as i0:
                body(i0)

    # -- where things are

    def row(self, array: str, first: str, index: str, step: str) -> str:
        """This head's channels of a row of the unit's graph."""
        return self.at(self.array[array], (self.integer("add", first, index), step), (self.head, self.head_dim))

    def fetch(self, pointer: str, written: bool) -> None:
        function = "llvm.prefetch.p0"
        self.declared.add(f"declare void @{function}(ptr, i32, i32, i32)")
        start = 0 if written else self.head_dim
        for c in range(start, start + self.head_dim, 64 // self.size):
            self.lines.append(f"  call void @{function}(ptr {self.at(pointer, c)}, i32 {int(written)}, i32 3, i32 1)")

    def piece(self, pointer: str, block: tuple[int, int]) -> str:
        """Channels of one block of a row; zeros beyond the head."""
        channel, lanes = block
        real = min(lanes, self.head_dim - channel)
        if real == lanes:
            return self.load(self.at(pointer, channel), lanes)
        return self.masked_load(self.at(pointer, channel), self.first_lanes(real, lanes), lanes, "zeroinitializer")

    def stat(self, which: int, i0: str, t: int) -> tuple[str, str]:
        """Where a number of each query of a tile's vector t is, and which of its lanes are queries."""
        row, first = self.affine(self.head, (self.told["num_heads"], which)), self.integer("add", i0, t * self.lanes)
        place = self.at(self.array["stats"], (row, self.told["num_rows"]), self.q0, first)
        return place, self.first_lanes(self.integer("sub", self.num_queries, first), self.lanes)

    def vectors(self, array: str, index: str) -> list[str]:
        """Places of an entry's vectors, one or two."""
        return [self.tile(array, (index, self.width), (t, 1)) for t in range(self.width)]

    def zeros(self, count: int) -> list[str]:
        return [self.variable(self.vec(), self.constant(0.0)) for _ in range(count)]

    def weight(self, score: str, largest: str) -> str:
        """2^(score - largest), 0 where that is nothing beside 1: what is multiplied by it then stays in the range that is fast."""
        x = self.sub(score, largest)
        keep = self.op(f"fcmp ogt {self.vec()} {x}, {self.constant(-64.0 if self.real == 'float' else -512.0)}")
        return self.op(f"select <{self.lanes} x i1> {keep}, {self.vec()} {self.exp2(x)}, {self.vec()} zeroinitializer")

    # -- pieces

    def read_tile(self, array: str, i0: str, step: str, target: str, factor: str | None = None, rows: str | None = None) -> None:
        """Rows i0.. of queries, with their bias, or gradients, the last one repeated: as a vector along them per channel, and as rows."""
        last = self.integer("sub", self.num_queries, 1)
        for t in range(self.width):
            places = [self.minimum(self.integer("add", i0, t * self.lanes + r), last) for r in range(self.lanes)]
            pointers = [self.row(array, self.q0, place, step) for place in places]
            for (channel, lanes), bias in zip(self.blocks, self.query_bias, strict=True):
                lines = [self.piece(p, (channel, lanes)) for p in pointers]
                lines = [self.add(line, bias, lanes) for line in lines] if array == "q" else lines
                if rows is not None:
                    for r, line in enumerate(lines):
                        self.store(line, self.at(rows, (t * self.lanes + r) * self.padded + channel), lanes)
                columns = self.transpose([self.widen(line, lanes) for line in lines], self.lanes)
                for c, column in enumerate(columns[: self.head_dim - channel]):
                    column = column if factor is None else self.mul(column, factor)
                    self.store(column, self.tile(target, (channel + c, self.width), (t, 1)), aligned=True)

    def write_tile(self, block: tuple[int, int], columns: list[str], array: str, i0: str, t: int, step: str) -> list[str]:
        """Vectors along a tile's queries of vector t, one per channel of the block -> rows of memory; returns the rows."""
        channel, lanes = block
        rows = self.transpose(columns + ["zeroinitializer"] * (self.lanes - len(columns)), self.lanes)
        rows = [self.narrow(row, lanes) for row in rows]
        for r, row in enumerate(rows):
            i = self.integer("add", i0, t * self.lanes + r)
            inside = self.op(f"icmp slt i64 {i}, {self.num_queries}")
            count = self.op(f"select i1 {inside}, i64 {len(columns)}, i64 0")
            place = self.at(self.row(array, self.q0, i, step), channel)
            self.masked_store(row, place, self.first_lanes(count, lanes), lanes)
        return rows

    def products(self, j0: str, count: int, pairs: list[tuple[str, str]]) -> list[list[list[str]]]:
        """For each pair (rows of keys, vectors along queries): their products over channels at keys j0 .. j0 + count - 1, the last
        key repeated."""
        keys = [self.integer("mul", self.minimum(self.integer("add", j0, r), self.last_key), self.padded) for r in range(count)]
        sums = [[self.zeros(self.width) for _ in keys] for _ in pairs]
        with self.loop(0, self.head_dim) as c:
            for (rows, array), lines in zip(pairs, sums, strict=True):
                vectors = [self.load(place, aligned=True) for place in self.vectors(array, c)]
                for key, line in zip(keys, lines, strict=True):
                    number = self.broadcast(self.at(rows, key, c))
                    for vector, total in zip(vectors, line, strict=True):
                        self.put(total, self.fma(number, vector, self.get(total)))
        return [[[self.get(total) for total in line] for line in lines] for lines in sums]

    def weigh(self, weights: str, rows: str, block: tuple[int, int]) -> list[list[str]]:
        """sum over keys of weight times each channel of the block: vectors along the queries, for each vector of a tile."""
        first, step, columns = block[0], self.lanes // self.width, [[] for _ in range(self.width)]
        last = min(first + block[1], self.head_dim)
        for start in range(first, last, step):
            channels = range(start, min(start + step, last))
            sums = [self.zeros(self.width) for _ in channels]
            with self.loop(0, self.num_keys) as j:
                vectors, row = [self.load(place, aligned=True) for place in self.vectors(weights, j)], self.at(rows, (j, self.padded))
                for c, line in zip(channels, sums, strict=True):
                    number = self.broadcast(self.at(row, c))
                    for vector, total in zip(vectors, line, strict=True):
                        self.put(total, self.fma(vector, number, self.get(total)))
            for t in range(self.width):
                columns[t] += [self.get(line[t]) for line in sums]
        return columns


class _Forward(_Packed):
    name = "forward"
    tensors = ("q", "k", "v", "bq", "bk", "bv", "out", "stats")
    query_arrays, key_arrays, out_arrays, written = ("q",), ("k", "v"), ("out",), ("out",)

    def head_of_graph(self) -> None:
        self.tiles(self._tile)

    def _tile(self, i0: str) -> None:
        scale = self.constant(self.head_dim**-0.5 / math.log(2))  # exponentials are powers of 2
        self.read_tile("q", i0, self.told["query_step"], self.queries, scale)
        tops, totals = [self.variable(self.vec(), self.constant(-1e30)) for _ in range(self.width)], self.zeros(self.width)
        count = min(_KEYS, self.sums // self.width)
        with self.loop(0, self.num_keys, count) as j0:
            for r, line in enumerate(self.products(j0, count, [(self.keys, self.queries)])[0]):
                for score, top, place in zip(line, tops, self.vectors(self.scores, self.integer("add", j0, r)), strict=True):
                    self.store(score, place, aligned=True)
                    self.put(top, self.greater(score, self.get(top)))
        largest = [self.get(top) for top in tops]
        with self.loop(0, self.num_keys) as j:
            for place, top, total in zip(self.vectors(self.scores, j), largest, totals, strict=True):
                e = self.weight(self.load(place, aligned=True), top)
                self.store(e, place, aligned=True)
                self.put(total, self.add(self.get(total), e))
        inverse = [self.op(f"fdiv {self.vec()} {self.constant(1.0)}, {self.get(total)}") for total in totals]
        for which, values in enumerate((largest, inverse)):
            for t, value in enumerate(values):
                self.masked_store(value, *self.stat(which, i0, t), self.lanes)
        for block in self.blocks:
            for t, columns in enumerate(self.weigh(self.scores, self.values, block)):
                self.write_tile(block, [self.mul(column, inverse[t]) for column in columns], "out", i0, t, self.dim)


class _Backward(_Packed):
    name = "backward"
    tensors = ("q", "k", "v", "bq", "bk", "bv", "grad", "stats", "dq", "dk", "dv", "dbias")
    query_arrays, key_arrays, out_arrays, written = ("q", "dq"), ("k", "v", "dk", "dv"), ("grad",), ("dq", "dk", "dv")

    def head_of_graph(self) -> None:
        with self.loop(0, self.num_keys) as j:
            for target in (self.dkeys, self.dvalues):
                for channel, lanes in self.blocks:
                    self.store("zeroinitializer", self.at(target, (j, self.padded), channel), lanes)
        self.dbias = [[self.variable(self.vec(lanes), self.constant(0.0, lanes)) for _, lanes in self.blocks] for _ in "qkv"]
        self.tiles(self._tile)
        masks = [self.first_lanes(min(lanes, self.head_dim - channel), lanes) for channel, lanes in self.blocks]
        with self.loop(0, self.num_keys) as j:
            for part, source, target in ((1, self.dkeys, "dk"), (2, self.dvalues, "dv")):
                for b, (channel, lanes) in enumerate(self.blocks):
                    value = self.load(self.at(source, (j, self.padded), channel), lanes)
                    self.masked_store(value, self.at(self.row(target, self.k0, j, self.told["key_step"]), channel), masks[b], lanes)
                    self._add_bias(part, b, value)
        for part, variables in enumerate(self.dbias):
            row = self.row("dbias", self.affine((self.told["num_graphs"], part)), self.graph, self.dim)
            for variable, mask, (channel, lanes) in zip(variables, masks, self.blocks, strict=True):
                self.masked_store(self.get(variable, self.vec(lanes)), self.at(row, channel), mask, lanes)

    def _tile(self, i0: str) -> None:
        scale, log_scale = self.constant(self.head_dim**-0.5), self.constant(self.head_dim**-0.5 / math.log(2))
        self.read_tile("q", i0, self.told["query_step"], self.queries, log_scale, self.query_rows)
        self.read_tile("grad", i0, self.dim, self.grads, None, self.grad_rows)
        count = min(_KEYS // 2, self.sums // (2 * self.width))
        with self.loop(0, self.num_keys, count) as j0:  # scores once more, and gradients by weights dA = dO v^T
            sums = self.products(j0, count, [(self.keys, self.queries), (self.values, self.grads)])
            for array, lines in zip((self.scores, self.dscores), sums, strict=True):
                for r, line in enumerate(lines):
                    for value, place in zip(line, self.vectors(array, self.integer("add", j0, r)), strict=True):
                        self.store(value, place, aligned=True)
        # a query beyond the last has inverse sum 0, so weight 0: it adds nothing to a key
        largest = [self.masked_load(*self.stat(0, i0, t), self.lanes, self.constant(1e30)) for t in range(self.width)]
        inverse = [self.masked_load(*self.stat(1, i0, t), self.lanes, "zeroinitializer") for t in range(self.width)]
        inner = self.zeros(self.width)
        with self.loop(0, self.num_keys) as j:  # A, and sum over keys of A dA
            for t, (place, other) in enumerate(zip(self.vectors(self.scores, j), self.vectors(self.dscores, j), strict=True)):
                weight = self.mul(self.weight(self.load(place, aligned=True), largest[t]), inverse[t])
                self.store(weight, place, aligned=True)
                self.put(inner[t], self.fma(weight, self.load(other, aligned=True), self.get(inner[t])))
        totals = [self.get(total) for total in inner]
        with self.loop(0, self.num_keys) as j:  # dS = A (dA - sum A dA) / sqrt(d_h)
            for total, weight, place in zip(totals, self.vectors(self.scores, j), self.vectors(self.dscores, j), strict=True):
                weight = self.mul(self.load(weight, aligned=True), scale)
                self.store(self.mul(weight, self.sub(self.load(place, aligned=True), total)), place, aligned=True)
        rows = self.minimum(self.width * self.lanes, self.integer("sub", self.num_queries, i0))
        for b, block in enumerate(self.blocks):
            for t, columns in enumerate(self.weigh(self.dscores, self.keys, block)):
                for row in self.write_tile(block, columns, "dq", i0, t, self.told["query_step"]):
                    self._add_bias(0, b, row)
            with self.loop(0, self.num_keys, _KEYS // 2) as j0:
                self._add_rows(j0, block, rows)

    def _add_bias(self, part: int, block: int, row: str) -> None:
        variable, lanes = self.dbias[part][block], self.blocks[block][1]
        self.put(variable, self.add(self.get(variable, self.vec(lanes)), row, lanes), self.vec(lanes))

    def _add_rows(self, j0: str, block: tuple[int, int], count: str) -> None:
        """dK_j += sum over the tile's `count` queries of dS_ij Q_i and dV_j += A_ij dO_i, for some keys (beyond the last nothing is read)."""
        channel, lanes = block
        keys = [self.integer("add", j0, r) for r in range(_KEYS // 2)]
        arrays = ((self.dscores, self.query_rows, self.dkeys), (self.scores, self.grad_rows, self.dvalues))
        places = [[self.at(target, (j, self.padded), channel) for j in keys] for _, _, target in arrays]
        sums = [[self.variable(self.vec(lanes), self.load(place, lanes)) for place in line] for line in places]
        with self.loop(0, count) as r:
            for (weights, rows, _), line in zip(arrays, sums, strict=True):
                row = self.load(self.at(rows, (r, self.padded), channel), lanes)
                for total, j in zip(line, keys, strict=True):
                    weight = self.broadcast(self.at(weights, (j, self.width * self.lanes), r), lanes)
                    self.put(total, self.fma(weight, row, self.get(total, self.vec(lanes)), lanes), self.vec(lanes))
        for line, targets in zip(sums, places, strict=True):
            for total, place in zip(line, targets, strict=True):
                self.store(self.get(total, self.vec(lanes)), place, lanes)
