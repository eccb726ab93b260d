"""The recipe of a pair that has none, by the rules of defaults.yaml; what is searched; and which encodings its model reads."""

import inspect
from collections.abc import Sequence
from pathlib import Path

import yaml

from gt_bench.config.recipe import Recipe
from gt_bench.config.schema import parse_yaml, validated
from gt_bench.data.packed import PackedHeader
from gt_bench.plugins.adapter import GIVEN
from gt_bench.plugins.argument_space import argument_space
from gt_bench.plugins.models import is_own
from gt_bench.schemas import Settings
from gt_bench.utils.errors import UserError
from gt_models.registry import ModelInfo

RULES = Path(__file__).with_name("defaults.yaml")
MOST_SEEDS = 10_000


class SettingError(UserError, ValueError):
    """What --set or --seeds says cannot be read; the message says what it should look like."""


def settings(texts: Sequence[str]) -> Settings:
    """["optimizer.lr=0.01"] -> {"optimizer.lr": 0.01}. Values are YAML. Raises SettingError."""
    found: Settings = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip() or not value.strip():
            raise SettingError(
                f"--set {text}: expected key=value with a dotted key of a recipe, for example --set optimizer.lr=0.01"
            )
        try:
            found[key.strip()] = parse_yaml(value)
        except yaml.YAMLError as error:
            raise SettingError(f"--set {text}: the value is not readable as YAML: {error}") from None
    return found


def seeds_in(text: str) -> list[int]:
    """ "0-9" or "0,2,5" -> the seeds. Raises SettingError."""
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or (dash and int(last) < int(first)):
            raise SettingError(f"--seeds {text}: expected 0-9, or 0,2,5")
        more = range(int(first), int(last if dash else first) + 1)
        if more[-1] - more[0] + len(seeds) >= MOST_SEEDS:  # a typo, which would fill the memory
            raise SettingError(f"--seeds {text}: these are more than {MOST_SEEDS:,} seeds; give fewer")
        seeds += more
    return seeds


def recipe_of(
    info: ModelInfo,
    header: PackedHeader,
    given: Settings,
    seeds: Sequence[int] | None,
    trials: int | None,
    space: Settings | None = None,
) -> Recipe:
    """What the rules say of this pair, without the encodings that the model reads.

    Args:
        info: the model.
        header: of the dataset.
        given: dotted keys of a recipe, which replace what the rules say.
        seeds: instead of the rules'.
        trials: of a search; None for no search.
        space: dotted keys with their spaces, which replace or extend the default space.

    Raises:
        RecipeError: for a key or a value that no recipe can have.
        SettingError: where nothing is left to search, or a key is both set and searched.
    """
    if "model.name" in given:
        raise SettingError(
            f"--set model.name: the model is what the command names first: gt-bench try {given['model.name']} {header.name}"
        )
    content: Settings = {"model": {"name": info.name}}
    for rule in _rules()["recipe"]:
        if _holds(rule.get("when", {}), info, header):
            _merge(content, rule["recipe"])
    if "epochs" in given:  # whichever of the two is said takes the place of the other
        content.pop("phases", None)
    elif "phases" in given:
        content.pop("epochs", None)
    if seeds is not None:
        given = {**given, "seeds": list(seeds)}
    for key, value in given.items():
        _put(content, key, value)
    if trials is not None:
        if both := [key for key in space or () if key in given]:
            raise SettingError(f"--set {both[0]}: --space searches this key; leave one of the two out")
        whole = search_space(info, header, content["model"])
        searched = {key: values for key, values in whole.items() if key not in given} | (space or {})
        if not searched:
            raise SettingError(
                f"--search {trials}: nothing is left to search: --set gives {', '.join(whole)}; leave one out"
            )
        content["search"] = {"trials": trials, "space": searched}
    return validated(Recipe, content, f"gt-bench try {info.name} {header.name}")


def search_space(info: ModelInfo, header: PackedHeader, model: Settings) -> Settings:
    """The default search space of a pair: that of the rules, and for the arguments of a user-supplied model ranges by their defaults.

    Args:
        info: the model.
        header: of the dataset.
        model: the `model` section of the recipe, whose values count instead of the constructor's defaults.
    """
    space: Settings = {}
    for rule in _rules()["search"]:
        if _holds(rule.get("when", {}), info, header):
            space |= rule["space"]
    if not is_own(info.name):
        return space
    parameters = inspect.signature(info.cls).parameters
    defaults = {name: model.get(name, parameter.default) for name, parameter in parameters.items() if name not in GIVEN}
    space = {key: values for key, values in space.items() if not key.startswith("model.")}
    return space | {f"model.{name}": values for name, values in argument_space(defaults).items()}


def _rules() -> dict[str, list[Settings]]:
    return parse_yaml(RULES.read_text(encoding="utf-8"))


def _holds(when: Settings, info: ModelInfo, header: PackedHeader) -> bool:
    sizes = header.statistics
    answers = {
        "split": lambda value: header.split_kind == value,
        "task": lambda value: header.task == value,
        "own": lambda value: (
            ("content" in header.provenance.get("arguments", {})) == value
        ),  # as gt_bench.data.custom.dataset packs them
        "nodes_above": lambda value: sizes.get("nodes", 0) > value,
        "graphs_above": lambda value: sizes.get("graphs", 1) > value,
        "model": lambda value: info.name.removesuffix("-released") == value,
        "has": lambda value: value in inspect.signature(info.cls).parameters,
    }
    return all(answers[key](value) for key, value in when.items())


def _merge(content: Settings, update: Settings) -> None:
    for key, value in update.items():
        if value is None:
            content.pop(key, None)
        elif isinstance(value, dict) and isinstance(content.get(key), dict):
            _merge(content[key], value)
        else:
            content[key] = dict(value) if isinstance(value, dict) else value


def _put(content: Settings, key: str, value: object) -> None:
    *sections, last = key.split(".")
    for name in sections:
        if not isinstance(content.setdefault(name, {}), dict):
            raise SettingError(f"--set {key}: {name} is a value, not a section")
        content = content[name]
    if value is None:
        content.pop(last, None)
    else:
        content[last] = value
