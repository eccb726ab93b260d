"""Bags of words: node features of which few are not zero, read in compressed sparse rows (CSR) without ever holding the rest."""

# mypy: disable-error-code="arg-type, assignment"

import numpy as np
import torch
from torch import Tensor

from gt_models.kernels.sparse_linear import DENSITY, FEATURES

ROWS = 1024  # read at a time


def sparse_rows(x: np.ndarray, normalise: bool = False) -> Tensor | None:
    """Features [N, F] as a float32 CSR tensor; None where dense ones are faster (`FEATURES`, `DENSITY`).

    `normalise`: each row is divided by its sum.
    """
    if x.ndim != 2 or x.shape[1] < FEATURES:
        return None
    counts, columns, values, room = [], [], [], int(DENSITY * x.size)
    for start in range(0, len(x), ROWS):
        part = x[start : start + ROWS]
        row, column = part.nonzero()
        room -= len(row)
        if room < 0:
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
    return torch.sparse_csr_tensor(
        ptr, torch.from_numpy(np.concatenate(columns)), value, size=x.shape, check_invariants=False
    )
