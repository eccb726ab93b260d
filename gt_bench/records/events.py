"""The events of the training of a cell, to which the progress display, the loggers and DVC's metric subscribe."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from gt_bench.records.cell import CellResult
from gt_bench.records.run import RunRecord


class RunCallback(Protocol):
    """Callback for the runs of a cell (`gt_bench.tracking.trackers.Tracker`)."""

    def start_seed(self, seed: int, digest: str) -> None:
        """Called when a run starts."""
        ...

    def log_epoch(self, digest: str, epoch: int, values: Mapping[str, float]) -> None:
        """Called after an epoch, with its values by name of the curve."""
        ...

    def finish_seed(self, record: RunRecord) -> None:
        """Called when a run has ended with a record."""
        ...


class CellDone(NamedTuple):
    """The event that the training of a cell has ended: its result, and the records of its runs in order."""

    result: CellResult
    records: list[RunRecord]
