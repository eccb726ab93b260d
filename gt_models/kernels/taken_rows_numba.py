"""Rows in any order on the CPU: the gradient of a row is summed in the order of the results, by one writer."""

from collections.abc import Callable
from functools import cache
from types import SimpleNamespace

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gt_models.kernels.compiled import compiled, copy, local, muladd, real, run
from gt_models.kernels.grouped import Grouped

GRAIN = 1 << 15  # numbers that are worth a thread


class _TakenRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, values: Tensor, row: Grouped) -> Tensor:
        ctx.row, ctx.shape = row, values.shape
        out = values.new_empty(len(row.of), values.size(1))
        kernels = _kernels(values.dtype, values.size(1))
        run(
            kernels.forward,
            len(out),
            values.contiguous().view(-1),
            row.sorted.of,
            len(values),
            out.view(-1),
            grain=kernels.grain,
        )
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        gradient, kernels = grad.new_empty(ctx.shape), _kernels(grad.dtype, grad.size(1))
        _, ptr, rows = ctx.row.sorted
        run(
            kernels.backward,
            len(gradient),
            grad.contiguous().view(-1),
            ptr,
            rows,
            gradient.view(-1),
            grain=kernels.grain,
        )
        return gradient, None


taken_rows: Callable[..., Tensor] = _TakenRows.apply


@cache
def _kernels(dtype: torch.dtype, width: int) -> SimpleNamespace:
    """For rows of `width` numbers."""
    number = real(dtype)
    zero, one = number(0), number(1)

    @compiled
    def forward(begin, end, values, row, none, out):
        for i in range(begin, end):
            if row[i] < none:
                copy(out, i * width, values, row[i] * width, width)
            else:
                copy(out, i * width, zero, width)

    @compiled
    def backward(begin, end, grad, ptr, rows, out):
        total = local(number, width)
        for r in range(begin, end):
            copy(total, 0, zero, width)
            for place in range(ptr[r], ptr[r + 1]):
                muladd(total, 0, one, grad, rows[place] * width, width)
            copy(out, r * width, total, 0, width)

    return SimpleNamespace(forward=forward, backward=backward, grain=max(1, GRAIN // max(1, width)))
