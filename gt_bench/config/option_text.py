"""Text of options of the command line: `KEY=VALUE`, and seeds such as `0-9`."""

from collections.abc import Sequence

import yaml

from gt_bench.config.schema import parse_yaml
from gt_bench.schemas import Settings
from gt_bench.utils.errors import UserError

MOST_SEEDS = 10_000


class OptionError(UserError, ValueError):
    """The value of an option is invalid; the message has what is expected."""


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
        raise OptionError(f"{option} {text}: expected KEY=VALUE, for example {example}")
    return key, value


def values_in(option: str, texts: Sequence[str], example: str) -> Settings:
    """Parses several `KEY=VALUE`, whose values are YAML. Arguments and errors are those of `key_and_text`."""
    found: Settings = {}
    for text in texts:
        key, value = key_and_text(option, text, example)
        try:
            found[key] = parse_yaml(value)
        except yaml.YAMLError as error:
            raise OptionError(f"{option} {text}: invalid YAML: {error}") from None
    return found


def seeds_in(text: str, option: str = "--seeds") -> list[int]:
    """Returns the seeds of `0-9` or `0,2,5`.

    Raises:
        OptionError: the text has another form, or names too many seeds.
    """
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or (dash and int(last) < int(first)):
            raise OptionError(f"{option} {text}: expected 0-9, or 0,2,5")
        more = range(int(first), int(last if dash else first) + 1)
        if more[-1] - more[0] + len(seeds) >= MOST_SEEDS:  # a typo, which would fill the memory
            raise OptionError(f"{option} {text}: these are more than {MOST_SEEDS:,} seeds; give fewer")
        seeds += more
    return seeds
