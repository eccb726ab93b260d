"""The result of a cell, `results/<cell>.json`: which runs it has, and how far its search came."""

from typing import Any, Literal

from pydantic import Field

from gt_bench.records.base import FileModel, Number, Sha256
from gt_bench.records.state import Ended


class EnsembleSummary(FileModel):
    """Test metric of a model with defaults and of the ensembles of its search, and hours of training of each."""

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
        ensemble: of `gt-bench try --ensemble`.
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


class Imported(FileModel):
    """Source of an imported result; `stale`: what the code would compute differently."""

    commit: str | None
    stale: list[str]


class CellResult(FileModel):
    """The result of a cell.

    Attributes:
        runs: digests of the records, in the order of `seeds`.
        recipe: the recipe with the origin of its values.
        reduced: what was reduced from the recipe, such as "3 of 10 seeds".
        published: reference to the published number.
    """

    cell: str
    suite: str
    dataset: str
    model: str
    status: Ended = Field(strict=False)
    reason: str | None = None
    metric: str | None = None
    direction: Literal["max", "min"] | None = None
    runs: list[Sha256]
    seeds: list[int]
    recipe: dict[str, Any]
    reduced: list[str]
    published: dict[str, Any] | None = None
    search: SearchSummary | None = None
    notes: list[str] | None = None
    imported: Imported | None = None
