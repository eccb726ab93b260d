"""Options of a search on the command line: `--sampler gp --pruner hyperband --objective parameters`."""

from collections.abc import Sequence

from gt_bench.config.option_text import seeds_in, values_in
from gt_bench.config.schema import validated
from gt_bench.config.search_section import VALIDATION, SearchMethod
from gt_bench.utils.json_types import Settings

WHERE = "options of the search"


def method_in(
    *,
    sampler: str | None = None,
    sampler_option: Sequence[str] | None = None,
    pruner: str | None = None,
    pruner_option: Sequence[str] | None = None,
    objective: Sequence[str] | None = None,
    select_within: float | None = None,
    warm_start: str | None = None,
    search_seeds: str | None = None,
) -> SearchMethod:
    """Returns the keys of `search:` of a recipe that options of a command replace.

    Args:
        sampler: --sampler.
        sampler_option: each --sampler-option, `KEY=VALUE`.
        pruner: --pruner.
        pruner_option: each --pruner-option, `KEY=VALUE`.
        objective: each --objective, besides validation.
        select_within: --select-within.
        warm_start: --warm-start, names separated by commas.
        search_seeds: --search-seeds, `0-2`.

    Raises:
        OptionError, RecipeError: an option is invalid.
    """
    given: Settings = {
        "sampler": sampler,
        "sampler_options": values_in("--sampler-option", sampler_option or (), "n_startup_trials=5"),
        "pruner": pruner,
        "pruner_options": values_in("--pruner-option", pruner_option or (), "reduction_factor=2"),
        "objectives": [VALIDATION, *(name for name in objective if name != VALIDATION)] if objective else None,
        "select_within": select_within,
        "warm_start": [name.strip() for name in warm_start.split(",")] if warm_start else None,
        "seeds": seeds_in(search_seeds, "--search-seeds") if search_seeds else None,
    }
    content = {key: value for key, value in given.items() if value not in (None, {})}
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
