"""Dropout by a counter hash: whether an entry is dropped is a function of its position and of one seed.

No mask is stored for the backward pass, and a fused kernel drops the same entries as plain torch does, on any number of
threads.
"""

import torch
from torch import Tensor

from gt_models.kernels.dispatch import Form, Operation
from gt_models.layers.dropout import drop_entries
from gt_models.layers.dropout_hash import draw_seed, kept_at

__all__ = ["draw_seed", "drop", "kept_at", "reference"]

reference = drop_entries


def _example(x: Tensor, seed: Tensor, rate: float) -> tuple[tuple, dict]:
    return (torch.randn(5, 7, dtype=x.dtype).to(x.device).requires_grad_(), seed, rate), {}


def _numba():
    from gt_models.kernels.dropout_numba import drop

    return drop


drop = Operation("dropout", reference, [Form("numba", _numba)], _example)
