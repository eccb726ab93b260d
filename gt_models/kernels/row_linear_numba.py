"""Linear maps of rows on the CPU: products by oneDNN, gradients of weight and bias by a kernel.

The gradient of a weight is a sum over rows, of which oneDNN first copies one side, transposed. Here four of its rows
and TILE of its columns are summed up in registers. GFLOP/s with AVX-512, 2,048 rows of 64 to 192 numbers: 75 to 109,
oneDNN 45 to 73, MKL 62 to 87 (EPYC of family 25, model 17); with AVX2, 17,568 rows of 64 to 256 numbers: 61 to 73, MKL
64 to 76, whose threads would split the sum (model 1).
"""

from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from torch import Tensor

from gt_models.kernels.autocast import without_autocast
from gt_models.kernels.compiled import compiled, inner, local, muladd, run
from gt_models.kernels.once_differentiable import once_differentiable

# TILE: columns of a gradient, of which four rows fill half of the registers; ROWS: of both sides, which stay in the
# cache until they are done with
ROWS, TILE = (256, 64) if torch.backends.cpu.get_cpu_capability() == "AVX512" else (64, 16)


class _RowLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.with_bias = bias is not None
        return product(x, weight, bias)

    @staticmethod
    @once_differentiable
    @without_autocast
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        grad_weight, grad_bias = parameter_gradients(grad, x)
        return (
            product(grad, weight.t()) if ctx.needs_input_grad[0] else None,
            grad_weight,
            grad_bias if ctx.with_bias else None,
        )


row_linear = _RowLinear.apply


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`x` W^T + b."""
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


def parameter_gradients(grad: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """grad^T x [out, in] and the sum of grad's rows [out], of grad [rows, out] and x [rows, in]; 4 divides out."""
    grad, x = grad.contiguous(), x.contiguous()
    weight, bias = grad.new_zeros(grad.size(1), x.size(1)), grad.new_zeros(grad.size(1))
    run(_kernel(x.size(1)), grad.size(1) // 4, grad, x.view(-1), weight.view(-1), bias)
    return weight, bias


@cache
def _kernel(count: int) -> Callable[..., None]:
    """For x of `count` numbers a row. A unit is four rows of the weight's gradient; each number has one writer."""
    rest = count % TILE

    def four_rows(size: int) -> Callable[..., None]:
        area, second, third = 4 * size, 2 * size, 3 * size

        @inner
        def add(first, last, grad, x, o, column, weight):
            """Rows o to o + 3 and `size` columns, summed over the rows `first` to `last` of both sides."""
            sums, one = local(np.float32, area), np.float32(1)
            for t in range(area):
                sums[t] = np.float32(0)
            for r in range(first, last):
                place = r * count + column
                muladd(sums, 0, grad[r, o], x, place, size)
                muladd(sums, size, grad[r, o + 1], x, place, size)
                muladd(sums, second, grad[r, o + 2], x, place, size)
                muladd(sums, third, grad[r, o + 3], x, place, size)
            for row in range(4):
                muladd(weight, (o + row) * count + column, one, sums, row * size, size)

        return add

    add_tile, add_rest = four_rows(TILE), four_rows(rest or 1)

    @compiled
    def kernel(begin, end, grad, x, weight, bias):
        for first in range(0, len(grad), ROWS):
            last = min(len(grad), first + ROWS)
            for column in range(0, count - rest, TILE):
                for o in range(4 * begin, 4 * end, 4):
                    add_tile(first, last, grad, x, o, column, weight)
            if rest:
                for o in range(4 * begin, 4 * end, 4):
                    add_rest(first, last, grad, x, o, count - rest, weight)
            part = bias[4 * begin : 4 * end]
            for r in range(first, last):
                row = grad[r, 4 * begin : 4 * end]
                for o in range(len(part)):
                    part[o] += row[o]

    return kernel
