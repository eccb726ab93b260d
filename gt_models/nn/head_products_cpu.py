"""Products of a few heads' channels on the CPU: rows times small matrices, and sums of outer products over all rows.

A library's batched product takes one head of all rows after the other, and reads a few lines of each row in memory H times over. Where a
head's channels fit into registers these take all heads of a few rows at a time instead, at two to three times the rate.
"""

from functools import cache

import torch
from torch import Tensor

from gt_models.nn.llvm import Emitter, Library, in_threads, vector_bytes

_PARTS = 16  # runs of rows that are summed by themselves: as many whatever the number of threads, which so do not change a sum
_TILE = 4  # channels of a sum that are kept in registers side by side
_ROWS = {1: 8, 2: 8, 3: 6, 4: 6}  # rows side by side, by vectors of a head
_CACHED = 64  # rows that stay in cache while all pairs of channels pass over them


def times(num_heads: int, out: Tensor, *pairs: tuple[Tensor, Tensor]) -> None:
    """out[i, h] = sum over pairs of x[i, h] @ m[h], for one or two pairs of x [N, H * C] and m [H, C, C]; out [N, H * C], none of the x."""
    width = out.size(1) // num_heads
    if not _fits(out.dtype, width, num_heads):
        for i, (x, m) in enumerate(pairs):
            torch.baddbmm(_heads(out, num_heads), _heads(x, num_heads), m, beta=int(i > 0), out=_heads(out, num_heads))
        return
    pairs = [(x, m.contiguous()) for x, m in pairs]
    first, last = pairs[0], pairs[-1]
    function = _library(out.dtype, width)["once" if len(pairs) == 1 else "twice"]
    pointers = [t.data_ptr() for t in (*first, *last, out)]
    num_threads = max(1, min(torch.get_num_threads(), out.size(0) // 256))
    bounds = [out.size(0) * t // num_threads for t in range(num_threads + 1)]
    in_threads(lambda t: function(*pointers, bounds[t], bounds[t + 1], out.size(1), num_heads), num_threads)


def outer(num_heads: int, x: Tensor, y: Tensor) -> Tensor:
    """sum_i x[i, h]^T y[i, h]: x, y [N, H * C] -> [H, C, C]."""
    (n, dim), width = x.shape, x.size(1) // num_heads
    if not _fits(x.dtype, width, num_heads):
        return _heads(x, num_heads).transpose(1, 2) @ _heads(y, num_heads)
    parts = x.new_zeros(_PARTS, num_heads, width, width)
    pointers, rows = [t.data_ptr() for t in (x, y, parts)], -(-n // _PARTS)
    num_threads = min(torch.get_num_threads(), _PARTS)
    bounds = [_PARTS * t // num_threads for t in range(num_threads + 1)]
    function = _library(x.dtype, width)["outer"]
    in_threads(lambda t: function(*pointers, bounds[t], bounds[t + 1], dim, num_heads, rows, n), num_threads)
    return parts.sum(0)


def _fits(dtype: torch.dtype, width: int, num_heads: int) -> bool:
    """Whether a head is a few whole vectors; a head alone is what the library's product is made for."""
    lanes = vector_bytes() // dtype.itemsize
    return num_heads > 1 and width % lanes == 0 and width // lanes in _ROWS


def _heads(t: Tensor, num_heads: int) -> Tensor:
    """[N, H * C] -> [H, N, C], a view."""
    return t.view(t.size(0), num_heads, t.size(1) // num_heads).transpose(0, 1)


@cache
def _library(dtype: torch.dtype, width: int) -> Library:
    return Library([_Once(dtype, width), _Twice(dtype, width), _Outer(dtype, width)])


class _Products(Emitter):
    tensors: tuple[str, ...]
    numbers: tuple[str, ...] = ("begin", "end", "dim", "heads")

    def __init__(self, dtype: torch.dtype, width: int):
        super().__init__(dtype)
        self.width = width
        self.places = range(0, width, self.lanes)

    @property
    def arguments(self) -> list[tuple[str, str]]:
        return [("ptr", name) for name in self.tensors] + [("i64", name) for name in self.numbers]


class _Once(_Products):
    """Rows begin .. end - 1, a tile of them at a time; the last row again where a tile goes beyond it."""

    name = "once"
    tensors = ("x", "m", "x2", "m2", "out")
    pairs = (("%x", "%m"),)

    def body(self) -> None:
        last = self.integer("sub", "%end", 1)
        with self.loop("%begin", "%end", _ROWS[len(self.places)]) as first:
            rows = [self.integer("mul", self.minimum(self.integer("add", first, i), last), "%dim") for i in range(_ROWS[len(self.places)])]
            with self.loop(0, "%heads") as head:
                start = self.integer("mul", head, self.width)
                sums = {(row, c): self.variable(self.vec(), self.constant(0.0)) for row in rows for c in self.places}
                for x, m in self.pairs:
                    with self.loop(0, self.width) as k:
                        matrix = self.at(m, (self.integer("add", start, k), self.width))
                        vectors = {c: self.load(self.at(matrix, c)) for c in self.places}
                        for row in rows:
                            factor = self.broadcast(self.at(x, row, start, k))
                            for c, vector in vectors.items():
                                self.put(sums[row, c], self.fma(factor, vector, self.get(sums[row, c])))
                for (row, c), total in sums.items():
                    self.store(self.get(total), self.at("%out", row, start, c))


class _Twice(_Once):
    name = "twice"
    pairs = (("%x", "%m"), ("%x2", "%m2"))


class _Outer(_Products):
    """Parts begin .. end - 1 of the rows, each into a sum of its own."""

    name = "outer"
    tensors = ("x", "y", "parts")
    numbers = ("begin", "end", "dim", "heads", "rows", "count")

    def body(self) -> None:
        with self.loop("%begin", "%end") as part:
            stop = self.minimum(self.integer("mul", self.integer("add", part, 1), "%rows"), "%count")
            with self.loop(self.integer("mul", part, "%rows"), stop, _CACHED) as first:
                last = self.minimum(self.integer("add", first, _CACHED), stop)
                with self.loop(0, "%heads") as head, self.loop(0, self.width, _TILE) as k:
                    self.tile(part, head, k, first, last)

    def tile(self, part: str, head: str, k: str, first: str, last: str) -> None:
        start = self.integer("mul", head, self.width)
        sums = {(i, c): self.variable(self.vec(), self.constant(0.0)) for i in range(_TILE) for c in self.places}
        with self.loop(first, last) as row:
            place = self.integer("add", self.integer("mul", row, "%dim"), start)
            vectors = {c: self.load(self.at("%y", place, c)) for c in self.places}
            for i in range(_TILE):
                factor = self.broadcast(self.at("%x", place, k, i))
                for c, vector in vectors.items():
                    self.put(sums[i, c], self.fma(factor, vector, self.get(sums[i, c])))
        matrix = self.at("%parts", (self.integer("mul", part, "%dim"), self.width), (self.integer("add", start, k), self.width))
        for (i, c), total in sums.items():
            pointer = self.at(matrix, i * self.width, c)
            self.store(self.add(self.load(pointer), self.get(total)), pointer)
