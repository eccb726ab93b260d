"""What closes a Polynormer layer (Deng et al. 2024, equations 7 and 17), https://arxiv.org/abs/2403.01232.

h' = act(h)     a' = drop(act(a))     x = (1 - b) LayerNorm(h' * a') + b a'
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from gt_models.kernels.dispatch import Form, Operation
from gt_models.kernels.dropout import drop


def reference(
    h: Tensor,
    a: Tensor,
    b: Tensor,
    weight: Tensor,
    bias: Tensor,
    eps: float,
    relu: bool,
    seed: Tensor | None,
    rate: float,
) -> Tensor:
    """x, [N, d].

    Args:
        h: [N, d].
        a: [N, d].
        b: [d].
        weight: of the norm, [d].
        bias: of the norm, [d].
        eps: of the norm.
        relu: whether act is ReLU or the identity.
        seed: of `gt_models.kernels.dropout`. None for no dropout.
        rate: of dropout.
    """
    h, a = (F.relu(h), F.relu(a)) if relu else (h, a)
    a = a if seed is None else drop(a, seed, rate)
    u = h * a
    return (1 - b) * F.layer_norm(u, u.shape[1:], weight, bias, eps) + b * a


def _why_not_triton(h: Tensor, *_: object) -> str | None:
    return None if h.is_cuda else f"runs on cuda, not on {h.device.type}"


def _example(h, a, b, weight, bias, eps, relu, seed, rate) -> tuple[tuple, dict]:
    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=h.dtype).to(h.device).requires_grad_()

    d = h.size(1)
    return (draw(5, d), draw(5, d), draw(d), draw(d), draw(d), eps, relu, seed, rate), {}


def _triton():
    from gt_models.kernels.gated_norm_triton import gated_norm

    return gated_norm


gated_norm = Operation(
    "gated_norm",
    reference,
    [Form("triton", _triton, _why_not_triton, ("cuda", "cpu"))],  # the seed is on the CPU
    _example,
)
