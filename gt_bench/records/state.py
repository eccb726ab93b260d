"""How far a cell is, as values: what readers decide on. Its words are made in `gt_bench.leaderboard.words`."""

from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, model_validator

from gt_bench.records.base import FileModel
from gt_bench.records.run import RunStatus


class CellStatus(StrEnum):
    """How a cell ended whose runs did not all end."""

    UNFINISHED = "unfinished"  # killed or interrupted
    NO_DATA = "not run: data"
    NOT_RUN = "not run"
    UNREADABLE = "unreadable"


# how the training of a cell ended: as its runs, the first one that failed, or before they all ended
Ended = Annotated[RunStatus, Field(strict=False)] | Annotated[CellStatus, Field(strict=False)]


class StalePart(StrEnum):
    """What differs from the current code, recipe or data."""

    CELL = "cell"  # it no longer exists
    RECIPE = "recipe"
    VERSION = "version"  # of a component
    FILES = "files"  # of a user-supplied model
    CODE = "code"  # it cannot be loaded, or its golden values differ
    MODIFIED = "modified code"  # under the same version, in the runs themselves
    DATA = "data"
    ENCODINGS = "encodings"


class Stale(FileModel):
    """Why records are stale: what the current code, recipe or data would compute differently.

    Attributes:
        part: what differs.
        component: of `version`, such as trainer.
        then: version in the records. None if they have none.
        now: current version. None if the component was removed.
        difference: of `code`, how golden values differ.
    """

    part: StalePart = Field(strict=False)
    component: str | None = None
    then: int | None = None
    now: int | None = None
    difference: str | None = None

    def __str__(self) -> str:
        match self.part:
            case StalePart.CELL:
                return "the cell no longer exists"
            case StalePart.CODE if self.difference:
                return f"code ({self.difference})"
            case StalePart.VERSION if self.then is None:
                return f"{self.component} (no version in the records)"
            case StalePart.VERSION:
                newer = self.now is not None and self.then is not None and self.then > self.now
                said = "removed" if self.now is None else f"now {self.now}"
                newer_code = ": these records were computed by newer code" if newer else ""
                return f"{self.component} (version {self.then}, {said}{newer_code})"
        return self.part


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

    ended: Ended
    wanted: int = 0
    done: int = 0
    failed: dict[str, int] = Field(default_factory=dict)
    unreadable: int = 0
    undefined: bool = False
    modified: bool = False
    stale: list[Stale] = Field(default_factory=list)

    @model_validator(mode="after")
    def _counts_fit(self) -> Self:
        if self.done + sum(self.failed.values()) > self.wanted:
            raise ValueError(f"{self.done} runs ended well and {sum(self.failed.values())} did not, of {self.wanted}")
        return self

    @property
    def complete(self) -> bool:
        """Whether all requested runs ended well and have a number."""
        return self.done == self.wanted > 0 and not self.undefined

    @property
    def damaged(self) -> bool:
        """Whether its result, or a record that it names, cannot be read."""
        return self.unreadable > 0 or self.ended == CellStatus.UNREADABLE

    @property
    def partial(self) -> bool:
        """Whether some, but not all, of the requested runs ended well."""
        return 0 < self.done < self.wanted

    @property
    def absent(self) -> bool:
        """Whether the cell was not run."""
        return self.ended in (CellStatus.NOT_RUN, CellStatus.NO_DATA)

    def with_stale(self, reasons: list[Stale]) -> "CellState":
        """Returns the state with further reasons why it is stale."""
        return self.model_copy(update={"stale": [*self.stale, *reasons]})
