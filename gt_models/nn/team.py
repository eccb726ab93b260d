"""Compiled kernels on torch's own threads, their work shared out as it is done.

Threads beside torch's would have to be woken, and share the cores with those that wait for torch's next operation: on two cores that cost
as much as the second core gained. Where torch has no OpenMP the kernels run on `in_threads`.
"""

import ctypes
from collections.abc import Callable
from functools import cache

import torch

from gt_models.nn.llvm import Emitter, in_threads

_OWN = ("next_unit", "next_place", "num_units", "chunk", "work", "work_size")


class TeamEmitter(Emitter):
    """A function of one table of whole numbers and addresses: a subclass names them in `table` and says what is done with one unit of work.

    `told` holds their values; `work` is memory of this thread alone. Each number is 64 bits wide.
    """

    table: tuple[str, ...]

    @property
    def arguments(self) -> list[tuple[str, str]]:
        return [("ptr", "data")]

    def unit(self, unit: str) -> None:
        raise TypeError(f"{type(self).__name__} does not say what is done with a unit")

    def prepare(self) -> None:
        """What is done once by each thread."""

    def body(self) -> None:
        places = {name: self.at("%data", i, kind="i64") for i, name in enumerate((*_OWN, *self.table))}
        self.told = {name: self.scalar(place, "i64") for name, place in places.items()}
        place = self.op(f"atomicrmw add ptr {places['next_place']}, i64 1 monotonic")
        self.work = self.op(f"inttoptr i64 {self.affine(self.told['work'], (place, self.told['work_size']))} to ptr")
        self.prepare()
        last = self.integer("sub", self.integer("add", self.told["num_units"], self.told["chunk"]), 1)
        with self.loop(0, self.integer("sdiv", last, self.told["chunk"])):  # one thread alone may take all chunks
            first = self.op(f"atomicrmw add ptr {places['next_unit']}, i64 {self.told['chunk']} monotonic")
            stop = self.minimum(self.integer("add", first, self.told["chunk"]), self.told["num_units"])
            with self.loop(first, stop) as unit:
                self.unit(unit)

    def pointer(self, name: str) -> str:
        return self.op(f"inttoptr i64 {self.told[name]} to ptr")


def run_on_team(function: Callable[..., None], num_units: int, chunk: int, scratch: int, table: list[int]) -> None:
    """Calls a `TeamEmitter`'s function on as many threads as torch has, `chunk` units at a time, with `scratch` bytes for each thread."""
    if num_units == 0:
        return
    num_threads = max(1, min(torch.get_num_threads(), -(-num_units // chunk)))
    scratch = -(-scratch // 64) * 64
    work = torch.empty(num_threads * scratch + 64, dtype=torch.uint8)
    data = (ctypes.c_int64 * (len(_OWN) + len(table)))(0, 0, num_units, chunk, -(-work.data_ptr() // 64) * 64, scratch, *table)
    if num_threads == 1:
        function(data)
    elif _parallel() is None:
        in_threads(lambda _: function(data), num_threads)
    else:
        _parallel()(function, data, num_threads, 0)


@cache
def _parallel() -> Callable[..., None] | None:
    """OpenMP's `GOMP_parallel(function, data, threads, flags)` of the library that torch was linked with, which GNU's and Intel's have."""
    try:
        function = ctypes.CDLL(torch._C.__file__).GOMP_parallel  # looked up in all that this file is linked with
    except (AttributeError, OSError):
        return None
    function.argtypes, function.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint], None
    return function
