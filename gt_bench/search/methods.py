"""Samplers and pruners of Optuna by name, and the objectives of a search."""

import warnings
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gt_bench.config.schema import RecipeError
from gt_bench.config.search_section import PRUNERS, SAMPLERS, SearchSection
from gt_bench.utils.digest import digest_of
from gt_bench.utils.errors import missing

if TYPE_CHECKING:
    from optuna.pruners import BasePruner
    from optuna.samplers import BaseSampler

    from gt_bench.records.run import RunRecord

# packages that Optuna does not install itself
NEEDED = {"cmaes": ("cmaes",), "gp": ("scipy", "torch"), "qmc": ("scipy",)}
MEASURED = "seconds_per_epoch"


def check_method(search: SearchSection, epochs: int, where: str | Path) -> None:
    """Checks that the sampler is installed, and that Optuna accepts the options of sampler and pruner.

    Args:
        search: the search.
        epochs: as for `pruner_of`.
        where: file of the recipe, for messages.

    Raises:
        MissingPackage: a package is not installed.
        RecipeError: Optuna does not accept an option.
    """
    for name in NEEDED.get(search.sampler, ()):
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            raise missing(error, f"the sampler {search.sampler}") from None
    try:
        sampler_of(search, 0)
    except ValueError as error:
        problem = f"{search.sampler}: {error}"
        raise RecipeError(problem, file=where, place="search.sampler_options", value=search.sampler_options) from None
    pruner_of(search, epochs, where)


def sampler_of(search: SearchSection, number: int) -> "BaseSampler":
    """Returns a sampler that is seeded by the search and the number of earlier trials that were not killed.

    A search that was killed therefore proposes the same values.
    """
    import optuna

    options: dict[str, Any] = SAMPLERS[search.sampler].model_validate(search.sampler_options).model_dump()
    # None is Optuna's own default
    options = {key: value for key, value in options.items() if value is not None}
    # a Sobol or Halton sequence has one seed for all trials; Optuna counts its points in the study
    seed = int(digest_of([search.sampler_seed, 0 if search.sampler == "qmc" else number])[:8], 16)
    kind = {
        "tpe": optuna.samplers.TPESampler,
        "gp": optuna.samplers.GPSampler,
        "cmaes": optuna.samplers.CmaEsSampler,
        "nsga2": optuna.samplers.NSGAIISampler,
        "nsga3": optuna.samplers.NSGAIIISampler,
        "qmc": optuna.samplers.QMCSampler,
    }.get(search.sampler, optuna.samplers.RandomSampler)
    with warnings.catch_warnings():  # experimental samplers and options
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return kind(seed=seed, **options)


def pruner_of(search: SearchSection, epochs: int, where: str | Path) -> "BasePruner":
    """Returns the pruner of a search.

    Args:
        search: the search.
        epochs: largest number of reports of a trial: epochs times seeds.
        where: file of the recipe, for messages.

    Raises:
        RecipeError: pruning would start after the last epoch.
    """
    import optuna

    if not search.prunes:
        return optuna.pruners.NopPruner()
    options: dict[str, Any] = PRUNERS[search.pruner].model_validate(search.pruner_options).model_dump()
    if search.pruner in ("hyperband", "successive_halving"):
        first = options.pop("min_resource") or max(1, search.warmup_epochs)
        if first > epochs:
            raise RecipeError(
                f"{search.pruner} compares trials after {first} epochs, but a trial has {epochs}",
                file=where,
                place="search.pruner_options.min_resource",
                value=first,
                remedy="use a smaller min_resource (or warmup_epochs, its default)",
            )
        if search.pruner == "successive_halving":
            return optuna.pruners.SuccessiveHalvingPruner(min_resource=first, **options)
        return optuna.pruners.HyperbandPruner(min_resource=first, max_resource=epochs, **options)
    kind = {
        "median": optuna.pruners.MedianPruner,
        "percentile": optuna.pruners.PercentilePruner,
        "threshold": optuna.pruners.ThresholdPruner,
    }[search.pruner]
    return kind(n_warmup_steps=search.warmup_epochs, **options)


def identity_of(search: SearchSection) -> dict[str, object]:
    """Returns what the identity of a study has of its method. Default values add no key, so old studies continue."""
    content: dict[str, object] = {"sampler": [search.sampler, search.sampler_seed, search.pruner]}
    if len(search.objectives) > 1:
        content["sampler"] = [search.sampler, search.sampler_seed, "none"]
        content["objectives"] = search.objectives
    content |= {key: value for key in ("sampler_options", "pruner_options") if (value := getattr(search, key))}
    default = type(search).model_fields["warmup_epochs"].default
    if search.prunes and (search.pruner != "median" or search.warmup_epochs != default):
        content["warmup_epochs"] = search.warmup_epochs
    return content


def directions_of(search: SearchSection, direction: str) -> list[str]:
    """Returns "max" or "min" for each objective. Parameters and seconds are minimised."""
    return [direction, *("min" for _ in search.objectives[1:])]


def values_of(search: SearchSection, records: Sequence["RunRecord"], validation: float) -> list[float]:
    """Returns the value of each objective of a trial: means over the records of its seeds."""
    costs = {
        "parameters": [float(record.run.parameters or 0) for record in records],
        MEASURED: [record.measured.train_seconds_per_epoch for record in records],
    }
    return [validation, *(sum(costs[name]) / len(records) for name in search.objectives[1:])]


def cost_texts(search: SearchSection, values: Sequence[float]) -> list[str]:
    """Returns "parameters 12,345" and the like for the objectives besides validation."""
    costs = zip(search.objectives[1:], values[1:], strict=True)
    return [f"{name} {value:,.0f}" if name == "parameters" else f"{name} {value:.4g}" for name, value in costs]
