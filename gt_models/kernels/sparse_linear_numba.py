"""A linear layer on sparse rows on the CPU: reads a row of W^T, and writes one of its gradient, per non-zero entry."""

from functools import cache
from types import SimpleNamespace

import torch
from torch import Tensor

from gt_models.kernels.compiled import compiled, real, row_capacity, run
from gt_models.kernels.once_differentiable import once_differentiable
from gt_models.kernels.vectors import local


class _SparseLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, values: Tensor, ptr: Tensor, col: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(values, ptr, col)
        ctx.columns, ctx.bias = weight.size(1), bias is not None
        out = values.new_empty(len(ptr) - 1, len(weight))
        start = weight.new_zeros(len(weight)) if bias is None else bias.contiguous()
        kernels = _kernels(values.dtype, row_capacity(len(weight)))
        run(kernels.forward, len(out), values, ptr, col, weight.t().contiguous(), start, out, grain=64)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        values, ptr, col = ctx.saved_tensors
        grad = grad.contiguous()
        if not bool(grad.sum().isfinite()):  # 0 times NaN, of entries that are not stored
            rows = torch.repeat_interleave(torch.arange(len(grad)), ptr.diff())
            x = values.new_zeros(len(grad), ctx.columns).index_put((rows, col), values)
            return None, None, None, grad.t() @ x, grad.sum(0) if ctx.bias else None
        by_column = grad.new_zeros(ctx.columns, grad.size(1))
        kernels = _kernels(values.dtype, row_capacity(grad.size(1)))
        run(kernels.weight, ctx.columns, values, ptr, col, grad, by_column, grain=64)
        return None, None, None, by_column.t(), grad.sum(0) if ctx.bias else None


sparse_linear = _SparseLinear.apply


@cache
def _kernels(dtype: torch.dtype, capacity: int) -> SimpleNamespace:
    """For rows of up to `capacity` numbers."""
    number = real(dtype)
    zero = number(0)

    @compiled
    def forward(begin, end, values, ptr, col, weight, bias, out):
        """`weight` [F, d]."""
        dim, row = len(bias), local(number, capacity)
        for i in range(begin, end):
            for c in range(dim):
                row[c] = bias[c]
            for e in range(ptr[i], ptr[i + 1]):
                value, part = values[e], weight[col[e]]
                if value != zero:  # dropped
                    for c in range(dim):
                        row[c] += value * part[c]
            for c in range(dim):
                out[i, c] = row[c]

    @compiled
    def weight(begin, end, values, ptr, col, grad, out):
        """`out` [F, d], columns begin to end of x: each is summed by one thread, over rows in their order."""
        dim, row = grad.shape[1], local(number, capacity)
        for i in range(len(ptr) - 1):
            for c in range(dim):
                row[c] = grad[i, c]
            for e in range(ptr[i], ptr[i + 1]):
                value = values[e]
                if begin <= col[e] < end and value != zero:
                    part = out[col[e]]
                    for c in range(dim):
                        part[c] += value * row[c]

    return SimpleNamespace(forward=forward, weight=weight)
