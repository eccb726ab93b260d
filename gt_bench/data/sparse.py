"""Sparse node features (bags of words) in compressed sparse rows (CSR), read without a dense copy."""

# mypy: disable-error-code="arg-type, assignment"

import warnings

import numpy as np
import torch
from torch import Tensor

from gt_models.kernels.sparse_linear import DENSITY, FEATURES

ROWS = 1024  # read at a time


def sparse_rows(x: np.ndarray, normalise: bool = False) -> Tensor | None:
    """Convert node features to a sparse tensor, if that is faster.

    Args:
        x: features [N, F].
        normalise: divide each row by its sum.

    Returns:
        A float32 CSR tensor [N, F]; None if dense features are faster (`FEATURES`, `DENSITY`).
    """
    if x.ndim != 2 or x.shape[1] < FEATURES:
        return None
    counts, columns, values, remaining = [], [], [], int(DENSITY * x.size)
    for start in range(0, len(x), ROWS):
        part = x[start : start + ROWS]
        row, column = part.nonzero()
        remaining -= len(row)
        if remaining < 0:
            return None
        counts.append(np.bincount(row, minlength=len(part)))
        columns.append(column)
        values.append(part[row, column].astype(np.float32))
    count = torch.from_numpy(np.concatenate(counts))
    value = torch.from_numpy(np.concatenate(values))
    if normalise:
        row = torch.repeat_interleave(torch.arange(len(x)), count)
        value /= value.new_zeros(len(x)).index_add_(0, row, value).clamp_(min=1e-12)[row]
    ptr = torch.cat([count.new_zeros(1), count.cumsum(0)])
    column = torch.from_numpy(np.concatenate(columns))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(ptr, column, value, size=x.shape, check_invariants=False)
