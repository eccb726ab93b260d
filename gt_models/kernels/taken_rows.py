"""Rows of a matrix in any order, out_i = values[row_i]."""

import torch
from torch import Tensor

from gt_models.kernels.dispatch import Form, Operation
from gt_models.kernels.grouped import Grouped


def reference(values: Tensor, row: Grouped) -> Tensor:
    """[n, d] -> [r, d]; `row`: of each of the r results, in n + 1 groups. Row n is zeros."""
    taken = values.index_select(0, row.of.clamp(max=max(0, len(values) - 1)))
    return taken.masked_fill((row.of == len(values))[:, None], 0.0)


def _numba():
    from gt_models.kernels.taken_rows_numba import taken_rows

    return taken_rows


def _example(values: Tensor, _: Grouped) -> tuple[tuple, dict]:
    """Four rows, one of them twice, and no row."""
    return (
        torch.randn(4, values.size(1), dtype=values.dtype).to(values.device).requires_grad_(),
        Grouped(torch.tensor([3, 0, 4, 3, 1], device=values.device), 5),
    ), {}


taken_rows = Operation("taken_rows", reference, [Form("numba", _numba)], _example)
