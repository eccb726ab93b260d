"""What the Numba forms share: compilation and its cache on disk, threads, 2^x, and the counter hash of dropout.

A kernel is a function of a range, `kernel(begin, end, *arrays)`: `run` splits the range over torch's number of threads.
Each number of a result has one writer, and sums over rows are made by blocks of fixed size, so that no result depends
on the number of threads.

A kernel may close over numbers and types only. Numba finds a kernel on disk by what it closes over, and a compiled
function looks different in every process. So the parts of kernels (`inner`) are functions of modules. They receive
sizes as arguments: what is a constant in the kernel is a constant in the part.
"""

# mypy: disable-error-code="assignment, attr-defined"

import hashlib
import math
import os
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numba
import numpy as np
import torch
from numba import types
from numba.extending import overload
from torch import Tensor

# LLVM may reorder sums and fuse products, but not assume that NaN and infinity do not occur
FASTMATH = {"contract", "reassoc", "nsz", "arcp"}
# no entry point for callers in C, which would take an eighth of the compile time
_OPTIONS: dict[str, Any] = {"fastmath": FASTMATH, "error_model": "numpy", "no_cfunc_wrapper": True}
_INNER: Any = _OPTIONS | {"no_cpython_wrapper": True, "forceinline": True}


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a kernel at its first call and cache it on disk.

    Runs without the interpreter's lock; a division by zero is infinite or NaN.
    """
    return numba.njit(nogil=True, cache=True, **_OPTIONS)(function)


def inner(function: Callable[..., Any]) -> Callable[..., Any]:
    """A part of kernels, always inlined. Python cannot call it.

    LLVM would leave large parts outside; the process that compiled a kernel then calls one copy of such a part, and a
    process that found the kernel on disk another, and the two may round in different ways.
    """
    return numba.njit(**_INNER)(function)


def run(kernel: Callable[..., None], size: int, *arguments: Any, grain: int = 1) -> None:
    """Run kernel(begin, end, *arguments) over 0 .. size - 1 in torch's threads, tensors as arrays.

    Each thread gets at least `grain` numbers at a time.
    """
    num_threads = max(1, min(torch.get_num_threads(), size // max(grain, 1)))
    run_parts(kernel, [size * t // num_threads for t in range(num_threads + 1)], *arguments)


def run_parts(kernel: Callable[..., None], bounds: Sequence[int], *arguments: Any) -> None:
    """kernel(begin, end, *arguments) for each two neighbouring `bounds`, side by side."""
    values = [a.detach().numpy() if isinstance(a, Tensor) else a for a in arguments]
    if len(bounds) == 2:
        kernel(bounds[0], bounds[1], *values)
    else:
        list(
            _threads(os.getpid(), len(bounds) - 1).map(
                lambda begin, end: kernel(begin, end, *values), bounds[:-1], bounds[1:]
            )
        )


def shares(costs: np.ndarray) -> list[int]:
    """Bounds for `run_parts`: units with these costs are cut for torch's threads, so that each has about as much."""
    num_threads, total = max(1, min(torch.get_num_threads(), len(costs))), np.cumsum([0, *costs])
    return [0, *np.searchsorted(total, total[-1] * np.arange(1, num_threads) / num_threads).tolist(), len(costs)]


@cache
def _threads(process: int, number: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(number, "gt_models.kernels")


def real(dtype: torch.dtype) -> type[np.floating]:
    """NumPy's scalar type of float32 or float64."""
    return np.float32 if dtype == torch.float32 else np.float64


def exp2(x: Any) -> Any:
    """2^x for x <= 0 in a form that LLVM puts into vectors: 2^k, k the nearest integer, times a series in the rest.

    Below 2^-100 (float32) and 2^-900 (float64) it is 0, so that products with it are not denormal, which would be a
    hundred times slower. NaN stays NaN. Only for kernels.
    """
    raise NotImplementedError


@overload(exp2, jit_options=_INNER)
def _exp2(x):
    if x == types.float32:
        return _power(np.float32, np.int32, 23, 127, 6, -100)
    return _power(np.float64, np.int64, 52, 1023, 13, -900)


def _power(number: Any, whole: Any, bits: int, bias: int, terms: int, lowest: int) -> Callable[..., Any]:
    """`exp2` for one type: bits of its fraction, bias of its exponent, terms of the series, the smallest power."""
    bits, bias, lowest, zero = whole(bits), whole(bias), number(lowest), number(0)
    series = tuple(number(math.log(2) ** p / math.factorial(p)) for p in range(terms, -1, -1))

    def form(x):
        small = x < lowest
        x = zero if small else x
        k = np.rint(x)
        y = series[0]
        for c in series[1:]:
            y = y * (x - k) + c
        power = number(
            whole((whole(k) + bias) << bits).view(number)
        )  # of NaN arbitrary, but finite or NaN: the product is NaN
        return zero if small else y * power

    return form


@inner
def powers(x):
    """2^x in place of each x <= 0 of an array."""
    for t in range(len(x)):
        x[t] = exp2(x[t])


@inner
def dot(y, i, x, j, size):
    """The sum of y[i : i + size] * x[j : j + size]."""
    total = y.dtype.type(0)
    for t in range(size):
        total += y[np.uintp(i + t)] * x[np.uintp(j + t)]
    return total


@inner
def largest(y, i, x, j, size):
    """y[i : i + size] becomes the larger of itself and x[j : j + size], NaN where x is NaN."""
    for t in range(size):
        a, b = y[np.uintp(i + t)], x[np.uintp(j + t)]
        y[np.uintp(i + t)] = a if b < a else b


@inner
def move(x, at, by_row, by_channel, rows, channels, factor, out, to, out_by_row, out_by_channel):
    """Scaled copy of rows and channels.

    out[to + r out_by_row + c out_by_channel] = factor * x[at + r by_row + c by_channel] for each row r and channel c.
    """
    for r in range(rows):
        for c in range(channels):
            out[np.uintp(to + r * out_by_row + c * out_by_channel)] = (
                x[np.uintp(at + r * by_row + c * by_channel)] * factor
            )


def row_capacity(width: int) -> int:
    """Numbers to keep on the stack (`local`) for a row of `width`: of few sizes, so that few kernels are compiled."""
    return max(64, 1 << (width - 1).bit_length())


@inner
def hash32(x):
    """A 32-bit mixing function (two multiplications, three shifts).

    The same as `gt_models.kernels.dropout.hash32` on tensors.
    """
    x = np.uint32((x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D))
    x = np.uint32((x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B))
    return np.uint32(x ^ (x >> np.uint32(16)))


def _cache_folder() -> str:
    """Folder of the cache of compiled kernels.

    Its name has the digest of all kernels' sources: Numba itself compiles a function again only when the file of that
    function changes, not when one changes that it is compiled from.
    """
    digest = hashlib.sha256(
        b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.rglob("*.py")))
    ).hexdigest()[:16]
    asked = os.environ.get("NUMBA_CACHE_DIR")
    home = Path(asked) if asked else Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "gt_models"
    try:
        (home / digest).mkdir(parents=True, exist_ok=True)
        if os.access(home / digest, os.W_OK):
            return str(home / digest)
    except (OSError, RuntimeError):  # a home that cannot be written, or none at all
        pass
    return tempfile.mkdtemp(prefix="gt_models-")  # compiled again by each process


numba.config.CACHE_DIR = _cache_folder()
