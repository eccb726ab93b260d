"""The arguments of a paper's model in the constructor of its released form, without repeating them."""

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from typing import Any

from torch import nn


def with_arguments_of(
    paper: type[nn.Module], *without: str, **defaults: Any
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorator: give `def __init__(self, own: ... = ..., **paper)` the arguments of the constructor of `paper`.

    The signature becomes the arguments of `paper` except those in `without`, with other `defaults`, then its own
    arguments. All arguments of the paper's model are passed in `**paper`, whether given or not. Others raise TypeError.

    Raises:
        TypeError: `without` or `defaults` name no argument of `paper`.
    """
    of_paper = signature(paper, eval_str=True).parameters
    if unknown := (set(without) | defaults.keys()) - of_paper.keys():
        raise TypeError(f"{paper.__name__} has no argument {', '.join(sorted(unknown))}")

    def decorate(init: Callable[..., None]) -> Callable[..., None]:
        own = signature(init, eval_str=True)
        first, *rest = [p for p in own.parameters.values() if p.kind is not Parameter.VAR_KEYWORD]
        taken = [
            p.replace(default=defaults.get(name, p.default))
            for name, p in of_paper.items()
            if name not in without and name not in own.parameters
        ]
        whole = own.replace(parameters=[first, *taken, *rest])

        @wraps(init)
        def __init__(*args: Any, **kwargs: Any) -> None:
            bound = whole.bind(*args, **kwargs)
            bound.apply_defaults()
            init(**bound.arguments)

        __init__.__signature__ = whole  # type: ignore[attr-defined]  # what inspect, the registry and recipes read
        return __init__

    return decorate
