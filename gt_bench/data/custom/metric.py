"""User-supplied metrics: `path/to/file.py:function`, a function of (output, target) with an attribute `direction`.

def cost(output, target):
    return float((output.argmax(1) != target).sum())
cost.direction = "min"
"""

import math
from collections.abc import Callable
from numbers import Real
from pathlib import Path
from typing import Any

from gt_bench.runtime.module_loader import function_of, imported, line_in
from gt_bench.runtime.signals import Stopped
from gt_bench.utils.errors import UserError, nearest
from gt_bench.utils.user_code import source_digest

DIRECTIONS = ("max", "min")
Metric = Callable[[Any, Any], float]


class MetricError(UserError):
    """A user-supplied metric cannot be used; the message names file and line."""


def is_custom(name: str) -> bool:
    """Returns whether a metric is named as `file.py:function`."""
    return name.partition(":")[0].endswith(".py")


def load_metric(name: str) -> tuple[Metric, str]:
    """Loads a user-supplied metric.

    Args:
        name: `path/to/file.py:function`.

    Returns:
        The function, whose errors name file and line, and its direction: "max" or "min", which values are better.

    Raises:
        MetricError: there is no such file or function, or it does not state its direction.
        ImportFails: the file cannot be imported.
    """
    file, _, function = name.partition(":")
    path = Path(file)
    if not path.is_file():
        raise MetricError("no such file", file=path, place="metric", remedy="expected path/to/file.py:function")
    loaded, known = function_of(imported(path.resolve(), str(path)), function)
    if loaded is None:
        raise MetricError(
            f"has no function {function!r}{nearest(function, known)}",
            file=path,
            place="metric",
            value=function,
            remedy=f"it has: {', '.join(known) or 'none'}; write def {function or 'my_metric'}(output, target): return "
            "a number",
        )
    direction = getattr(loaded, "direction", None)
    if direction not in DIRECTIONS:
        stated = "has no direction" if direction is None else f"has the direction {direction!r}"
        raise MetricError(
            stated,
            file=path,
            place=f"metric {function}",
            value=direction,
            remedy="state which values are better below the function: "
            f'{function}.direction = "max" or {function}.direction = "min"',
        )
    return _checked(loaded, path), direction


def metric_digest(name: str) -> str:
    """Returns the sha256 of the file of a user-supplied metric and of the files that it imports from its folder."""
    return source_digest(Path(name.partition(":")[0]))


def _checked(function: Callable[..., Any], path: Path) -> Metric:
    """Wraps a function so that its exceptions and results of a wrong type name file and line."""

    def metric(output: Any, target: Any) -> float:
        given = f"output {list(output.shape)}, target {list(target.shape)}"
        try:
            value = function(output.clone(), target.clone())  # it may write to its arguments
        except Stopped:
            raise
        except (Exception, SystemExit) as error:  # a user's function may raise anything
            raise MetricError(
                f"metric {function.__name__} raises {type(error).__name__}: {error}",
                file=path,
                place=f"line {line_in(path.resolve(), error)}",
                remedy=f"it was given {given}",
            ) from error
        if hasattr(value, "item") and getattr(value, "ndim", None) == 0:  # a scalar of torch or NumPy
            value = value.item()
        if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
            raise MetricError(
                f"metric {function.__name__} returned {value!r:.100} for {given}",
                file=path,
                place=f"line {function.__code__.co_firstlineno}",
                value=value,
                remedy="expected a finite number",
            )
        return float(value)

    return metric
