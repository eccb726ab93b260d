"""AdaRMSNorm (PPGT, Eq. 3), https://arxiv.org/abs/2504.12588: x / rms(x) * rms(alpha * x + beta)."""

import torch
from torch import Tensor

from gt_models.kernels.dispatch import Form, Operation


def reference(x: Tensor, alpha: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Of each token of x [..., d]; alpha, beta [d]."""

    def rms(u: Tensor) -> Tensor:  # [..., 1]
        return (u.square().mean(-1, keepdim=True) + eps).sqrt()

    return x / rms(x) * rms(alpha * x + beta)


def _example(x: Tensor, alpha: Tensor, beta: Tensor, eps: float) -> tuple[tuple, dict]:
    """Five tokens."""
    tokens = torch.randn(5, x.size(-1), dtype=x.dtype).to(x.device)
    return (
        tokens.requires_grad_(),
        torch.randn_like(alpha).requires_grad_(),
        torch.randn_like(beta).requires_grad_(),
        eps,
    ), {}


def _numba():
    from gt_models.kernels.ada_rms_numba import ada_rms

    return ada_rms


def _triton():
    from gt_models.kernels.ada_rms_triton import ada_rms

    return ada_rms


ada_rms = Operation("ada_rms", reference, [Form("numba", _numba), Form("triton", _triton, devices=("cuda",))], _example)
