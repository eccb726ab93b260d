"""Search spaces on the command line: `model.hidden=16,32,64`, `optimizer.lr=1e-4..1e-2:log`, `model.layers=1..4`."""

import re
from collections.abc import Mapping

from gt_bench.config.option_text import OptionError, key_and_text
from gt_bench.config.schema import RecipeError, parse_yaml
from gt_bench.config.search_section import Choice, Space
from gt_bench.utils.json_types import Settings

EXAMPLES = "model.hidden=16,32,64, model.layers=1..4 or optimizer.lr=1e-4..1e-2:log"
_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_RANGE = re.compile(rf"({_NUMBER})\.\.({_NUMBER})((?::[a-z]+(?:={_NUMBER})?)*)")


def space_in(text: str) -> tuple[str, Settings]:
    """Parses `KEY=VALUES`.

    Args:
        text: dotted key of a recipe and its values: choices separated by commas, or a range LOW..HIGH with the optional
            suffixes `:log` and `:step=S`. A range between integers contains only integers.

    Returns:
        (key, its entry in `search.space` of a recipe).

    Raises:
        OptionError: the text is invalid.
    """
    key, values = key_and_text("--space", text, EXAMPLES)
    if bounds := _RANGE.fullmatch(values):
        low, high = (parse_yaml(bounds[i]) for i in (1, 2))
        space: Settings = {"low": low, "high": high}
        if isinstance(low, int) and isinstance(high, int):
            space["integer"] = True
        for option in bounds[3].split(":")[1:]:
            name, _, value = option.partition("=")
            if name == "log" and not value:
                space["log"] = True
            elif name == "step" and value:
                space["step"] = parse_yaml(value)
            else:
                problem = f"unknown option {option!r} of a range; known: log, step=NUMBER"
                raise OptionError(problem, place="--space", value=text)
        return key, space
    if ".." in values:
        problem = f"expected a range LOW..HIGH of two numbers, for example {EXAMPLES}"
        raise OptionError(problem, place="--space", value=text)
    try:
        return key, {"choices": [parse_yaml(part.strip()) for part in values.split(",")]}
    except RecipeError as error:
        raise OptionError(error.problem, place="--space", value=text) from None


def space_text(space: Space) -> str:
    """Returns the values of a key as text that `space_in` accepts."""
    if isinstance(space, Choice):
        words = {None: "null", True: "true", False: "false"}
        return ",".join(
            words[value] if value is None or isinstance(value, bool) else str(value) for value in space.choices
        )
    low, high = (str(int(v)) if space.integer else str(v) for v in (space.low, space.high))
    step = "" if space.step is None else f":step={space.step}"
    return f"{low}..{high}{':log' if space.log else ''}{step}"


def space_lines(spaces: Mapping[str, Space]) -> list[str]:
    """Returns a line of text for each key of a search space."""
    width = max(map(len, spaces), default=0)
    return [f"  {key:<{width}}  {space_text(space)}" for key, space in spaces.items()]
