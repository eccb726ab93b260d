"""Operations on vectors of a constant length, written as instructions of LLVM, and arrays on the stack.

A loop of a constant length is unrolled by LLVM before it could be vectorised. Share of a training step that an
operation saves compared with its plain loop, HOT with kernel attention and 300 edges (`benchmarks/hot.py`, Intel,
family 6, model 207): `muladd` 43 %, `gate` 23 %, `local` 15 %, compared with arrays on the heap.
tests/gt_models/kernels/test_vectors.py compares each operation with its loop.
"""

# mypy: disable-error-code="attr-defined"

from collections.abc import Callable
from functools import partial
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from gt_models.kernels.compiled import FASTMATH, inner, powers


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
    """An array of a constant `size` on the stack, not initialised; `dtype` is a type, or that of an array.

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
def softmax(scores, n, peak, inverse, lanes):
    """2^(score - peak) of scores in base 2, [n, lanes], flat, in place.

    The peaks [lanes] are over n. The inverse sums of the powers [lanes] are computed too.
    """
    number = scores.dtype.type
    copy(peak, 0, number(-np.inf), lanes)
    for j in range(n):
        largest(peak, 0, scores, j * lanes, lanes)
    for j in range(n):
        muladd(scores, j * lanes, number(-1), peak, 0, lanes)
    powers(scores[: n * lanes])
    copy(inverse, 0, number(0), lanes)
    for j in range(n):
        muladd(inverse, 0, number(1), scores, j * lanes, lanes)
    for lane in range(lanes):
        inverse[lane] = number(1) / inverse[lane]
