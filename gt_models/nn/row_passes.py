"""Compiled passes over the rows of [N, d] on the CPU: what several of them share.

A row is read once for all that is done with it; what is summed over nodes is summed by blocks of rows, which threads do not change.
"""

import torch
from torch import Tensor

from gt_models.nn.llvm import Emitter, in_threads

ROW_BLOCK = 256  # rows whose sums over nodes are added up together: by blocks, and not by threads, so that threads do not change a sum


def compiles(*tensors: Tensor | None) -> bool:
    """Whether compiled passes take these tensors: on the CPU, all float32 or all float64, outside of autocast."""
    kinds = {t.dtype for t in tensors if t is not None}
    on_cpu = all(t.device.type == "cpu" for t in tensors if t is not None)
    return on_cpu and len(kinds) == 1 and kinds <= {torch.float32, torch.float64} and not torch.is_autocast_enabled("cpu")


class RowEmitter(Emitter):
    """Rows begin .. end - 1 of [N, dim]; vectors along a row, the last one masked."""

    tensors: tuple[str, ...]

    def columns(self, body, start: str | int = 0, stop: str = "%dim") -> None:
        """body(column, mask) for each vector of a row (or of a part of it); mask None where all lanes are columns."""
        whole = self.integer("add", start, self.integer("and", self.integer("sub", stop, start), -self.lanes))
        with self.loop(start, whole, self.lanes) as c:
            body(c, None)
        with self.loop(whole, stop, self.lanes) as c:
            body(c, self.first_lanes(self.integer("sub", stop, c), self.lanes))

    def read(self, pointer: str, mask: str | None) -> str:
        return self.load(pointer) if mask is None else self.masked_load(pointer, mask, self.lanes, "zeroinitializer")

    def write(self, value: str, pointer: str, mask: str | None) -> None:
        self.store(value, pointer) if mask is None else self.masked_store(value, pointer, mask, self.lanes)

    def only(self, condition: str, value: str) -> str:
        """value where `condition` holds, else zero."""
        return self.op(f"select <{self.lanes} x i1> {condition}, {self.vec()} {value}, {self.vec()} zeroinitializer")

    def positive(self, value: str) -> str:
        return self.op(f"fcmp ogt {self.vec()} {value}, zeroinitializer")

    def total(self, vector: str) -> str:
        name = f"llvm.vector.reduce.fadd.v{self.lanes}f{8 * self.size}"
        self.declared.add(f"declare {self.real} @{name}({self.real}, {self.vec()})")
        return self.op(f"call fast {self.real} @{name}({self.real} 0.0, {self.vec()} {vector})")

    def put_number(self, value: str, pointer: str) -> None:
        self.put(pointer, value, self.real)

    def inverse_deviation(self, squares: str) -> str:
        """1 / sqrt(variance + eps) of a row whose squared distances from the mean are summed by lanes in a variable."""
        variance = self.op(f"fadd fast {self.real} {self.mean(squares)}, %eps")
        self.declared.add(f"declare {self.real} @llvm.sqrt.f{8 * self.size}({self.real})")
        deviation = self.op(f"call {self.real} @llvm.sqrt.f{8 * self.size}({self.real} {variance})")
        return self.op(f"fdiv {self.real} 1.0, {deviation}")

    def mean(self, sum_variable: str) -> str:
        """Of a row's entries, summed by lanes in a variable."""
        return self.op(f"fdiv fast {self.real} {self.total(self.get(sum_variable))}, {self.op(f'sitofp i64 %dim to {self.real}')}")


def run_rows(function, num_rows: int, pointers: list[int], numbers: tuple) -> None:
    """Blocks of rows, in as many threads as torch has."""
    blocks = -(-num_rows // ROW_BLOCK)
    num_threads = max(1, min(torch.get_num_threads(), blocks))
    bounds = [min(num_rows, blocks * t // num_threads * ROW_BLOCK) for t in range(num_threads)] + [num_rows]
    in_threads(lambda t: function(*pointers, bounds[t], bounds[t + 1], *numbers), num_threads)
