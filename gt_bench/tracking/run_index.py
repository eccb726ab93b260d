"""The runs of an experiment in memory, by id, and found by their cell without a look at all of them."""

from collections import UserDict
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlflow.entities import Run


class Runs(UserDict[str, "Run"]):
    """MLflow's runs by id. A run's cell is its tag gt.cell, which stays what it is."""

    def __init__(self, runs: Iterable["Run"] = ()):
        super().__init__()
        self._of: dict[str | None, set[str]] = {}
        for run in runs:
            self[run.info.run_id] = run

    def __setitem__(self, run_id: str, run: "Run") -> None:
        self._of.setdefault(run.data.tags.get("gt.cell"), set()).add(run_id)
        super().__setitem__(run_id, run)

    def __delitem__(self, run_id: str) -> None:
        self._of[self[run_id].data.tags.get("gt.cell")].discard(run_id)
        super().__delitem__(run_id)

    def of(self, cell: str) -> list["Run"]:
        """The runs of a cell, by id."""
        return [self[run_id] for run_id in sorted(self._of.get(cell, ()))]
