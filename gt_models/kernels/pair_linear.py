"""A linear map of many rows, y = x W^T + b: most of a step of models that keep states of pairs."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from gt_models.kernels.dispatch import Form, Operation
from gt_models.kernels.linears import without_autocast


def reference(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x [P, in] -> [P, out] for a weight [out, in] and a bias [out] or None."""
    return F.linear(x, weight, bias)


class _OneDNN(torch.autograd.Function):
    """By oneDNN, as the form of `linears` (which says why). Its gradient of the weight copies what stands first in a product whose sum is over rows, so
    that the narrower of x and the gradient of y stands there: 4.6 ms instead of 6.8 for 17,568 rows of 64 to 256 numbers."""

    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.with_bias = bias is not None
        return _product(x, weight, bias)

    @staticmethod
    @once_differentiable
    @without_autocast
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, weight = ctx.saved_tensors
        grad_x = _product(grad, weight.t()) if ctx.needs_input_grad[0] else None
        narrow = x.size(1) < grad.size(1)
        grad_weight = _product(x.t(), grad.t()).t() if narrow else _product(grad.t(), x.t())
        return grad_x, grad_weight.contiguous(), grad.sum(0) if ctx.with_bias else None


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W^T + b."""
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


def _one_dnn() -> Callable[..., Tensor]:
    if not torch.backends.mkldnn.is_available() or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        raise ImportError("no oneDNN in this torch", name="oneDNN")
    return _OneDNN.apply


def _why_not(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> str | None:
    if torch.is_autocast_enabled(x.device.type):
        return "autocast is on"
    return "fewer than 2^21 multiplications: its calls cost more than MKL's" if x.numel() * len(weight) < 2**21 else None


def _example(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> tuple[tuple, dict]:
    """Five rows through a map of the same shape."""
    rows = x.new_empty(5, x.size(1))
    return tuple(None if t is None else torch.randn_like(t).requires_grad_() for t in (rows, weight, bias)), {}


pair_linear = Operation("pair_linear", reference, [Form("onednn", _one_dnn, _why_not, dtypes=(torch.float32,))], _example)
