"""The result of a cell, `results/<cell>.json`: which runs it has, and how far its search came."""

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from gt_bench.records.base import FileModel, Number, Sha256
from gt_bench.records.state import Ended, Stale


class EnsembleSummary(FileModel):
    """Test metric of a model with defaults and of the ensembles of its search, and hours of training of each.

    Attributes:
        mean: of the ensembles.
        std: of the ensembles.
        runs: number of ensembles.
        hours: of the ensembles.
        tuned_hours: of the search.
        trials: of the search.
        default_mean: with default settings.
        default_std: with default settings.
        default_hours: with default settings.
    """

    mean: Number
    std: Number
    runs: int
    hours: Number
    tuned_hours: Number
    trials: int | None = None
    default_mean: Number
    default_std: Number
    default_hours: Number


class SearchSummary(FileModel):
    """Summary of a search.

    Attributes:
        trials: number of trials.
        states: trials by state.
        used: trials without those that were killed and queued again.
        best_validation: the best validation value.
        keys: keys of the search space.
        space: its size.
        objectives: of a search with several objectives.
        pareto: its trials that no other one dominates.
        warm_starts: trials whose values came from recipes and records.
        ensemble: of `--ensemble` of `gt-bench try`.
    """

    trials: int
    states: dict[str, int]
    used: int | None = None
    best_validation: Number | None = None
    keys: list[str] | None = None
    space: str | None = None
    objectives: list[str] | None = None
    pareto: list[dict[str, Number]] | None = None
    warm_starts: int | None = None
    ensemble: EnsembleSummary | None = None


class Origins(FileModel):
    """Digests of the sources of data and encodings of a shipped cell, for machines without the data.

    Attributes:
        data: digest of the data.
        spec: of the dataset's spec.
        encodings: digest of the encodings.
        algorithms: digest of each encoding's algorithm.
    """

    data: str | None = None
    spec: str | None = None
    encodings: str | None = None
    algorithms: dict[str, str] | None = None


class Imported(FileModel):
    """Source of an imported result.

    Attributes:
        commit: of the shipped record.
        stale: what the code would compute differently.
    """

    commit: str | None
    stale: list[Stale]


class CellNames(FileModel):
    """Names of a cell.

    Attributes:
        cell: suite/dataset/model.
        suite: its first part.
        dataset: its second part.
        model: its third part.
    """

    cell: str
    suite: str
    dataset: str
    model: str


class Reduction(FileModel):
    """A number that was reduced from the recipe, such as 3 of 10 seeds.

    Attributes:
        unit: what is counted: seeds, epochs, or the parts of a protocol, such as pairs.
        have: the reduced number.
        full: that of the recipe.
    """

    unit: str
    have: int = Field(ge=1)
    full: int = Field(ge=1)

    @model_validator(mode="after")
    def _is_reduced(self) -> Self:
        if self.have > self.full:
            raise ValueError(f"have is {self.have}: expected at most full, which is {self.full}")
        return self

    def __str__(self) -> str:
        return f"{self.have} of {self.full} {self.unit}"


class CellResult(CellNames):
    """The result of a cell.

    Attributes:
        status: how it ended: that of the first run that failed.
        reason: why.
        metric: test metric.
        direction: whether larger is better.
        runs: digests of the records, in the order of `seeds`.
        seeds: of the recipe, within limits.
        recipe: the recipe with the origin of its values.
        reduced: what was reduced from the recipe, and other differences from the published setting as text.
        published: reference to the published number.
        search: of a tuned cell.
        pinned: dates on which data without a published digest were pinned.
        imported: of an imported result.
    """

    status: Ended
    reason: str | None = None
    metric: str | None = None
    direction: Literal["max", "min"] | None = None
    runs: list[Sha256]
    seeds: list[int]
    recipe: dict[str, Any]
    reduced: list[str | Reduction]
    published: dict[str, Any] | None = None
    search: SearchSummary | None = None
    pinned: list[str] = Field(default_factory=list)
    imported: Imported | None = None
