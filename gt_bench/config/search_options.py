"""Options of a search on the command line: `--sampler gp --pruner hyperband --objective parameters`."""

from collections.abc import Sequence

import yaml

from gt_bench.config.schema import RecipeError, parse_yaml, validated
from gt_bench.config.search_space import VALIDATION, SearchMethod
from gt_bench.schemas import Settings

WHERE = "options of the search"


def method_in(
    sampler: str | None = None,
    sampler_options: Sequence[str] = (),
    pruner: str | None = None,
    pruner_options: Sequence[str] = (),
    objectives: Sequence[str] = (),
    select_within: float | None = None,
    warm_start: Sequence[str] = (),
    seeds: Sequence[int] = (),
) -> SearchMethod:
    """Returns the keys of `search:` of a recipe that options of a command replace.

    Args:
        sampler: --sampler.
        sampler_options: --sampler-option, `KEY=VALUE` each.
        pruner: --pruner.
        pruner_options: --pruner-option, `KEY=VALUE` each.
        objectives: --objective, besides validation.
        select_within: --select-within.
        warm_start: --warm-start.
        seeds: --search-seeds.

    Raises:
        RecipeError: an option is invalid.
    """
    given: Settings = {
        "sampler": sampler,
        "sampler_options": _options("--sampler-option", sampler_options),
        "pruner": pruner,
        "pruner_options": _options("--pruner-option", pruner_options),
        "objectives": [VALIDATION, *(one for one in objectives if one != VALIDATION)] if objectives else None,
        "select_within": select_within,
        "warm_start": list(warm_start),
        "seeds": list(seeds),
    }
    content = {key: value for key, value in given.items() if value not in (None, {}, [])}
    # whether keys fit each other is checked together with the recipe
    return validated(SearchMethod, content, WHERE)


def options_of(method: SearchMethod) -> list[str]:
    """Returns the options that `method_in` reads as this method."""
    given = method.model_dump(mode="json", exclude_unset=True)
    words: list[str] = []
    for what in ("sampler", "pruner"):
        if what in given:
            words += [f"--{what}", given[what]]
        for key, value in given.get(f"{what}_options", {}).items():
            words += [f"--{what}-option", f"{key}={str(value).lower() if isinstance(value, bool) else value}"]
    for name in given.get("objectives", [])[1:]:
        words += ["--objective", name]
    if "select_within" in given:
        words += ["--select-within", str(given["select_within"])]
    if given.get("warm_start"):
        words += ["--warm-start", ",".join(given["warm_start"])]
    if given.get("seeds", [0]) != [0]:
        words += ["--search-seeds", ",".join(map(str, given["seeds"]))]
    return words


def _options(name: str, texts: Sequence[str]) -> Settings:
    found: Settings = {}
    for text in texts:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not key or not value:
            raise RecipeError(f"{name} {text}: expected KEY=VALUE, for example n_startup_trials=5")
        try:
            found[key] = parse_yaml(value)
        except yaml.YAMLError as error:
            raise RecipeError(f"{name} {text}: invalid YAML: {error}") from None
    return found
