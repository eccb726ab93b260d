"""Several linear maps of the same rows, y_k = x W_k^T + b_k.

On a CPU by oneDNN, whose products use the widest vectors of any processor. MKL, torch's own library for them, uses half
of the width on AMD's: 112 GFLOP/s on a thread, oneDNN 185 to 240 (EPYC of family 26, rows of 64 to 768 numbers).
"""

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from gt_models.kernels.autocast import without_autocast
from gt_models.kernels.dispatch import Form, Operation
from gt_models.kernels.once_differentiable import once_differentiable

# numbers of a row up to which MKL computes gradients of weights faster: oneDNN first copies a side, transposed
NARROW = 256


def reference(x: Tensor, *parameters: Tensor | None) -> tuple[Tensor, ...]:
    """`x` [N, d] -> [N, d_k] for each weight [d_k, d] and bias [d_k] or None.

    `parameters` are all weights, then all biases.
    """
    weights, biases = _halves(parameters)
    return tuple(F.linear(x, w, b) for w, b in zip(weights, biases, strict=True))


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """One map, [N, d] -> [N, d_1]."""
    return multi_linear(x, weight, bias)[0]


def _halves(parameters: tuple) -> tuple[tuple, tuple]:
    return parameters[: len(parameters) // 2], parameters[len(parameters) // 2 :]


class _MultiLinear(torch.autograd.Function):
    """The gradient of x is summed inside the matrix products, not by passes over memory after them."""

    @staticmethod
    def forward(ctx, onednn: bool, x: Tensor, *parameters: Tensor | None) -> tuple[Tensor, ...]:
        weights, biases = _halves(parameters)
        ctx.save_for_backward(x, *weights)
        ctx.onednn, ctx.biases = onednn, [b is not None for b in biases]
        if not onednn:
            return reference(x, *parameters)
        return tuple(product(x, w, b) for w, b in zip(weights, biases, strict=True))

    @staticmethod
    @once_differentiable
    @without_autocast
    def backward(ctx, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, *weights = ctx.saved_tensors
        grad_x = None
        if ctx.needs_input_grad[1]:
            for grad, weight in zip(grads, weights, strict=True):
                if not ctx.onednn:
                    grad_x = grad @ weight if grad_x is None else grad_x.addmm_(grad, weight)
                elif grad_x is None:
                    grad_x = product(grad, weight.t())
                else:
                    grad_x = torch.ops.mkldnn._linear_pointwise.binary(grad, grad_x, weight.t(), None, "add")
        grad_weights = [of_weight(g, x) if ctx.onednn else g.t() @ x for g in grads]
        return None, grad_x, *grad_weights, *[g.sum(0) if b else None for g, b in zip(grads, ctx.biases, strict=True)]


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`x` W^T + b by oneDNN."""
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


def of_weight(grad: Tensor, x: Tensor) -> Tensor:
    """Gradient of a weight, [out, in]."""
    return grad.t() @ x if max(x.size(1), grad.size(1)) <= NARROW else product(grad.t(), x.t())


def too_small(x: Tensor, *parameters: Tensor | None) -> str | None:
    """Why products of oneDNN are not faster or not available; None if they are."""
    if not torch.backends.mkldnn.is_available() or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return "no oneDNN in this torch"
    if x.numel() * min(len(w) for w in _halves(parameters)[0]) < 2**20:
        return "fewer than 2^20 multiplications: its calls cost more than MKL's"
    return _why_not(x)


def _why_not(x: Tensor, *parameters: Tensor | None) -> str | None:
    return "autocast is on" if torch.is_autocast_enabled(x.device.type) else None


def _example(x: Tensor, *parameters: Tensor | None) -> tuple[tuple, dict]:
    """Five rows through maps of the same shapes."""
    rows = x.new_empty(5, x.size(1))
    return tuple(None if t is None else torch.randn_like(t).requires_grad_() for t in (rows, *parameters)), {}


multi_linear = Operation(
    "multi_linear",
    reference,
    [
        Form("onednn", lambda: partial(_MultiLinear.apply, True), too_small, dtypes=(torch.float32,)),
        Form("summed", lambda: partial(_MultiLinear.apply, False), _why_not, devices=("cpu", "cuda")),
    ],
    _example,
)
