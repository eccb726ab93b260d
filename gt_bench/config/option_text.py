"""Text of options of the command line: `KEY=VALUE`, and seeds such as `0-9`."""

from collections.abc import Sequence

from gt_bench.config.schema import RecipeError, parse_yaml
from gt_bench.utils.errors import UserError
from gt_bench.utils.json_types import Settings

MOST_SEEDS = 10_000


class OptionError(UserError, ValueError):
    """The value of an option is invalid. The message is `--option value: problem; remedy`."""

    def __init__(self, problem: str = "", *, place: str = "", value: object = None, remedy: str = ""):
        super().__init__(problem, place=place if value is None else f"{place} {value}", value=value, remedy=remedy)
        self.place = place


def key_and_text(option: str, text: str, example: str) -> tuple[str, str]:
    """Divides `KEY=VALUE`.

    Args:
        option: name of the option, for messages.
        text: its value.
        example: a valid value.

    Raises:
        OptionError: the text has another form.
    """
    key, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not key or not value:
        raise OptionError(f"expected KEY=VALUE, for example {example}", place=option, value=text)
    return key, value


def values_in(option: str, texts: Sequence[str], example: str) -> Settings:
    """Parses several `KEY=VALUE`, whose values are YAML. Arguments and errors are those of `key_and_text`."""
    values: Settings = {}
    for text in texts:
        key, value = key_and_text(option, text, example)
        if key in values:
            raise OptionError(f"{key} is given twice", place=option, value=text, remedy="leave one out")
        try:
            values[key] = parse_yaml(value)
        except RecipeError as error:
            raise OptionError(error.problem, place=option, value=text) from None
    return values


def seeds_in(text: str, option: str = "--seeds") -> list[int]:
    """Returns the seeds of `0-9` or `0,2,5`.

    Raises:
        OptionError: the text has another form, or names too many seeds.
    """
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or (dash and int(last) < int(first)):
            raise OptionError("expected 0-9, or 0,2,5", place=option, value=text)
        more = range(int(first), int(last if dash else first) + 1)
        if more[-1] - more[0] + len(seeds) >= MOST_SEEDS:  # a typo, which would fill the memory
            raise OptionError(f"these are more than {MOST_SEEDS:,} seeds; give fewer", place=option, value=text)
        seeds += more
    return seeds
