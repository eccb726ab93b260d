"""Operations on vectors of a constant length, written as instructions of LLVM, and arrays on the stack.

A loop of a constant length is unrolled by LLVM before it could be vectorised. tests/gt_models/kernels/test_vectors.py
compares each operation with its loop. Share of a training step that an operation saves compared with that loop, `local`
compared with an array on the heap (`benchmarks/hot.py` with 300 edges, `tokengt.py` of width 128, `ppgt.py`; Intel,
family 6, model 207; medians):

    muladd          HOT 41 %
    gate            HOT 18 %
    local           HOT 10 %
    copy            HOT 6 %
    mul             HOT 3 %, TokenGT 5 %
    copy, mul and `largest` (a loop today): TokenGT 9 %, PPGT 0 %
    gather, scatter Edge Transformer (`edge_transformer.py`) 15 %

`local`, `copy` and `mul` stay below 15 %: without them steps would be 5 to 10 % slower, and `copy` and `mul` are a line
each of what `muladd` needs anyway.
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

from gt_models.kernels.compiled import FASTMATH, inner, largest, powers

LANES = 8  # of `gather` and `scatter`: one vector of AVX2 in float32; a power of two


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
gate = _on_vectors(
    lambda builder, y, a, x: builder.select(builder.fcmp_ordered("<=", x, a), a, y)
)  # a where x <= a, else y


def _transposition(move: Callable[..., None]) -> Callable[..., Any]:
    """operation(states, at, x, first, stride, lanes, d).

    `move` between the d numbers of each lane, at first, first + stride, ... in x, and states[at : at + d LANES] as
    [channel, lane]; d is a constant, `lanes` of the LANES are there. Eight channels at a time, in registers.
    """

    @intrinsic(prefer_literal=True)
    def operation(typing, states, at, x, first, stride, lanes, d):
        def build(context, builder, signature, arguments):
            states, at, x, (_, first), (_, stride), (_, lanes), _ = zip(signature.args, arguments, strict=True)
            channel = 0
            while channel < d.literal_value:
                width = next(w for w in (8, 4, 2, 1) if w <= d.literal_value - channel)

                def channels_of(lane, channel=channel, width=width):
                    return vector_at(
                        context, builder, x, (types.intp, builder.add(first, builder.mul(stride, lane))), channel, width
                    )

                move(
                    builder, vector_at(context, builder, states, at, channel * LANES, width * LANES), channels_of, lanes
                )
                channel += width
            return context.get_dummy_value()

        return types.void(states, at, x, first, stride, lanes, d), build

    return operation


@_transposition
def gather(builder, states, channels_of, lanes):
    """A lane that is not there repeats the last one."""
    last = builder.sub(lanes, lanes.type(1))
    there = [
        builder.select(builder.icmp_signed("<", last, lanes.type(lane)), last, lanes.type(lane))
        for lane in range(LANES)
    ]
    vectors = [builder.load(channels_of(lane), align=1) for lane in there]
    while len(vectors) > 1:  # the numbers of two by turns: in the end those of all lanes
        half, width = len(vectors) // 2, vectors[0].type.count
        by_turns = _indices([m // 2 + m % 2 * width for m in range(2 * width)])
        vectors = [builder.shuffle_vector(a, b, by_turns) for a, b in zip(vectors[:half], vectors[half:], strict=True)]
    builder.store(vectors[0], states, align=1)


@_transposition
def scatter(builder, states, channels_of, lanes):
    """Nothing is written for a lane that is not there."""
    vectors = [builder.load(states, align=1)]
    while len(vectors) < LANES:
        width = vectors[0].type.count
        vectors = [
            builder.shuffle_vector(v, v, _indices(list(range(parity, width, 2)))) for parity in (0, 1) for v in vectors
        ]
    for lane, vector in enumerate(vectors):
        with builder.if_then(builder.icmp_signed("<", lanes.type(lane), lanes)):
            builder.store(vector, channels_of(lanes.type(lane)), align=1)


def _indices(numbers: list[int]) -> ir.Constant:
    return ir.Constant(ir.VectorType(ir.IntType(32), len(numbers)), numbers)


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
