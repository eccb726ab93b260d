"""The `search:` section of a recipe: which values are tried, how many times, and what proposes them (how it runs: gt_bench/search/optimize.py)."""

import math
from typing import Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from gt_bench.config.schema import Positive, Strict, tag_of


class Choice(Strict):
    """`also`: further keys that take whatever is chosen, such as the width of a model that reads all columns of an encoding."""

    choices: list[Any] = Field(min_length=1, description="numbers, words, true, false or null")
    also: list[str] = Field([], description="further keys that take whatever is chosen")

    @field_validator("choices")
    @classmethod
    def _plain(cls, choices: list[Any]) -> list[Any]:
        for value in choices:
            if not isinstance(value, bool | int | float | str | None) or (
                isinstance(value, float) and not math.isfinite(value)
            ):
                raise ValueError(
                    f"a choice is a finite number, a word, true, false or null, which studies can hold; not {value!r:.200}"
                )
        if len({(type(value), value) for value in choices}) < len(choices):
            raise ValueError("choices repeat")
        return choices


class Range(Strict):
    """An interval of a search space, both ends included."""

    low: float = Field(allow_inf_nan=False, description="smallest value")
    high: float = Field(allow_inf_nan=False, description="largest value")
    log: bool = Field(False, description="drawn by its logarithm")
    step: float | None = Field(None, allow_inf_nan=False, description="only every so much from `low`")
    integer: bool = Field(False, description="whole numbers")

    @model_validator(mode="after")
    def _order(self) -> Self:
        if self.low >= self.high or (self.log and self.low <= 0):
            raise ValueError("a range needs low < high (and low > 0 where log)")
        if self.step is not None and (self.log or self.step <= 0):
            raise ValueError("a step is greater than 0, and a logarithmic range has none")
        if self.integer and any(v is not None and v != int(v) for v in (self.low, self.high, self.step)):
            raise ValueError("an integer range has whole numbers as low, high and step")
        return self


def _kind_of_space(space: object) -> str:
    return tag_of(Choice if isinstance(space, Choice) or (isinstance(space, dict) and "choices" in space) else Range)


Space = Annotated[
    Annotated[Choice, Tag(tag_of(Choice))] | Annotated[Range, Tag(tag_of(Range))], Discriminator(_kind_of_space)
]


class SearchSection(Strict):
    """`space`: dotted recipe keys (model.dropout) to {choices: [...], also: [...]} or {low:, high:, log:, step:, integer:}. The objective is the
    mean over `seeds` of the best validation value; the test split is never read."""

    trials: Positive = Field(
        description="how many are run, killed ones not counted; `limits.trials` and `fair_search` of params.yaml change it"
    )
    space: dict[str, Space] = Field(min_length=1, description="dotted keys of the recipe, each with its values")
    seeds: list[int] = Field([0], min_length=1, description="of each trial; its value is the mean over them")
    sampler: Literal["tpe", "random", "grid"] = Field(
        "tpe", description="what proposes values; `grid` takes each combination of choices once"
    )
    sampler_seed: int = Field(0, description="of the sampler: the same search proposes the same values")
    pruner: Literal["median", "none"] = Field(
        "median", description="`median` ends a trial that is below the median of the others at its epoch"
    )
    warmup_epochs: int = Field(10, ge=0, description="epochs before which no trial is pruned")
