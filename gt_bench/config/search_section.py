"""Section `search:` of a recipe. gt_bench/search/optimize.py runs searches."""

import math
from typing import Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from gt_bench.config.schema import Positive, RecipeError, Strict, tag_of, validated
from gt_bench.utils.json_types import Settings

Count = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]


class Choice(Strict):
    """Values to choose from. Keys in `also` get the chosen value, too, such as the input width of an encoding."""

    choices: list[Any] = Field(min_length=1, description="numbers, text, true, false or null")
    also: list[str] = Field([], description="further keys that get the chosen value")

    @field_validator("choices")
    @classmethod
    def _plain(cls, choices: list[Any]) -> list[Any]:
        for value in choices:
            if not isinstance(value, bool | int | float | str | None) or (
                isinstance(value, float) and not math.isfinite(value)
            ):
                raise ValueError(f"expected a finite number, text, true, false or null as a choice, not {value!r:.200}")
        if len(set(choices)) < len(choices):  # Optuna does not distinguish 1, 1.0 and true
            raise ValueError("duplicate choices (1, 1.0 and true are one choice); remove all but one")
        return choices


class Range(Strict):
    """An interval of a search space, both ends included."""

    low: float = Field(allow_inf_nan=False, description="smallest value")
    high: float = Field(allow_inf_nan=False, description="largest value")
    log: bool = Field(False, description="sample on a logarithmic scale")
    step: float | None = Field(None, allow_inf_nan=False, description="distance of values, from `low`")
    integer: bool = Field(False, description="integers only")

    @model_validator(mode="after")
    def _order(self) -> Self:
        if self.low >= self.high or (self.log and self.low <= 0):
            raise ValueError("expected low < high (and low > 0 with log)")
        if self.step is not None and (self.log or self.step <= 0):
            raise ValueError("expected step > 0, and no step with log")
        if self.integer and any(v is not None and v != int(v) for v in (self.low, self.high, self.step)):
            raise ValueError("expected integers as low, high and step of an integer range")
        return self


def in_space(space: Choice | Range, value: object) -> tuple[object] | None:
    """Returns the value as the space has it, in a tuple because None is a choice. None if it is outside."""
    if isinstance(space, Choice):
        same = [
            choice
            for choice in space.choices
            if choice == value and isinstance(choice, bool) == isinstance(value, bool)
        ]
        return (same[0],) if same else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not space.low <= value <= space.high:
        return None
    if space.integer and value != int(value):
        return None
    if space.step is not None:
        steps = (value - space.low) / space.step
        if not math.isclose(steps, round(steps), abs_tol=1e-8):
            return None
    return (int(value) if space.integer else float(value),)


def _kind_of_space(space: object) -> str:
    return tag_of(Choice if isinstance(space, Choice) or (isinstance(space, dict) and "choices" in space) else Range)


Space = Annotated[
    Annotated[Choice, Tag(tag_of(Choice))] | Annotated[Range, Tag(tag_of(Range))], Discriminator(_kind_of_space)
]


class TpeOptions(Strict):
    """Options of `optuna.samplers.TPESampler`."""

    n_startup_trials: Count = 10
    n_ei_candidates: Positive = 24
    multivariate: bool | None = None
    group: bool = False
    constant_liar: bool = True

    @model_validator(mode="after")
    def _grouped(self) -> Self:
        if self.group and not self.multivariate:
            raise RecipeError("requires multivariate: true", place="group")
        return self


class GpOptions(Strict):
    """Options of `optuna.samplers.GPSampler`."""

    n_startup_trials: Positive = 10
    deterministic_objective: bool = False


class CmaEsOptions(Strict):
    """Options of `optuna.samplers.CmaEsSampler`."""

    n_startup_trials: Positive = 1
    sigma0: float | None = Field(None, gt=0, allow_inf_nan=False)
    popsize: int | None = Field(None, ge=2)
    consider_pruned_trials: bool = False
    use_separable_cma: bool = False
    with_margin: bool = False
    lr_adapt: bool = False


class NsgaOptions(Strict):
    """Options of `optuna.samplers.NSGAIISampler` and `NSGAIIISampler`."""

    population_size: int = Field(50, ge=2)
    mutation_prob: Share | None = None
    crossover_prob: Share = 0.9
    swapping_prob: Share = 0.5


class QmcOptions(Strict):
    """Options of `optuna.samplers.QMCSampler`."""

    qmc_type: Literal["sobol", "halton"] = "sobol"
    scramble: bool = True


