"""Channels next to their sines and cosines at doubling frequencies (PPGT, Eq. 9), https://arxiv.org/abs/2504.12588."""

import math

import torch
from torch import Tensor

from gt_models.kernels.dispatch import Form, Operation


def reference(p: Tensor, num_frequencies: int) -> Tensor:
    """[P, c] -> [P, c (1 + 2 S)] as blocks p, sin(pi p), cos(pi p), sin(2 pi p), cos(2 pi p), ..."""
    if num_frequencies == 0:
        return p
    blocks = [p]
    for s in range(num_frequencies):
        angle = p * (2**s * math.pi)
        blocks += [torch.sin(angle), torch.cos(angle)]
    return torch.cat(blocks, -1)


def _why_not(p: Tensor, num_frequencies: int) -> str | None:
    if p.requires_grad and torch.is_grad_enabled():
        return "has no gradient"
    return None if 0 < num_frequencies <= 4 else "each doubling costs a bit: from one to four frequencies"


def _example(p: Tensor, num_frequencies: int) -> tuple[tuple, dict]:
    """Whole numbers, halves, and others."""
    return (
        torch.linspace(-3, 3, 49, dtype=p.dtype, device=p.device)[:, None].expand(-1, p.size(1)),
        num_frequencies,
    ), {}


def _numba():
    from gt_models.kernels.sinusoids_numba import sinusoids

    return sinusoids


sinusoids = Operation("sinusoids", reference, [Form("numba", _numba, _why_not, dtypes=(torch.float32,))], _example)
