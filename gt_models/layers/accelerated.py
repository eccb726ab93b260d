"""Methods that a faster implementation may replace at run time.

A layer's file has its equations in plain torch and marks a method with `@accelerated`; it never imports a kernel. A
file in `gt_models/kernels/attached/` registers a faster implementation of that method for that class
(`gt_models.kernels.attach`), with the conditions under which it may replace it. Each call checks the conditions. If one
does not hold, the plain method runs.

The mark is a function of the class, not state of the object. Hence copies, pickles and state dicts know nothing of it,
and a compiler, an exporter and a functional transform trace the plain method.
"""

import functools
import importlib
import importlib.util
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from torch import nn
from torch.nn.modules import module as hooks_of_all_modules

Method = TypeVar("Method", bound=Callable[..., Any])

# (class, method) -> what runs in place of the plain method: an Operation of gt_models.kernels
ATTACHED: dict[tuple[type, str], Callable[..., Any]] = {}


def accelerated(method: Method) -> Method:
    """Decorator: run the implementation that is attached to the object's class, else the method itself.

    A subclass has no implementation until one is attached to it, even if it inherits the method.
    """

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return method(self, *args, **kwargs)
        return (_implementation(type(self), method) or method)(self, *args, **kwargs)

    call.__dict__["accelerated"] = True
    return cast(Method, call)


def plain(cls: type, name: str) -> Callable[..., Any]:
    """The plain equations of method `name`.

    Raises:
        ValueError: it is not marked as `@accelerated`.
    """
    function = getattr(cls, name)
    if not getattr(function, "accelerated", False):
        raise ValueError(f"{cls.__qualname__}.{name} is not marked as @accelerated: mark it in {cls.__module__}")
    return inspect.unwrap(function)


def differs(name: str, module: Any, types: type | tuple[type, ...]) -> str | None:
    """Why the parameters of `module` may not be read, or its parts called, in place of the module; None if they may.

    The module must have exactly one of these types, no hooks and no `forward` of its own.
    """
    if type(module) not in (types if isinstance(types, tuple) else (types,)):
        return f"{name} is a {type(module).__name__}"
    if not isinstance(module, nn.Module):
        return None
    if hooks_of_all_modules._has_any_global_hook():
        return "a hook of all modules is registered"
    if module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks:
        return f"{name} has hooks"
    return f"the forward of {name} is replaced" if "forward" in vars(module) else None


def _implementation(cls: type, method: Callable[..., Any]) -> Callable[..., Any] | None:
    _load(cls.__module__)
    attached = ATTACHED.get((cls, method.__name__))
    # a method that calls the one of its base class: what is attached replaces the whole of it, never the base's part
    return attached if attached is not None and inspect.unwrap(getattr(cls, method.__name__)) is method else None


@functools.cache
def _load(module: str) -> None:
    """Import gt_models.kernels.attached.NAME for gt_models.NAME, gt_models.released.NAME or gt_models.layers.NAME."""
    library, *names = module.split(".")
    for name in names if library == "gt_models" else ():
        attached = f"gt_models.kernels.attached.{name}"
        if importlib.util.find_spec(attached):
            importlib.import_module(attached)
