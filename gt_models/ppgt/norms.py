"""Token-wise normalisations of PPGT ("Plain Transformers Can be Powerful Graph Learners", Eq. 1 and 3)."""

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

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
            return _AdaRMS.apply(x.float(), self.alpha, self.beta, self.eps).to(x.dtype)
        return _AdaRMS.apply(x, self.alpha, self.beta, self.eps)

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


class _AdaRMS(torch.autograd.Function):
    """Keeps x and two numbers a token; plain autograd keeps six tensors of x's size, which on n^2 pairs is most of a step's memory.

    With s = rms(x), t = rms(u), u = alpha x + beta, r = t / s and g = <dy, x>:
    dx = dy r + alpha u g / (d s t) - x g t / (d s^3), dalpha = sum x u g / (d s t), dbeta = sum u g / (d s t).
    """

    @staticmethod
    def forward(ctx, x: Tensor, alpha: Tensor, beta: Tensor, eps: float) -> Tensor:
        d = x.size(-1)
        # deviates: the paper divides by |x| alone; eps under both roots, as in the authors' implementation, keeps the zero token finite
        s = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_().div_(d).add_(eps).sqrt_()  # [..., 1]
        t = torch.linalg.vector_norm(torch.addcmul(beta, alpha, x), dim=-1, keepdim=True).square_().div_(d).add_(eps).sqrt_()  # [..., 1]
        ctx.save_for_backward(x, alpha, beta, s, t)
        return x * (t / s)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy: Tensor):
        x, alpha, beta, s, t = ctx.saved_tensors
        d = x.size(-1)
        g = (dy * x).sum(-1, keepdim=True)  # [..., 1]
        c = g / (d * s * t)  # [..., 1]
        dx = (dy * (t / s)).addcmul_(x, g * t / (d * s**3), value=-1).addcmul_(torch.addcmul(alpha * beta, alpha.square(), x), c)
        rows, c = x.reshape(-1, d), c.reshape(1, -1)
        cx, cxx = (c @ rows).squeeze(0), (c @ rows.square()).squeeze(0)  # [d] each: sums over tokens as matrix products
        return dx, alpha * cxx + beta * cx, alpha * cx + beta * c.sum(), None
