"""The search space of a user-supplied model: a range around each numeric default of its constructor."""

import re
from collections.abc import Mapping

from gt_bench.utils.json_types import Settings

WIDTH = re.compile(r"hidden|width|dim|channels|features|units|embed|size")
HEADS = re.compile(r"heads?$")
NO_SETTING = re.compile(r"seed|random_state|verbose|version")


def argument_space(defaults: Mapping[str, object]) -> Settings:
    """The spaces of arguments.

    Args:
        defaults: name of an argument -> its default.

    Returns:
        Name -> space, as `search.space` of a recipe has it: widths and numbers of heads are halved and doubled, other
        whole numbers and rates vary around the default, positive numbers by their logarithm. Flags, words, negative
        numbers and seeds have none.
    """
    spaces = {name: space for name, value in defaults.items() if (space := _space(name, value))}
    widths = [value for name, space in spaces.items() if WIDTH.search(name) for value in space.get("choices", [])]
    for name in [name for name in spaces if HEADS.search(name)]:  # a width is split among heads
        choices = [heads for heads in spaces[name]["choices"] if not any(width % heads for width in widths)]
        if len(choices) > 1:
            spaces[name] = {"choices": choices}
        else:
            del spaces[name]
    return spaces


def _space(name: str, value: object) -> Settings | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0 or NO_SETTING.search(name):
        return None
    if isinstance(value, int):
        if HEADS.search(name) or (WIDTH.search(name) and value > 3) or value >= 16:
            return {"choices": sorted({max(1, value // 2), max(1, value), max(2, 2 * value)})}
        return {"low": min(value, max(1, value // 2)), "high": max(value + 1, 2 * value), "integer": True}
    if "drop" in name or value == 0:
        return {"low": 0.0, "high": _rounded(max(0.6, min(0.9, value + 0.2)))}
    low, high = (value / 10, min(10 * value, (1 + value) / 2)) if value < 1 else (value / 4, 4 * value)
    return {"low": _rounded(low), "high": _rounded(high), "log": True}


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")
