"""Settings of verdicts: section `run.verdict` of params.yaml. Reading them does not import numpy."""

from typing import Self

from pydantic import Field, field_validator, model_validator

from gt_bench.config.schema import RecipeError, Strict


class Rules(Strict):
    """Settings of verdicts.

    Attributes:
        level: level of all tests and intervals (0.05: 95 %).
        power: probability that equal true means count as reproduced with all seeds. It determines the margin.
        unstated_runs: smallest and largest number of runs behind a published deviation if the paper does not state it.
    """

    level: float = Field(0.05, gt=0, lt=0.5)
    power: float = Field(0.8, gt=0, lt=1)
    unstated_runs: tuple[int, int] = (4, 10)

    @field_validator("unstated_runs")
    @classmethod
    def _ordered(cls, runs: tuple[int, int]) -> tuple[int, int]:
        if not 2 <= runs[0] <= runs[1]:
            raise ValueError("expected the smallest and largest number of runs, at least 2: [4, 10]")
        return runs

    @model_validator(mode="after")
    def _reachable(self) -> Self:
        if self.power > 0.99 * (1 - self.level):
            raise RecipeError(
                f"{self.power:g} cannot be reached at level {self.level:g}: equal true means are consistent in "
                f"{1 - self.level:g} of cases",
                place="power",
                value=self.power,
                remedy="use a smaller power",
            )
        return self
