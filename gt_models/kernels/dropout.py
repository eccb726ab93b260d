"""Dropout by a counter hash: whether an entry is dropped is a function of its position and of one seed.

No mask is kept for the backward pass, and a fused kernel drops the same entries as plain torch does, on any number of threads.
"""

import torch
from torch import Tensor

from gt_models.kernels.dispatch import Form, Operation
from gt_models.kernels.dropout_hash import GOLDEN, hash32, threshold


def kept(seed: Tensor, count: int, rate: float) -> Tensor:
    """Whether entry 0 .. count - 1 is kept, bool [count] on the device of `seed`, long [1]."""
    return kept_at(seed, torch.arange(count, device=seed.device), rate)


def kept_at(seed: Tensor, position: Tensor, rate: float) -> Tensor:
    """Whether the entries at `position`, long, are kept: bool of its shape."""
    return hash32((hash32(seed) + position * GOLDEN) & 0xFFFFFFFF) >= threshold(rate)


def drop_sparse(x: Tensor, seed: Tensor, rate: float) -> Tensor:
    """`drop` of a matrix in compressed sparse rows: what it does with x.to_dense(), of which zeros stay zeros. No gradient."""
    ptr, col, values = x.crow_indices(), x.col_indices(), x.values()
    row = torch.repeat_interleave(torch.arange(x.size(0), device=x.device), ptr.diff(), output_size=len(col))
    keep = kept_at(seed.to(x.device), row * x.size(1) + col, rate)
    values = torch.where(keep, values * (1 / (1 - rate)), torch.zeros_like(values))
    return torch.sparse_csr_tensor(ptr, col, values, size=x.shape, check_invariants=False)


def draw_seed() -> Tensor:
    """A seed from torch's CPU generator, long [1]."""
    return torch.randint(2**31 - 1, (1,))


def reference(x: Tensor, seed: Tensor, rate: float) -> Tensor:
    """x / (1 - rate) where an entry is kept, else 0. x of any shape; `seed` long [1], 0 <= rate < 1."""
    keep = kept(seed.to(x.device), x.numel(), rate).view(x.shape)
    return torch.where(keep, x * (1 / (1 - rate)), torch.zeros_like(x))


def _example(x: Tensor, seed: Tensor, rate: float) -> tuple[tuple, dict]:
    return (torch.randn(5, 7, dtype=x.dtype).to(x.device).requires_grad_(), seed, rate), {}


def _numba():
    from gt_models.kernels.dropout_numba import drop

    return drop


drop = Operation("dropout", reference, [Form("numba", _numba)], _example)
