"""Section `search:` of a recipe. gt_bench/search/optimize.py runs searches."""

import math
from typing import Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from gt_bench.config.schema import Positive, Strict, tag_of


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
        if len({(type(value), value) for value in choices}) < len(choices):
            raise ValueError("duplicate choices")
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


def _kind_of_space(space: object) -> str:
    return tag_of(Choice if isinstance(space, Choice) or (isinstance(space, dict) and "choices" in space) else Range)


Space = Annotated[
    Annotated[Choice, Tag(tag_of(Choice))] | Annotated[Range, Tag(tag_of(Range))], Discriminator(_kind_of_space)
]


class SearchSection(Strict):
    """A search of hyperparameters.

    `space` maps dotted keys of the recipe (model.dropout) to {choices: [...], also: [...]} or {low:, high:, log:,
    step:, integer:}. The objective is the mean over `seeds` of the best validation value. The test split is never read.
    """

    trials: Positive = Field(
        description="number of trials, without killed ones; `limits.trials` and `fair_search` of "
        "params.yaml override it"
    )
    space: dict[str, Space] = Field(min_length=1, description="dotted keys of the recipe with their values")
    seeds: list[int] = Field([0], min_length=1, description="seeds of each trial, whose value is the mean over them")
    sampler: Literal["tpe", "random", "grid"] = Field(
        "tpe", description="sampler of values; `grid` uses each combination of choices once"
    )
    sampler_seed: int = Field(0, description="seed of the sampler; a search always proposes the same values")
    pruner: Literal["median", "none"] = Field(
        "median", description="`median` stops a trial that is worse than the median of the others at its epoch"
    )
    warmup_epochs: int = Field(10, ge=0, description="epochs before pruning starts")
