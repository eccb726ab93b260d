"""Token-wise normalisations of PPGT ("Plain Transformers Can be Powerful Graph Learners", Eq. 1 and 3)."""

import torch
from torch import Tensor, nn

from gt_models.kernels.ada_rms import ada_rms

NORMS = ("adarms", "rms", "batch", "layer")


class AdaRMSNorm(nn.Module):
    """Eq. 3: x / rms(x) * rms(alpha * x + beta), [..., dim] -> [..., dim].

    alpha = 0, beta = 1 (as it starts) is RMSNorm, alpha = 1, beta = 0 the identity. One number per token scales it, so a token's
    direction stays and its length is as much of the old one as alpha and beta let through.
    """

    def __init__(self, dim: int, eps: float = 1e-6):
        super().__init__()
        self.alpha, self.beta, self.eps = nn.Parameter(torch.empty(dim)), nn.Parameter(torch.empty(dim)), eps
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.alpha)
        nn.init.ones_(self.beta)

    def forward(self, x: Tensor) -> Tensor:
        """[..., dim] -> [..., dim], in float32 where x is in half precision."""
        # half precision holds neither the squares nor eps: normalise in float32, hand back what came
        if x.dtype in (torch.float16, torch.bfloat16):
            return ada_rms(x.float(), self.alpha, self.beta, self.eps).to(x.dtype)
        return ada_rms(x, self.alpha, self.beta, self.eps)

    def extra_repr(self) -> str:
        return f"{self.alpha.numel()}, eps={self.eps}"


class RMSNorm(nn.Module):
    """Eq. 1: x / rms(x) * gamma, [..., dim] -> [..., dim]; blind to a token's length."""

    def __init__(self, dim: int, eps: float = 1e-6):
        super().__init__()
        self.gamma, self.eps = nn.Parameter(torch.empty(dim)), eps
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.ones_(self.gamma)

    def forward(self, x: Tensor) -> Tensor:
        """[..., dim] -> [..., dim], in float32 where x is in half precision."""
        wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        return (wide * (wide.square().mean(-1, keepdim=True) + self.eps).rsqrt() * self.gamma).to(x.dtype)


def make_norm(name: str, dim: int) -> nn.Module:
    """The normalisation called `name` over the last of [rows, dim]; raises ValueError listing the known ones."""
    if name not in NORMS:
        raise ValueError(f"unknown norm {name!r}; known: {', '.join(NORMS)}")
    return {"adarms": AdaRMSNorm, "rms": RMSNorm, "batch": nn.BatchNorm1d, "layer": nn.LayerNorm}[name](dim)