class NoOptions(Strict):
    """A sampler or pruner without options."""


class MedianOptions(Strict):
    """Options of `optuna.pruners.MedianPruner`."""

    n_startup_trials: Count = 4
    interval_steps: Positive = 1
    n_min_trials: Positive = 1


class PercentileOptions(MedianOptions):
    """Options of `optuna.pruners.PercentilePruner`."""

    percentile: float = Field(ge=0, le=100)


class HyperbandOptions(Strict):
    """Options of `optuna.pruners.HyperbandPruner`; `min_resource` is at least 1 and by default `warmup_epochs`."""

    min_resource: Positive | None = None
    reduction_factor: int = Field(3, ge=2)
    bootstrap_count: Count = 0


class HalvingOptions(Strict):
    """Options of `optuna.pruners.SuccessiveHalvingPruner`; `min_resource` is by default `warmup_epochs`."""

    min_resource: Positive | None = None
    reduction_factor: int = Field(4, ge=2)
    min_early_stopping_rate: Count = 0
    bootstrap_count: Count = 0


class ThresholdOptions(Strict):
    """Options of `optuna.pruners.ThresholdPruner`."""

    lower: float | None = Field(None, allow_inf_nan=False)
    upper: float | None = Field(None, allow_inf_nan=False)
    interval_steps: Positive = 1

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if self.lower is None and self.upper is None:
            raise ValueError("expected lower, upper or both")
        if self.lower is not None and self.upper is not None and self.lower > self.upper:
            raise ValueError("expected lower <= upper")
        return self


SAMPLERS: dict[str, type[Strict]] = {
    "tpe": TpeOptions,
    "random": NoOptions,
    "grid": NoOptions,
    "gp": GpOptions,
    "cmaes": CmaEsOptions,
    "nsga2": NsgaOptions,
    "nsga3": NsgaOptions,
    "qmc": QmcOptions,
}
PRUNERS: dict[str, type[Strict]] = {
    "none": NoOptions,
    "median": MedianOptions,
    "percentile": PercentileOptions,
    "hyperband": HyperbandOptions,
    "successive_halving": HalvingOptions,
    "threshold": ThresholdOptions,
}
VALIDATION = "validation"  # the first objective of every search


class SearchMethod(Strict):
    """How a search proposes, stops and chooses trials.

    These keys are part of `search:` of a recipe. `search:` of params.yaml and options of `gt-bench tune` and
    `gt-bench try --search` replace them.
    """

    seeds: list[int] = Field([0], min_length=1, description="seeds of each trial, whose value is the mean over them")
    sampler: Literal["tpe", "random", "grid", "gp", "cmaes", "nsga2", "nsga3", "qmc"] = Field(
        "tpe", description="sampler of values, see below; `grid` uses each combination of choices once"
    )
    sampler_options: Settings = Field({}, description="arguments of the sampler, see below")
    sampler_seed: int = Field(0, description="seed of the sampler; a search always proposes the same values")
    pruner: Literal["median", "none", "percentile", "hyperband", "successive_halving", "threshold"] = Field(
        "median",
        description="which trials end early, see below; `median` stops a trial that is worse than the median of the "
        "others at its epoch. With several objectives there is no pruning",
    )
    pruner_options: Settings = Field({}, description="arguments of the pruner, see below")
    warmup_epochs: int = Field(10, ge=0, description="epochs before pruning starts")
    objectives: list[Literal["validation", "parameters", "seconds_per_epoch"]] = Field(
        ["validation"],
        min_length=1,
        description="`validation`, and if there are more: the number of parameters, the training time of an epoch, "
        "which are minimised",
    )
    select_within: float = Field(
        0.0,
        ge=0,
        lt=1,
        allow_inf_nan=False,
        description="with several objectives: the result is the cheapest trial whose validation value is worse than "
        "the best by at most this fraction of it",
    )
    warm_start: list[Literal["defaults", "records", "neighbours"]] = Field(
        [],
        description="where the first trials come from: the recipe's own values, records of this model on this "
        "dataset, its records or recipes on other datasets",
    )

    def merged(self, changes: "SearchMethod") -> Settings:
        """Returns the keys that this method has after `changes`, of which only the given keys count.

        Options of a replaced sampler or pruner are dropped, and so is the pruner if several objectives are given.
        """
        mine = self.model_dump(mode="json", exclude_unset=True)
        new = changes.model_dump(mode="json", exclude_unset=True)
        for what in ("sampler", "pruner"):
            if new.get(what, getattr(self, what)) != getattr(self, what):
                mine.pop(f"{what}_options", None)
        if len(new.get("objectives", [])) > 1:
            mine = {key: value for key, value in mine.items() if not key.startswith("pruner")}
        return mine | new


