"""Powers of a random walk's matrix on the CPU, written straight into the flat layout of pairs.

M^k = M M^(k-1) with M as sparse rows: on a molecule two products per entry in place of n. As torch operations that would be one pass over
memory per power and another to put the channels of a pair side by side; here a strip of columns of one graph stays in cache for all powers.
"""

from functools import cache
from typing import Literal

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from gt_models.batch import GraphBatch
from gt_models.nn.llvm import Emitter, Library, in_threads, vector_bytes

# below this many entries a second thread costs more than it does
_ENTRIES_PER_THREAD = 2**14


def write_powers(
    out: Tensor, batch: GraphBatch, channel: int, steps: int, identity: bool, reverse: bool, normalization: Literal["rw", "sym"]
) -> None:
    """Writes (I if `identity`), M^1 .. M^K into the channels of `out` [sum n_b^2, C] from `channel` on; float32 or float64, contiguous.

    `reverse` takes the matrix of the reversed graph.
    """
    if not out.numel():
        return
    rows = _transition(batch, reverse, normalization, out.dtype)
    arrays = [np.ascontiguousarray(a) for a in (rows.indptr.astype(np.int64), rows.indices.astype(np.int64), rows.data)]
    ptr, pair_ptr = batch.ptr.contiguous(), batch.pair_ptr.contiguous()
    entries = int(pair_ptr[-1]) * (steps + 1)
    num_threads = max(1, min(torch.get_num_threads(), entries // _ENTRIES_PER_THREAD, batch.num_graphs))
    # graphs in parts of about equally many pairs
    cuts = torch.searchsorted(pair_ptr, pair_ptr[-1] * torch.arange(1, num_threads) // num_threads).tolist()
    bounds = [0, *cuts, batch.num_graphs]
    lanes = vector_bytes() // out.element_size()
    strips = out.new_empty(num_threads, batch.max_nodes * (steps + 1) * lanes + lanes)
    addresses = [a.ctypes.data for a in arrays] + [t.data_ptr() for t in (ptr, pair_ptr, out)]
    kernel, numbers = _library(out.dtype)["walk"], (steps, out.size(1), channel, int(not identity))
    in_threads(lambda t: kernel(*addresses, strips[t].data_ptr(), bounds[t], bounds[t + 1], *numbers), num_threads)


def _transition(batch: GraphBatch, reverse: bool, normalization: str, dtype: torch.dtype) -> sparse.csr_array:
    """M of all graphs as sparse rows [N, N]; a repeated edge counts once."""
    source, target = batch.edge_index.flip(0).numpy() if reverse else batch.edge_index.numpy()
    n = batch.num_nodes
    rows = sparse.csr_array((np.ones(len(source), np.float32), (source, target)), shape=(n, n))
    degree = np.diff(rows.indptr)
    scale = np.repeat(degree, degree).astype(np.float64)
    if normalization == "sym":
        scale = np.sqrt(scale * np.bincount(rows.indices, minlength=n)[rows.indices])
    rows.data = (1 / scale).astype(np.float32 if dtype == torch.float32 else np.float64)
    return rows


@cache
def _library(dtype: torch.dtype) -> Library:
    return Library([_Walk(dtype)])


class _Walk(Emitter):
    """Graphs first .. last - 1. A strip holds `lanes` columns of all powers of one graph, [n, K + 1, lanes]; power 0 is the identity."""

    name = "walk"

    @property
    def arguments(self) -> list[tuple[str, str]]:
        pointers = [("ptr", name) for name in ("rows", "columns", "weights", "nodes", "pairs", "out", "strip")]
        return pointers + [("i64", name) for name in ("first", "last", "steps", "channels", "channel", "skip")]

    def body(self) -> None:
        w = self.lanes
        count = self.integer("add", "%steps", 1)
        stride = self.integer("mul", count, w)
        with self.loop("%first", "%last") as g:
            start, end = (self.scalar(self.at("%nodes", g, *more, kind="i64"), "i64") for more in ((), (1,)))
            n = self.integer("sub", end, start)
            pairs = self.at("%out", (self.scalar(self.at("%pairs", g, kind="i64"), "i64"), "%channels"), "%channel")
            with self.loop(0, n, w) as column:
                self.begin(n, column, stride)
                with self.loop(1, count) as k:
                    self.step(n, start, k, stride)
                width = self.minimum(self.integer("sub", n, column), w)
                with self.loop(0, n) as i:
                    target = self.at(pairs, (self.affine((i, n), column), "%channels"))
                    self.put_row(target, self.at("%strip", (i, stride)), width, count)

    def begin(self, n: str, column: str, stride: str) -> None:
        """Power 0 of the strip: 1 where the row is the lane's column."""
        w = self.lanes
        numbers = f"<{', '.join(f'i64 {i}' for i in range(w))}>"
        with self.loop(0, n) as i:
            lane = self.splat(self.integer("sub", i, column), kind="i64")
            here = self.op(f"icmp eq <{w} x i64> {numbers}, {lane}")
            one = self.op(f"select <{w} x i1> {here}, {self.vec()} {self.constant(1.0)}, {self.vec()} zeroinitializer")
            self.store(one, self.at("%strip", (i, stride)))

    def step(self, n: str, start: str, k: str, stride: str) -> None:
        """Power k of the strip from power k - 1."""
        before = self.at("%strip", (self.integer("sub", k, 1), self.lanes))
        total = self.variable(self.vec(), "zeroinitializer")
        with self.loop(0, n) as i:
            row = self.at("%rows", start, i, kind="i64")
            self.put(total, "zeroinitializer")
            with self.loop(self.scalar(row, "i64"), self.scalar(self.at(row, 1, kind="i64"), "i64")) as edge:
                neighbour = self.integer("sub", self.scalar(self.at("%columns", edge, kind="i64"), "i64"), start)
                value = self.load(self.at(before, (neighbour, stride)))
                self.put(total, self.fma(self.broadcast(self.at("%weights", edge)), value, self.get(total)))
            self.store(self.get(total), self.at("%strip", (i, stride), (k, self.lanes)))

    def put_row(self, target: str, strip: str, width: str, count: str) -> None:
        """[K + 1, lanes] -> the channels of `width` pairs that stand side by side."""
        with self.loop(0, width) as lane:
            pair = self.at(target, (lane, "%channels"))
            source = self.at(strip, lane)
            with self.loop("%skip", count) as k:
                value = self.scalar(self.at(source, (k, self.lanes)))
                self.lines.append(f"  store {self.real} {value}, ptr {self.at(pair, self.integer('sub', k, '%skip'))}")
