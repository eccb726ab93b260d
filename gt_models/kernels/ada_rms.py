"""AdaRMSNorm (PPGT, Eq. 3), https://arxiv.org/abs/2504.12588: x / rms(x) * rms(alpha * x + beta)."""

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gt_models.kernels.autocast import without_autocast
from gt_models.kernels.dispatch import Form, Operation


def reference(x: Tensor, alpha: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Of each token of x [..., d]; alpha, beta [d]."""

    def rms(u: Tensor) -> Tensor:  # [..., 1]
        return (u.square().mean(-1, keepdim=True) + eps).sqrt()

    return x / rms(x) * rms(alpha * x + beta)


class _TwoNumbers(torch.autograd.Function):
    """Saves x and two numbers per token for the backward pass.

    Plain autograd saves six tensors of the size of x, which on n^2 pairs is most of the memory of a step.

    With s = rms(x), t = rms(u), u = alpha x + beta, r = t / s and g = <dy, x>:
    dx = dy r + alpha u g / (d s t) - x g t / (d s^3), dalpha = sum x u g / (d s t), dbeta = sum u g / (d s t).
    """

    @staticmethod
    def forward(ctx, x: Tensor, alpha: Tensor, beta: Tensor, eps: float) -> Tensor:
        d = x.size(-1)
        s = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_().div_(d).add_(eps).sqrt_()  # [..., 1]
        t = (
            torch.linalg.vector_norm(torch.addcmul(beta, alpha, x), dim=-1, keepdim=True)
            .square_()
            .div_(d)
            .add_(eps)
            .sqrt_()
        )  # [..., 1]
        ctx.save_for_backward(x, alpha, beta, s, t)
        return x * (t / s)

    @staticmethod
    @once_differentiable
    @without_autocast
    def backward(ctx, dy: Tensor):  # type: ignore[override]
        x, alpha, beta, s, t = ctx.saved_tensors
        d = x.size(-1)
        g = (dy * x).sum(-1, keepdim=True)  # [..., 1]
        c = g / (d * s * t)  # [..., 1]
        dx = (
            (dy * (t / s))
            .addcmul_(x, g * t / (d * s**3), value=-1)
            .addcmul_(torch.addcmul(alpha * beta, alpha.square(), x), c)
        )
        rows, c = x.reshape(-1, d), c.reshape(1, -1)
        cx, cxx = (c @ rows).squeeze(0), (c @ rows.square()).squeeze(0)  # [d] each: sums over tokens as matrix products
        return dx, alpha * cxx + beta * cx, alpha * cx + beta * c.sum(), None


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


ada_rms = Operation(
    "ada_rms",
    reference,
    [Form("numba", _numba), Form("two-numbers", lambda: _TwoNumbers.apply, devices=("cpu", "cuda"))],
    _example,
)