class SearchSection(SearchMethod):
    """A search of hyperparameters.

    `space` maps dotted keys of the recipe (model.dropout) to {choices: [...], also: [...]} or {low:, high:, log:,
    step:, integer:}. The objective is the mean over `seeds` of the best validation value. The test split is never read.
    """

    trials: Positive = Field(
        description="number of trials, without killed ones; `limits.trials` and `fair_search` of "
        "params.yaml override it"
    )
    space: dict[str, Space] = Field(min_length=1, description="dotted keys of the recipe with their values")

    @model_validator(mode="after")
    def _fitting_options(self) -> Self:
        for key, kinds, given in (
            (self.sampler, SAMPLERS, self.sampler_options),
            (self.pruner, PRUNERS, self.pruner_options),
        ):
            what = "sampler" if kinds is SAMPLERS else "pruner"
            if what == "pruner" and not self.prunes:
                continue
            validated(kinds[key], given, "", f"{what}_options")
        return self

    @model_validator(mode="after")
    def _objectives(self) -> Self:
        if self.objectives[0] != VALIDATION or len(set(self.objectives)) < len(self.objectives):
            raise RecipeError(f"expected {VALIDATION} first, and each objective once", place="objectives")
        if len(set(self.warm_start)) < len(self.warm_start):
            raise RecipeError("duplicate entry", place="warm_start")
        if self.warm_start and self.sampler == "grid":
            problem = "grid tries each combination of choices once"
            raise RecipeError(problem, place="warm_start", remedy="remove warm_start")
        several = len(self.objectives) > 1
        if several and "pruner" in self.model_fields_set and self.pruner != "none":
            raise RecipeError(
                f"{self.pruner}: Optuna does not prune trials with several objectives ({', '.join(self.objectives)})",
                place="pruner",
                value=self.pruner,
                remedy="remove the pruner or keep one objective",
            )
        if self.pruner_options and not self.prunes:
            raise RecipeError("this search does not prune", place="pruner_options", remedy="remove them")
        if several and self.sampler == "cmaes":
            remedy = "use nsga2, tpe or gp, or keep one objective"
            raise RecipeError("cmaes optimises one objective", place="sampler", value=self.sampler, remedy=remedy)
        if not several and self.sampler == "nsga3":
            remedy = "use nsga2, or add objectives"
            raise RecipeError("nsga3 is for several objectives", place="sampler", value=self.sampler, remedy=remedy)
        if not several and self.select_within:
            problem = "a search with one objective selects its best trial"
            raise RecipeError(problem, place="select_within", value=self.select_within, remedy="remove it")
        return self

    @model_validator(mode="after")
    def _fitting_space(self) -> Self:
        choices = [key for key, space in self.space.items() if isinstance(space, Choice)]
        if self.sampler in ("cmaes", "qmc") and choices:
            raise RecipeError(
                f"{self.sampler} samples numbers of a range, and {choices[0]} has choices: Optuna would draw it at "
                "random",
                place="sampler",
                value=self.sampler,
                remedy="make it a range (low, high), or use tpe, gp or nsga2",
            )
        if self.sampler == "cmaes" and len(self.space) == 1:
            problem = "cmaes needs a space of two or more keys"
            raise RecipeError(problem, place="sampler", value=self.sampler, remedy="use tpe or gp")
        population = SAMPLERS[self.sampler].model_validate(self.sampler_options)
        if isinstance(population, NsgaOptions) and population.population_size >= self.trials:
            smaller = max(2, self.trials // 4)
            raise RecipeError(
                f"{self.sampler} draws the first {population.population_size} trials at random (population_size), "
                f"which are all of {self.trials}",
                place="sampler",
                value=self.sampler,
                remedy="use a smaller population, for example "
                f"sampler_options: {{population_size: {smaller}}}, or more trials",
            )
        return self

    @property
    def prunes(self) -> bool:
        """Whether trials may be stopped early."""
        return self.pruner != "none" and len(self.objectives) == 1
