"""A linear layer on features that are mostly zero, y = x W^T + b with x in compressed sparse rows (CSR)."""

import torch
from torch import Tensor
from torch.nn import functional as F

from gt_models.kernels.dispatch import Form, Operation

# Features are read as sparse from FEATURES columns on and up to this share that is not zero. Measured on one thread,
# 7,650 x 2,000 to width 512, forward and backward: dense 137 and 134 ms; 1 % not zero 6.4 and 6.1, 5 % 23 and 22,
# 10 % 44 and 45. Equal at 35 %.
FEATURES = 256
DENSITY = 0.1


def reference(values: Tensor, ptr: Tensor, col: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`y` [N, d].

    Args:
        values: entries of x that are not zero, row by row, [nnz]; no gradient.
        ptr: offsets of the rows, long [N + 1].
        col: their columns, ascending in each row, long [nnz].
        weight: [d, F].
        bias: [d] or None.

    It allocates the dense x, [N, F].
    """
    rows = torch.repeat_interleave(torch.arange(len(ptr) - 1, device=ptr.device), ptr.diff(), output_size=len(col))
    x = values.new_zeros(len(ptr) - 1, weight.size(1)).index_put((rows, col), values)
    return F.linear(x, weight, bias)


def _why_not(values: Tensor, ptr: Tensor, col: Tensor, weight: Tensor, bias: Tensor | None) -> str | None:
    if torch.is_autocast_enabled(values.device.type):
        return "autocast is on"
    if not bool(weight.detach().sum().isfinite()):  # 0 times NaN, of entries that are not stored
        return "a weight is not finite"
    return None


def _example(values: Tensor, ptr: Tensor, col: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[tuple, dict]:
    """Four rows, the second without an entry."""
    last = weight.size(1) - 1
    # a row has a column once, however few there are
    rows = [sorted({c for c in row if 0 <= c <= last}) for row in ([0, last // 2, last], [], [0, last], [last // 2])]
    col = torch.tensor([c for row in rows for c in row], dtype=torch.long, device=values.device)
    ptr = torch.tensor([0, *(len(row) for row in rows)], device=values.device).cumsum(0)
    small = torch.randn(len(col), dtype=values.dtype).to(values.device)
    return (small, ptr, col, *(None if t is None else torch.randn_like(t).requires_grad_() for t in (weight, bias))), {}


def _numba():
    from gt_models.kernels.sparse_linear_numba import sparse_linear

    return sparse_linear


sparse_linear = Operation("sparse_linear", reference, [Form("numba", _numba, _why_not)], _example)
