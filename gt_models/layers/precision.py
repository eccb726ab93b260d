"""Sums that need the full precision of float32, in models of half precision and under autocast."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

Method = TypeVar("Method", bound=Callable[..., Tensor])


def full_precision(method: Method) -> Method:
    """Decorator of a method with a floating tensor as first argument: run it in float32 at least, outside of autocast.

    Tensors in bfloat16 and float16 are converted to float32; float64 stays. The result is not converted back.
    """

    @functools.wraps(method)
    def call(self: Any, *args: Any) -> Tensor:
        with torch.autocast(args[0].device.type, enabled=False):
            return method(self, *(widened(a) if isinstance(a, Tensor) else a for a in args))

    return cast(Method, call)


def widened(x: Tensor) -> Tensor:
    """A tensor of half precision in float32; any other as it is."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


def dtype_of(module: nn.Module) -> torch.dtype:
    """The dtype of a module's first floating parameter.

    torch's default for a module without one, such as a quantized layer.
    """
    floating = (p.dtype for p in module.parameters() if p.is_floating_point())
    return next(floating, torch.get_default_dtype())
