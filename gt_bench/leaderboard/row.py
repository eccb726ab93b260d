"""A row of a leaderboard: the runs of a cell next to one published number. `words` makes its texts.

Numbers are raw units (a percentage is a fraction), as in records.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from gt_bench.config.cuts import more_than_seeds
from gt_bench.leaderboard.expectations import Agreement, Expectation
from gt_bench.papers.published import Published
from gt_bench.papers.units import Unit
from gt_bench.records.cell import Imported, Reduction, SearchSummary
from gt_bench.records.state import CellState
from gt_bench.stats.claim import JudgedClaim
from gt_bench.stats.verdict import Verdict
from gt_bench.stats.welch import sample_std


@dataclass(frozen=True, slots=True)
class Summary:
    """Statistics of the runs that ended well.

    Attributes:
        values: test metric of each run. Where the published number has averages of several runs, averages as well.
        mean: their mean. None without values, or if one is not a number.
        std: their population standard deviation (ddof 0).
        runs: number of runs that ended well.
        wanted: number of requested runs.
        full: number of runs of the recipe without limits.
        digests: of all records of the cell.
    """

    values: tuple[float, ...] = ()
    mean: float | None = None
    std: float | None = None
    runs: int = 0
    wanted: int = 0
    full: int = 0
    digests: tuple[str, ...] = ()

    @property
    def spread(self) -> float | None:
        """The deviation, for readers. None for one run, which has none."""
        return self.std if self.runs > 1 else None

    @property
    def sample_std(self) -> float | None:
        """The sample standard deviation (ddof 1). None for one run."""
        return None if self.std is None or self.runs < 2 else sample_std(self.std, self.runs)


@dataclass(frozen=True, slots=True)
class Cost:
    """Parameters, and seconds and memory of runs on one kind of device: median and maximum over the runs."""

    parameters: int | None = None
    seconds_per_epoch: float | None = None
    peak_memory_mib: float | None = None
    device: str | None = None


@dataclass(frozen=True, slots=True)
class Outlook:
    """What theory says of a cell: what its dataset tests, the result of guessing, a limit, whether the runs agree."""

    tests: str
    chance: float
    limit: Expectation | None = None
    agreement: Agreement | None = None


class NoteKind(StrEnum):
    """What a reader must know besides the fields of a row."""

    PINNED = "pinned"  # dates
    NOT_UNIQUE = "not unique"  # encoding, flag, number of graphs
    AVERAGED = "averaged"  # number of averages, runs of each
    SINGLE_RUNS = "single runs"  # runs of each published average, runs that are there
    MODIFIED = "modified"  # versions
    NOT_FOUND = "not found"  # error
    DATA_CHANGED = "data changed"
    SHIPPED = "shipped"  # commit

    @property
    def severe(self) -> bool:
        """Whether the numbers of the row must not be used without it."""
        return self in (NoteKind.NOT_UNIQUE, NoteKind.DATA_CHANGED)


class Note(NamedTuple):
    """A note: its kind, and the values that its sentence contains."""

    kind: NoteKind
    values: tuple[str | int, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a leaderboard.

    Attributes:
        cell: suite/dataset/model.
        metric: its name; None for a cell without a result.
        direction: "max" or "min".
        reason: why runs are missing.
        reduced: limits of the recipe, and other cuts as text.
        verdict: on the published number. None while the cell trains.
        claim: whether the method is still the best of its published column.
        search: of a tuned cell.
        imported: source of an imported result.
        contributed: who contributed its records, and what was verified.
        chosen_on_test: whether the epoch was chosen on the test split.
        source: "own" or "shipped", if both were searched.
    """

    cell: str
    metric: str | None
    direction: str | None
    unit: Unit
    state: CellState
    summary: Summary = Summary()
    cost: Cost = Cost()
    reason: str | None = None
    reduced: tuple[Reduction | str, ...] = ()
    published: Published | None = None
    verdict: Verdict | None = None
    claim: JudgedClaim | None = None
    outlook: Outlook | None = None
    search: SearchSummary | None = None
    imported: Imported | None = None
    contributed: str | None = None
    chosen_on_test: bool = False
    notes: tuple[Note, ...] = ()
    source: str | None = None

    @property
    def suite(self) -> str:
        """The suite of the cell."""
        return self.cell.split("/")[0]

    @property
    def dataset(self) -> str:
        """The dataset of the cell."""
        return self.cell.split("/")[1]

    @property
    def model(self) -> str:
        """The recipe of the cell."""
        return self.cell.split("/")[2]

    @property
    def percent(self) -> bool:
        """Whether numbers are shown as percentages."""
        return self.unit == Unit.PERCENT

    @property
    def difference(self) -> float | None:
        """Our mean minus the published one."""
        if self.summary.mean is None or self.published is None or self.published.mean is None:
            return None
        return round(self.summary.mean - self.published.mean, 12)

    @property
    def interval(self) -> tuple[float, float] | None:
        """Interval of the difference. None without a verdict."""
        return self.verdict.interval if self.verdict else None

    @property
    def provisional(self) -> bool:
        """Whether the verdict is by fewer runs than the recipe has."""
        return self.interval is not None and self.summary.runs < self.summary.full

    @property
    def counts(self) -> bool:
        """Whether the row has a verdict that is counted: by all runs, of an epoch that was chosen on validation."""
        return self.interval is not None and not self.provisional and not self.chosen_on_test

    @property
    def more_than_seeds(self) -> bool:
        """Whether something else than the number of seeds was reduced."""
        return more_than_seeds(self.reduced)
