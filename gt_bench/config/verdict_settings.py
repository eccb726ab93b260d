"""What verdicts are made by: the section `run.verdict` of params.yaml. Apart from verdict.py, since whoever reads params.yaml needs no numpy."""

from typing import Self

from pydantic import Field, field_validator, model_validator

from gt_bench.config.schema import Strict


class Rules(Strict):
    """What verdicts are made by (`run.verdict` of params.yaml). `level`: of every test and interval (0.05: 95 %). `power`: the part of cases in
    which equal truth passes as reproduced at full seeds, which sets the margin. `unstated_runs`: the fewest and the most runs that may be behind a printed
    deviation where the paper does not say."""

    level: float = Field(0.05, gt=0, lt=0.5)
    power: float = Field(0.8, gt=0, lt=1)
    unstated_runs: tuple[int, int] = (4, 10)

    @field_validator("unstated_runs")
    @classmethod
    def _ordered(cls, runs: tuple[int, int]) -> tuple[int, int]:
        if not 2 <= runs[0] <= runs[1]:
            raise ValueError("expected the fewest and the most runs, at least 2: [4, 10]")
        return runs

    @model_validator(mode="after")
    def _reachable(self) -> Self:
        if self.power > 0.99 * (1 - self.level):
            raise ValueError(
                f"power {self.power:g} cannot be had at level {self.level:g}: equal truth is consistent in {1 - self.level:g} of cases"
            )
        return self
