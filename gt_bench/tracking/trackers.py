"""The interface of experiment loggers, and the choice of loggers for the training of a cell.

`run.tracking` of params.yaml names the loggers. All are mirrors of the records: a logger that fails costs no run.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from gt_bench.config.params import RunSettings
from gt_bench.config.schema import RecipeError
from gt_bench.records.cell import CellResult
from gt_bench.records.events import RunCallback
from gt_bench.records.run import RunRecord
from gt_bench.tracking.live import Live
from gt_bench.tracking.uri import is_installed
from gt_bench.utils.redact import without_credentials

if TYPE_CHECKING:
    from gt_bench.config.grid import Cell


class Tracker(RunCallback, Protocol):
    """Logs the training of one cell: starts of runs, metrics of epochs, and ends of runs with their records."""

    def close(
        self, result: CellResult, records: Sequence[RunRecord],
        earlier: Sequence[tuple[CellResult, Sequence[RunRecord]]] = (), store: Path | None = None,
    ) -> None:  # fmt: skip
        """Called once after all runs of the cell.

        Args:
            result: of the cell.
            records: of the result, including those that were already stored.
            earlier: results and records of earlier attempts.
            store: folder of the store, with weights.
        """
        ...


class Trackers:
    """Pass each event to several trackers. One that raises is reported once and receives no further events.

    Args:
        trackers: by name.
    """

    def __init__(self, trackers: Mapping[str, Tracker]):
        self._trackers = dict(trackers)

    def start_seed(self, seed: int, digest: str) -> None:
        """See `Tracker`."""
        self._each(lambda tracker: tracker.start_seed(seed, digest))

    def log_epoch(self, digest: str, epoch: int, values: Mapping[str, float]) -> None:
        """See `Tracker`."""
        self._each(lambda tracker: tracker.log_epoch(digest, epoch, values))

    def finish_seed(self, record: RunRecord) -> None:
        """See `Tracker`."""
        self._each(lambda tracker: tracker.finish_seed(record))

    def close(
        self, result: CellResult, records: Sequence[RunRecord],
        earlier: Sequence[tuple[CellResult, Sequence[RunRecord]]] = (), store: Path | None = None,
    ) -> None:  # fmt: skip
        """See `Tracker`."""
        self._each(lambda tracker: tracker.close(result, records, earlier, store))

    def _each(self, call: Callable[[Tracker], None]) -> None:
        for name, tracker in list(self._trackers.items()):
            try:
                call(tracker)
            except Exception as error:  # whatever a logger raises, the run continues
                del self._trackers[name]
                print(
                    f"warning: {name} cannot be used: {type(error).__name__}: {without_credentials(str(error))}. "
                    f"Training continues; run the same command later to update {name} from the records.",
                    file=sys.stderr,
                    flush=True,
                )


def check_trackers(run: RunSettings) -> None:
    """Raise RecipeError if TensorBoard is in `run.tracking` and not installed. A missing MLflow is only reported."""
    if "tensorboard" not in run.trackers:
        return
    found = find_spec("tensorboard")
    if found is None or found.origin is None:  # without origin: the folder of event files in the working directory
        remedy = "run `pip install tensorboard`"
        raise RecipeError("tensorboard is not installed", file="params.yaml", place="run.tracking", remedy=remedy)


def open_trackers(
    cell: "Cell", run: RunSettings, recipe: Mapping[str, object], dataset: Mapping[str, object]
) -> Trackers | None:
    """Return the trackers of `run.tracking` for a cell, or None if there are none.

    Args:
        cell: that is trained.
        run: settings of all runs.
        recipe: as in the cell's result.
        dataset: with the keys name and digest of the packed dataset.
    """
    trackers: dict[str, Tracker] = {}
    if "mlflow" in run.trackers and is_installed():
        trackers["mlflow"] = Live(cell, recipe, dataset)
    if "tensorboard" in run.trackers:
        from gt_bench.tracking.tensorboard import TensorBoard

        trackers["tensorboard"] = TensorBoard(cell.cell)
    return Trackers(trackers) if trackers else None
