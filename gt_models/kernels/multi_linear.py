"""Several linear maps of the same rows, y_k = x W_k^T + b_k."""

import torch
from torch import Tensor
from torch.nn import functional as F

from gt_models.kernels.autocast import without_autocast
from gt_models.kernels.dispatch import Form, Operation
from gt_models.kernels.once_differentiable import once_differentiable


def reference(x: Tensor, *parameters: Tensor | None) -> tuple[Tensor, ...]:
    """`x` [N, d] -> [N, d_k] for each weight [d_k, d] and bias [d_k] or None.

    `parameters` are all weights, then all biases.
    """
    weights, biases = _halves(parameters)
    return tuple(F.linear(x, w, b) for w, b in zip(weights, biases, strict=True))


def _halves(parameters: tuple) -> tuple[tuple, tuple]:
    return parameters[: len(parameters) // 2], parameters[len(parameters) // 2 :]


class _MultiLinear(torch.autograd.Function):
    """The gradient of x is summed inside the matrix products, not by passes over memory after them."""

    @staticmethod
    def forward(ctx, x: Tensor, *parameters: Tensor | None) -> tuple[Tensor, ...]:
        weights, biases = _halves(parameters)
        ctx.save_for_backward(x, *weights)
        ctx.biases = [b is not None for b in biases]
        return reference(x, *parameters)

    @staticmethod
    @once_differentiable
    @without_autocast
    def backward(ctx, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, *weights = ctx.saved_tensors
        grad_x = None
        if ctx.needs_input_grad[0]:
            grad_x = grads[0] @ weights[0]
            for grad, weight in zip(grads[1:], weights[1:], strict=True):
                grad_x.addmm_(grad, weight)
        grad_biases = [g.sum(0) if b else None for g, b in zip(grads, ctx.biases, strict=True)]
        return grad_x, *[g.t() @ x for g in grads], *grad_biases


def _too_small(x: Tensor, *parameters: Tensor | None) -> str | None:
    if x.numel() * min(len(w) for w in _halves(parameters)[0]) < 2**21:
        return "fewer than 2^21 multiplications: its calls cost more than MKL's"
    if not torch.backends.mkldnn.is_available() or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return "no oneDNN in this torch"
    return _why_not(x)


def _why_not(x: Tensor, *parameters: Tensor | None) -> str | None:
    return "autocast is on" if torch.is_autocast_enabled(x.device.type) else None


def _example(x: Tensor, *parameters: Tensor | None) -> tuple[tuple, dict]:
    """Five rows through maps of the same shapes."""
    rows = x.new_empty(5, x.size(1))
    return tuple(None if t is None else torch.randn_like(t).requires_grad_() for t in (rows, *parameters)), {}


def _numba():
    from gt_models.kernels.multi_linear_numba import multi_linear

    return multi_linear


multi_linear = Operation(
    "multi_linear",
    reference,
    [
        Form("numba", _numba, _too_small, dtypes=(torch.float32,)),
        Form("summed", lambda: _MultiLinear.apply, _why_not, devices=("cpu", "cuda")),
    ],
    _example,
)
