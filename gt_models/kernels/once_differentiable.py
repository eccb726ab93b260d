"""Backward passes that have no derivative."""

from collections.abc import Callable
from functools import wraps

import torch
from torch import Tensor

_MESSAGE = 'a fast form has no second derivative; compute it within gt_models.kernels.use("reference")'


class SecondDerivativeError(RuntimeError):
    """A second derivative is requested of a form that has none; the message has the remedy."""


class _Once(torch.autograd.Function):
    """The identity, whose gradient has no derivative."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            raise SecondDerivativeError(_MESSAGE)
        return grad


def refuse_second_derivative(x: Tensor) -> Tensor:
    """`x`, computed by an operation of torch that has no second derivative; then one raises `SecondDerivativeError`."""
    return x if torch.compiler.is_compiling() else _Once.apply(x)


def once_differentiable(backward: Callable) -> Callable:
    """Decorate the backward of a `torch.autograd.Function` that must not be differentiated.

    torch's decorator of this name raises in `Tensor.backward` only. `torch.autograd.grad`, by which Hessians are
    computed, passes over it and gives second derivatives without what goes through the function.

    Raises:
        SecondDerivativeError: in the backward pass, if it is to be differentiated (`create_graph=True`).
    """

    @wraps(backward)
    def run(ctx, *grads: Tensor):
        if torch.is_grad_enabled():
            raise SecondDerivativeError(f"{type(ctx).__name__.removesuffix('Backward')}: {_MESSAGE}")
        return backward(ctx, *grads)

    return run
