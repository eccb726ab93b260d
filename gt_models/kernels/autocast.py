"""Autocast in custom backward passes."""

from collections.abc import Callable
from functools import wraps

import torch
from torch import Tensor


def without_autocast(backward: Callable) -> Callable:
    """Decorate the backward of a `torch.autograd.Function` so that it ignores an autocast that encloses the call."""

    @wraps(backward)
    def run(ctx, *grads: Tensor):
        with torch.autocast(grads[0].device.type, enabled=False):
            return backward(ctx, *grads)

    return run
