"""Backward passes that have no derivative."""

from collections.abc import Callable
from functools import wraps

import torch
from torch import Tensor


class SecondDerivativeError(RuntimeError):
    """A second derivative is requested of a form that has none; the message has the remedy."""


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
            raise SecondDerivativeError(
                f"{type(ctx).__name__.removesuffix('Backward')}: a fast form has no second derivative; compute it "
                'within gt_models.kernels.use("reference")'
            )
        return backward(ctx, *grads)

    return run
