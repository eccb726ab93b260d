"""What closes a Polynormer layer (Deng et al. 2024, Eqs. 7 and 17), https://arxiv.org/abs/2403.01232.

h' = act(h + h_bias)     a' = drop(act(a + skip + skip_bias))     x = (1 - b) LayerNorm(h' * a') + b a', without norm a' * (h' + b)
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from gt_models.kernels.dispatch import Form, Operation
from gt_models.kernels.dropout import drop


def reference(
    h: Tensor, a: Tensor, skip: Tensor | None, total: Tensor | None, h_bias: Tensor, skip_bias: Tensor | None, b: Tensor,
    weight: Tensor | None, bias: Tensor | None, eps: float, relu: bool, seed: Tensor | None, rate: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """x and total + x, both [N, d].

    Args:
        h, a, skip: [N, d]; `skip` may be None.
        total: the sum of the layers before, [N, d]; None in the first layer.
        h_bias, skip_bias, b: [d]; b may be [N, d].
        weight, bias, eps: of the norm, [d]; None: no norm (equation 7).
        relu: whether act is ReLU or the identity.
        seed, rate: of `gt_models.kernels.dropout`; seed None drops nothing.
    """
    h = h + h_bias
    a = a if skip is None else a + skip
    a = a if skip_bias is None else a + skip_bias
    h, a = (F.relu(h), F.relu(a)) if relu else (h, a)
    a = a if seed is None else drop(a, seed, rate)
    if weight is None:
        x = a * (h + b)
    else:
        u = (h * a).to(weight.dtype)
        x = (1 - b) * F.layer_norm(u, u.shape[1:], weight, bias, eps) + b * a
    return x, x if total is None else total + x


def _why_not(h, a, skip, total, h_bias, skip_bias, b, weight, *_) -> str | None:
    if b.dim() != 1:
        return "b differs from node to node"
    return "there is no norm" if weight is None else None


def _why_not_triton(h, *others) -> str | None:
    return _why_not(h, *others) if h.is_cuda else f"runs on cuda, not on {h.device.type}"


def _example(h, a, skip, total, h_bias, skip_bias, b, weight, bias, eps, relu, seed, rate) -> tuple[tuple, dict]:
    n, d = 5, h.size(1)

    def draw(like: Tensor | None, *shape: int) -> Tensor | None:
        return None if like is None else torch.randn(*shape, dtype=h.dtype).to(h.device).requires_grad_()

    rows, vectors = (h, a, skip, total), (h_bias, skip_bias, b, weight, bias)
    return (*(draw(t, n, d) for t in rows), *(draw(t, d) for t in vectors), eps, relu, seed, rate), {}


def _triton():
    from gt_models.kernels.gated_norm_triton import gated_norm

    return gated_norm


gated_norm = Operation(
    "gated_norm",
    reference,
    [Form("triton", _triton, _why_not_triton, ("cuda", "cpu"))],  # the seed is on the CPU
    _example,
)
