"""The default recipe of a model on a dataset by the rules of defaults.yaml, and the default search space."""

import inspect
from collections.abc import Iterable, Sequence
from operator import attrgetter
from pathlib import Path

from gt_bench.config.option_text import OptionError
from gt_bench.config.recipe import Recipe
from gt_bench.config.schema import parse_yaml, validated
from gt_bench.data.custom.metric import is_custom
from gt_bench.data.packed import PackedHeader
from gt_bench.plugins.adapter import GIVEN
from gt_bench.plugins.argument_space import argument_space
from gt_bench.plugins.models import is_own
from gt_bench.utils.json_types import Settings
from gt_bench.utils.nested import flat
from gt_models.registry import ModelInfo

RULES = Path(__file__).with_name("defaults.yaml")

# {key of a recipe: (key that decides whether it has an effect, values of that key with which it has one)}
EFFECTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "optimizer.momentum": ("optimizer.name", ("sgd",)),
    "optimizer.betas": ("optimizer.name", ("adam", "adamw")),
    "optimizer.eps": ("optimizer.name", ("adam", "adamw")),
    "schedule.factor": ("schedule.name", ("plateau", "step")),
    "schedule.patience": ("schedule.name", ("plateau",)),
    "schedule.final_factor": ("schedule.name", ("cosine", "linear")),
    "schedule.total": ("schedule.name", ("cosine", "linear")),
}


def recipe_of(
    info: ModelInfo,
    header: PackedHeader,
    given: Settings,
    seeds: Sequence[int] | None,
    trials: int | None,
    space: Settings | None = None,
) -> Recipe:
    """Return the default recipe of a pair, without the encodings that the model reads.

    Arguments of a user-supplied model keep the defaults of its constructor.

    Args:
        info: the model.
        header: header of the dataset.
        given: dotted keys of a recipe, which replace the defaults.
        seeds: instead of the default seeds.
        trials: number of trials of a search; None for no search.
        space: dotted keys with their spaces, which replace or extend the default space.

    Raises:
        RecipeError: a key or a value is invalid in a recipe.
        OptionError: nothing is left to search, or a key is both set and searched, or has no effect.
    """
    if "model.name" in given:
        remedy = f"gt-bench try {given['model.name']} {header.name}"
        problem = "the model is what the command names first"
        raise OptionError(problem, place="--set", value="model.name", remedy=remedy)
    content: Settings = {"model": {"name": info.name}}
    for rule in _rules()["recipe"]:
        if _holds(rule.get("when", {}), info, header):
            _merge(content, rule["recipe"])
    if is_own(info.name):
        defaults = _defaults(info)
        content["model"] = {name: value for name, value in content["model"].items() if name not in defaults}
    if "epochs" in given:  # epochs and phases exclude each other
        content.pop("phases", None)
    elif "phases" in given:
        content.pop("epochs", None)
    if seeds is not None:
        given = {**given, "seeds": list(seeds)}
    for key, value in given.items():
        _put(content, key, value)
    if trials is not None:
        if both := [key for key in space or () if key in given]:
            remedy = "leave one of the two out"
            raise OptionError("--space searches this key", place="--set", value=both[0], remedy=remedy)
        whole = search_space(info, header, content["model"])
        searched = {key: values for key, values in whole.items() if key not in given} | (space or {})
        if not searched:
            problem = f"nothing is left to search: --set gives {', '.join(whole)}"
            raise OptionError(problem, place="--search", value=trials, remedy="leave one out")
        content["search"] = {"trials": trials, "space": searched}
    recipe = validated(Recipe, content, f"gt-bench try {info.name} {header.name}")
    _check_effects(recipe, [key for key, _ in flat(given)], "--set")
    _check_effects(recipe, recipe.search.space if recipe.search else (), "--space")
    return recipe


def _check_effects(recipe: Recipe, keys: Iterable[str], option: str) -> None:
    """Raise OptionError if one of these keys has no effect in the recipe."""
    searched = recipe.search.space if recipe.search else ()
    for key in keys:
        other, values = EFFECTS.get(key, ("", ()))
        if other and other not in searched and (value := attrgetter(other)(recipe)) not in values:
            problem = f"it has no effect with {other}={value}, only with {' or '.join(values)}"
            raise OptionError(problem, place=option, value=key, remedy=f"set {other} too, or leave it out")


def search_space(info: ModelInfo, header: PackedHeader, model: Settings) -> Settings:
    """Return the default search space of a pair.

    For a user-supplied model it has a range for each integer and float argument of the constructor, by its default.

    Args:
        info: the model.
        header: header of the dataset.
        model: the `model` section of the recipe, whose values replace the defaults of the constructor.
    """
    space: Settings = {}
    for rule in _rules()["search"]:
        if _holds(rule.get("when", {}), info, header):
            space |= rule["space"]
    if not is_own(info.name):
        return space
    defaults = _defaults(info) | {name: value for name, value in model.items() if name != "name"}
    space = {key: values for key, values in space.items() if not key.startswith("model.")}
    return space | {f"model.{name}": values for name, values in argument_space(defaults).items()}


def settings_lines(info: ModelInfo, recipe: Recipe, given: Settings) -> list[str]:
    """Return the settings of a run for the user: what was set, the default settings, and the defaults of the model.

    Args:
        info: the model.
        recipe: its recipe.
        given: dotted keys that the user set.
    """
    keys = [key for key in recipe.given_values() if key not in ("model", "search.space")]
    chosen = {key: recipe.value(key) for key in keys}
    lines = {
        "set": {key: value for key, value in chosen.items() if key in given and key != "seeds"},
        "default": {key: value for key, value in chosen.items() if key not in given or key == "seeds"},
    }
    if is_own(info.name):
        own = {f"model.{name}": value for name, value in _defaults(info).items()}
        lines["of the constructor"] = {key: value for key, value in own.items() if key not in chosen}
    return [
        f"  {name}: {', '.join(f'{k}={_shown(v)}' for k, v in values.items())}"
        for name, values in lines.items()
        if values
    ]


def _shown(value: object) -> str:
    if isinstance(value, list) and len(value) > 2 and value == list(range(value[0], value[0] + len(value))):
        return f"{value[0]}-{value[-1]}"
    return {"None": "null", "True": "true", "False": "false"}.get(str(value), str(value))


def _defaults(info: ModelInfo) -> Settings:
    """Return the arguments of a constructor that have a default, with it, but for those that the dataset gives."""
    parameters = inspect.signature(info.cls).parameters
    return {
        name: parameter.default
        for name, parameter in parameters.items()
        if name not in GIVEN and parameter.default is not inspect.Parameter.empty
    }


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
        "custom_metric": lambda value: is_custom(header.metric) == value,
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
            raise OptionError(f"{name} is a value, not a section", place="--set", value=key)
        content = content[name]
    if value is None:
        content.pop(last, None)
    else:
        content[last] = value
