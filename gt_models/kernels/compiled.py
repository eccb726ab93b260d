"""What the Numba forms share: how they are compiled and cached, threads, 2^x, and the counter hash of dropout.

A kernel is a function of a range, `kernel(begin, end, *arrays)`: `run` splits the range over torch's number of threads.
Each number of a result has one writer, and sums over rows are made by blocks of fixed size, so that no result depends
on the number of threads.
"""

# mypy: disable-error-code="assignment, attr-defined"

import hashlib
import math
import os
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from types import FunctionType
from typing import Any

import numba
import numpy as np
import torch
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.caching import FunctionCache
from numba.extending import intrinsic
from torch import Tensor

# LLVM may reorder sums and fuse products, but not assume that NaN and infinity do not occur
FASTMATH = {"contract", "reassoc", "nsz", "arcp"}
# no entry point for callers in C, which would take an eighth of the compile time
_OPTIONS: dict[str, Any] = {"fastmath": FASTMATH, "error_model": "numpy", "no_cfunc_wrapper": True}


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function at its first call and cache it on disk.

    Runs without the interpreter's lock; a division by zero is infinite or NaN.
    """
    kernel = numba.njit(nogil=True, **_OPTIONS)(function)
    kernel._cache = _Cache(function)  # what `cache=True` does, with a key that another process finds
    return kernel


class _Cache(FunctionCache):
    """Keyed by where a kernel is defined and what it closes over, parts of it likewise.

    Numba's own key pickles what a kernel closes over, and a compiled part pickles with an identity that every process
    draws again: it would never be found again. `_cache_folder` sees to it that sources are the same.
    """

    def _index_key(self, signature: Any, codegen: Any) -> tuple[Any, ...]:
        return signature, codegen.magic_tuple(), _identity(self._py_func)


def _identity(value: Any) -> str:
    """A key that is equal in every process for equal constants, and for functions of the same place and values."""
    function = getattr(value, "py_func", value)
    if not isinstance(function, FunctionType):
        return repr(value)
    closure = ", ".join(_identity(cell.cell_contents) for cell in function.__closure__ or ())
    return f"{function.__module__}.{function.__qualname__}:{function.__code__.co_firstlineno}({closure})"


def inner(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of kernels, always inlined. Python cannot call it.

    LLVM would leave large parts outside; the process that compiled a kernel then calls one copy of such a part, and a
    process that found the kernel on disk another, and the two may round in different ways.
    """
    return numba.njit(**_OPTIONS | {"no_cpython_wrapper": True}, forceinline=True)(function)


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


@cache
def exp2(dtype: torch.dtype) -> Callable[..., Any]:
    """2^x for x <= 0 in a form that LLVM puts into vectors: 2^k, k the nearest integer, times a series in the rest.

    Below 2^-100 (float32) and 2^-900 (float64) it is 0, so that products with it are not denormal, which would be a
    hundred times slower. NaN stays NaN.
    """
    if dtype == torch.float32:
        number, whole, bits, bias, terms, lowest = (
            np.float32,
            np.int32,
            np.int32(23),
            np.int32(127),
            6,
            np.float32(-100),
        )
    else:
        number, whole, bits, bias, terms, lowest = (
            np.float64,
            np.int64,
            np.int64(52),
            np.int64(1023),
            13,
            np.float64(-900),
        )
    series = tuple(number(math.log(2) ** p / math.factorial(p)) for p in range(terms, -1, -1))
    zero = number(0)

    @inner
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


@cache
def powers(dtype: torch.dtype) -> Callable[..., Any]:
    """2^x in place of each x <= 0 of an array."""
    power = exp2(dtype)

    @inner
    def form(x):
        for t in range(len(x)):
            x[t] = power(x[t])

    return form


@cache
def softmax(dtype: torch.dtype, lanes: int) -> Callable[..., Any]:
    """2^(score - peak) of scores in base 2, [n, lanes], flat, in place.

    The peaks [lanes] are over n. The inverse sums of the powers [lanes] are computed too.
    """
    number, raise_two = real(dtype), powers(dtype)
    zero, one, infinity = number(0), number(1), number(np.inf)

    @inner
    def form(scores, n, peak, inverse):
        copy(peak, 0, -infinity, lanes)
        for j in range(n):
            largest(peak, 0, scores, j * lanes, lanes)
        for j in range(n):
            muladd(scores, j * lanes, -one, peak, 0, lanes)
        raise_two(scores[: n * lanes])
        copy(inverse, 0, zero, lanes)
        for j in range(n):
            muladd(inverse, 0, one, scores, j * lanes, lanes)
        for lane in range(lanes):
            inverse[lane] = one / inverse[lane]

    return form


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


@intrinsic(prefer_literal=True)
def _stack(typing, dtype, size):
    """Pointer to `size` numbers, a constant, on the stack."""
    count = size.literal_value

    def build(context, builder, signature, arguments):
        kind = context.get_data_type(dtype.dtype)
        with builder.goto_entry_block():  # once, not in every round of a loop
            memory = builder.alloca(ir.ArrayType(kind, count))
        memory.align = 64
        return builder.bitcast(memory, kind.as_pointer())

    return types.CPointer(dtype.dtype)(dtype, size), build


