"""How far a cell is, as values: what readers decide on. Its words are made in `gt_bench.leaderboard.words`."""

from enum import StrEnum

from pydantic import Field

from gt_bench.records.base import FileModel


class Ended(StrEnum):
    """How the training of a cell ended, as in its result. A failure is the one of the first run that failed."""

    OK = "ok"
    DIVERGED = "diverged"
    OOM = "oom"
    TIMED_OUT = "timed-out"
    FAILED = "failed"  # the metric is not defined on validation, for example
    UNFINISHED = "unfinished"  # killed or interrupted
    NO_DATA = "not run: data"
    NOT_RUN = "not run"
    UNREADABLE = "unreadable"


class CellState(FileModel):
    """How far a cell is.

    Attributes:
        ended: how its training ended.
        wanted: number of requested runs.
        done: number of runs that ended well.
        failed: number of the other runs by their status.
        unreadable: number of runs whose records cannot be read.
        undefined: whether the metric is not a number in a run that ended well.
        modified: whether a run was computed by code that was changed without raising a version.
        stale: what the current code, recipe or data would compute differently.
    """

    ended: Ended = Field(strict=False)
    wanted: int = 0
    done: int = 0
    failed: dict[str, int] = Field(default_factory=dict)
    unreadable: int = 0
    undefined: bool = False
    modified: bool = False
    stale: list[str] = Field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Whether all requested runs ended well and have a number."""
        return self.done == self.wanted > 0 and not self.undefined

    @property
    def partial(self) -> bool:
        """Whether some, but not all, of the requested runs ended well."""
        return 0 < self.done < self.wanted

    @property
    def absent(self) -> bool:
        """Whether the cell was not run."""
        return self.ended in (Ended.NOT_RUN, Ended.NO_DATA)

    def with_stale(self, reasons: list[str]) -> "CellState":
        """Returns the state with further reasons why it is stale."""
        return self.model_copy(update={"stale": [*self.stale, *reasons]})
