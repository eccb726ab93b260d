"""Normalisations of single tokens (PPGT, equations 1 and 3)."""

import torch
from torch import Tensor, nn

from gt_models.layers.accelerated import accelerated
from gt_models.layers.precision import full_precision

NORMS = ("adarms", "rms", "batch", "layer")


class AdaRMSNorm(nn.Module):
    """Equation 3: x / rms(x) * rms(alpha * x + beta), [..., dim] -> [..., dim].

    A token is only scaled, so its direction does not change. The initial values alpha = 0 and beta = 1 give RMSNorm;
    alpha = 1 and beta = 0 is the identity.

    Args:
        dim: width of a token.
        eps: added to the mean square under both roots.
    """

    def __init__(self, dim: int, eps: float = 1e-6):
        super().__init__()
        self.alpha, self.beta, self.eps = nn.Parameter(torch.empty(dim)), nn.Parameter(torch.empty(dim)), eps
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.alpha)
        nn.init.ones_(self.beta)

    def forward(self, x: Tensor) -> Tensor:
        """[..., dim] -> [..., dim], computed in float32 if x has half precision."""
        return self.normalise(x).to(x.dtype)

    @full_precision
    @accelerated
    def normalise(self, x: Tensor) -> Tensor:
        """Equation 3 in the precision of x, [..., dim] -> [..., dim]."""
        # deviates: the paper divides by |x| alone; eps under both roots, as in the authors' implementation, keeps the
        # zero token finite
        return x / rms(x, self.eps) * rms(self.alpha * x + self.beta, self.eps)  # equation 3

    def extra_repr(self) -> str:
        return f"{self.alpha.numel()}, eps={self.eps}"


class RMSNorm(nn.Module):
    """Equation 1: x / rms(x) * gamma, [..., dim] -> [..., dim]. The result does not depend on the norm of a token.

    Args:
        dim: width of a token.
        eps: added to the mean square under the root.
    """

    def __init__(self, dim: int, eps: float = 1e-6):
        super().__init__()
        self.gamma, self.eps = nn.Parameter(torch.empty(dim)), eps
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.ones_(self.gamma)

    def forward(self, x: Tensor) -> Tensor:
        """[..., dim] -> [..., dim], computed in float32 if x has half precision."""
        return self.normalise(x).to(x.dtype)

    @full_precision
    def normalise(self, x: Tensor) -> Tensor:
        """Equation 1 in the precision of x, [..., dim] -> [..., dim]."""
        return x / rms(x, self.eps) * self.gamma  # equation 1


def rms(x: Tensor, eps: float) -> Tensor:
    """Returns the root mean square of each token, [..., dim] -> [..., 1]."""
    return (x.square().mean(-1, keepdim=True) + eps).sqrt()


def make_norm(name: str, dim: int) -> nn.Module:
    """Creates a normalisation of tokens [rows, dim].

    Args:
        name: one of `NORMS`.
        dim: width of a token.

    Raises:
        ValueError: `name` is unknown.
    """
    if name not in NORMS:
        raise ValueError(f"unknown norm {name!r}; known: {', '.join(NORMS)}")
    return {"adarms": AdaRMSNorm, "rms": RMSNorm, "batch": nn.BatchNorm1d, "layer": nn.LayerNorm}[name](dim)
