"""Attributes computed once, in a form that torch.compile can follow."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch

T = TypeVar("T")


def outside_inference_mode(function: Callable[..., T], *args: Any) -> T:
    """function(*args), made outside of inference mode: what is made within it can take part in no training later."""
    if torch.compiler.is_compiling() or not torch.is_inference_mode_enabled():
        return function(*args)
    with torch.inference_mode(False), torch.no_grad():
        return function(*args)


class cached_property:
    """functools.cached_property without its lock (which Python 3.11 takes and torch.compile cannot trace).

    Not for use by several threads.

    The value becomes a plain attribute of the object, which Python finds before this descriptor.
    """

    def __init__(self, function: Callable[[Any], Any]):
        self.function, self.__doc__ = function, function.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        value = outside_inference_mode(self.function, instance)
        setattr(instance, self.name, value)
        return value
