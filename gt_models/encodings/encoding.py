"""What every encoding states about itself: its function, its arguments, the shape of what it returns."""

import inspect
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from torch import Tensor

from gt_models.batch import ROWS
from gt_models.suggestions import nearest


class EncodingError(ValueError):
    """An encoding or argument that does not exist or has the wrong type; the message names the nearest valid one."""


@dataclass(frozen=True)
class Encoding:
    """One positional or structural encoding.

    Attributes:
        name: what recipes call it.
        function: `(batch: GraphBatch, *, arguments, dtype) -> {array: flat tensor}`; its keyword arguments are the
            encoding's, but for `dtype` and, where draws depend on them, the ids `graphs`.
        names: of its arrays; `gt_models.batch.ROWS` has what their rows are.
        widths: `(arguments) -> {array: c}`.
        on_the_fly: True where computing it for a batch is cheap enough to be done in every step instead of being
            stored.
        offsets: arrays whose numbers are edges of the batch (-1 for none): they depend on which graphs come before.
    """

    name: str
    function: Callable[..., dict[str, Tensor]]
    names: tuple[str, ...]
    widths: Callable[..., dict[str, int]]
    on_the_fly: bool = False
    offsets: tuple[str, ...] = ()

    @property
    def arrays(self) -> dict[str, str]:
        """What the rows of each array are: "node" [N, c], "pair" [sum n_b^2, c] or "graph" [B, c]."""
        return {name: ROWS[name] for name in self.names}

    @property
    def module(self) -> str:
        """Dotted name of the module whose code decides the result."""
        return self.function.__module__

    @cached_property
    def parameters(self) -> dict[str, inspect.Parameter]:
        """The arguments that a recipe may give, by name."""
        signature = inspect.signature(self.function, eval_str=True)
        return {
            k: p for k, p in signature.parameters.items() if p.kind is p.KEYWORD_ONLY and k not in ("dtype", "graphs")
        }

    @property
    def random(self) -> bool:
        """Whether the result depends on the ids of the graphs."""
        return "graphs" in inspect.signature(self.function).parameters

    def arguments(self, given: dict[str, Any]) -> dict[str, Any]:
        """`given` checked, with defaults filled in, sorted by name.

        Raises:
            EncodingError: an unknown argument, or a value of another type.
        """
        for key in given:
            if key not in self.parameters:
                known = ", ".join(self.parameters) or "none"
                raise EncodingError(
                    f"encoding {self.name!r} has no argument {key!r:.200}{nearest(key, self.parameters)}; known: "
                    f"{known}"
                )
        complete = {}
        for key in sorted(self.parameters):
            parameter = self.parameters[key]
            value = given.get(key, parameter.default)
            if value is parameter.empty:
                raise EncodingError(f"encoding {self.name!r} needs the argument {key!r:.200}")
            if not _fits(value, parameter.annotation):
                raise EncodingError(
                    f"encoding {self.name!r}: {key} must be {_describe(parameter.annotation)}, not {value!r:.200}"
                )
            if type(value) is int and value < (0 if key == "seed" else 1):
                raise EncodingError(
                    f"encoding {self.name!r}: {key} must be at least {0 if key == 'seed' else 1}, not {value}"
                )
            complete[key] = value
        self.widths(**complete)
        return complete

    def key(self, given: dict[str, Any]) -> str:
        """Name of the encoding with all its arguments, usable as a file name: "rwse-steps=20"."""
        return "-".join([self.name, *(f"{k}={_text(v)}" for k, v in self.arguments(given).items())])

    def num_bytes(self, given: dict[str, Any], sizes: Tensor) -> int:
        """Bytes of the arrays for graphs of `sizes` nodes, four bytes per number."""
        rows = {"node": int(sizes.sum()), "pair": int((sizes**2).sum()), "graph": sizes.numel()}
        widths = self.widths(**self.arguments(given))
        return 4 * sum(rows[level] * widths[array] for array, level in self.arrays.items())


def _fits(value: Any, annotation: Any) -> bool:
    origin = typing.get_origin(annotation)
    if origin is Literal:
        return value in typing.get_args(annotation) and not isinstance(value, bool)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, a) for a in typing.get_args(annotation))
    return type(value) is annotation


def _describe(annotation: Any) -> str:
    if typing.get_origin(annotation) is Literal:
        return "one of " + ", ".join(map(repr, typing.get_args(annotation)))
    return getattr(annotation, "__name__", str(annotation))


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
