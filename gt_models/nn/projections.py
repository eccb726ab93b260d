"""Several linear maps of the same rows: the gradient of the rows is summed inside the matrix products and not by passes over memory after them."""

from collections.abc import Callable
from functools import wraps

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F


def project(x: Tensor, weights: list[Tensor], biases: list[Tensor | None]) -> tuple[Tensor, ...]:
    """x W^T + bias for each weight [d_k, d] and bias [d_k] or None: x [N, d] -> [N, d_k] each. First derivatives only."""
    if torch.is_autocast_enabled(x.device.type):
        return tuple(F.linear(x, w, b) for w, b in zip(weights, biases, strict=True))
    return _Project.apply(x, len(weights), *weights, *biases)


def without_autocast(backward: Callable) -> Callable:
    """For the backward of a Function: it may be called inside autocast, and computes as its forward pass did."""

    @wraps(backward)
    def run(ctx, *grads: Tensor):
        with torch.autocast(grads[0].device.type, enabled=False):
            return backward(ctx, *grads)

    return run


class _Project(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, count: int, *parameters: Tensor | None) -> tuple[Tensor, ...]:
        weights, biases = parameters[:count], parameters[count:]
        ctx.save_for_backward(x, *weights)
        ctx.biases = [b is not None for b in biases]
        return tuple(F.linear(x, w, b) for w, b in zip(weights, biases, strict=True))

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
        return grad_x, None, *[g.t() @ x for g in grads], *grad_biases