@inner
def local(dtype, size):
    """An array of a constant `size` on the stack, not initialised.

    LLVM sees that nothing else points into it, and keeps it in registers where its indices are constants; of an array
    on the heap it must assume that any store changes it.
    """
    return numba.carray(_stack(dtype, size), size)


def _pieces(size: int) -> list[tuple[int, int]]:
    """(first, lanes) of the vectors of a span: sixteen lanes, and powers of two for the rest."""
    pieces, first = [], 0
    for lanes in (16, 8, 4, 2, 1):
        while size - first >= lanes:
            pieces.append((first, lanes))
            first += lanes
    return pieces


def vector_at(context, builder, array, index, first, lanes):
    """Pointer to `lanes` numbers from index + first on; array and index are (type, value)."""
    kind, value = array
    at = builder.add(context.cast(builder, index[1], index[0], types.intp), context.get_constant(types.intp, first))
    data = context.make_array(kind)(context, builder, value).data
    return builder.bitcast(
        builder.gep(data, [at]), ir.VectorType(context.get_data_type(kind.dtype), lanes).as_pointer()
    )


def _numbers_at(context, builder, array, index, first, lanes):
    return builder.load(vector_at(context, builder, array, index, first, lanes), align=1)


def _repeated(builder, number, _, lanes):
    one = builder.insert_element(
        ir.Constant(ir.VectorType(number.type, lanes), ir.Undefined), number, ir.Constant(ir.IntType(32), 0)
    )
    return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(ir.IntType(32), lanes), None))


def _operands(context, builder, arguments, dtype):
    """Of each array with its index, and of each number, the vector as a function of (first, lanes).

    Arguments are (type, value).
    """
    for kind, value in arguments:
        if isinstance(kind, types.Array):
            yield partial(_numbers_at, context, builder, (kind, value), next(arguments))
        else:
            yield partial(_repeated, builder, context.cast(builder, value, kind, dtype))


def _on_vectors(value: Callable[..., ir.Value]) -> Callable[..., Any]:
    """An operation on vectors: operation(y, i, *operands, size) writes y[i : i + size].

    It stores value(builder, y[i : i + size], *operands).

    An operand is an array with an offset, `x, j` for x[j : j + size], or a scalar, broadcast to all lanes. `size` is a
    compile-time constant: written as a loop, LLVM would unroll it before it could vectorise it.
    """

    @intrinsic(prefer_literal=True)
    def operation(typing, y, i, *others):
        def build(context, builder, signature, arguments):
            to, at = zip((y, i), arguments[:2], strict=True)
            operands = list(
                _operands(context, builder, zip(others[:-1], cgutils.unpack_tuple(builder, arguments[2])), y.dtype)
            )
            for span in _pieces(others[-1].literal_value):
                place = vector_at(context, builder, to, at, *span)
                builder.store(
                    value(builder, builder.load(place, align=1), *(operand(*span) for operand in operands)),
                    place,
                    align=1,
                )
            return context.get_dummy_value()

        return types.void(y, i, types.StarArgTuple(others)), build

    return operation


_FLAGS = tuple(sorted(FASTMATH))
copy = _on_vectors(lambda builder, y, a: a)
mul = _on_vectors(lambda builder, y, a, x: builder.fmul(a, x, flags=_FLAGS))  # a x
muladd = _on_vectors(
    lambda builder, y, a, x: builder.fadd(y, builder.fmul(a, x, flags=_FLAGS), flags=_FLAGS)
)  # y + a x
largest = _on_vectors(lambda builder, y, x: builder.select(builder.fcmp_ordered("<", x, y), y, x))  # NaN if x is
gate = _on_vectors(
    lambda builder, y, a, x: builder.select(builder.fcmp_ordered("<=", x, a), a, y)
)  # a where x <= a, else y


@intrinsic(prefer_literal=True)
def dot(typing, y, i, x, j, size):
    """The sum of y[i : i + size] * x[j : j + size], `size` a constant."""

    def build(context, builder, signature, arguments):
        a, b = _operands(context, builder, zip(signature.args[:4], arguments), y.dtype)
        sums: dict[int, ir.Value] = {}
        for first, lanes in _pieces(size.literal_value):
            product = builder.fmul(a(first, lanes), b(first, lanes), flags=_FLAGS)
            sums[lanes] = builder.fadd(sums[lanes], product, flags=_FLAGS) if lanes in sums else product
        kind = context.get_data_type(y.dtype)
        total = ir.Constant(kind, -0.0)
        for lanes, vector in sums.items():
            name = f"llvm.vector.reduce.fadd.v{lanes}{'f32' if kind == ir.FloatType() else 'f64'}"
            function = builder.module.declare_intrinsic(name, (), ir.FunctionType(kind, [kind, vector.type]))
            total = builder.call(function, [total, vector], fastmath=_FLAGS)
        return total

    return y.dtype(y, i, x, j, size), build


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
