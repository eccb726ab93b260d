"""The rows of all leaderboards as data, for `gt_bench.load_results`."""

from collections.abc import Mapping
from pathlib import Path
from typing import cast

from gt_bench.config.grid import load_grid
from gt_bench.config.schema import RecipeError, nearest
from gt_bench.config.tried import with_tried
from gt_bench.leaderboard.collect import gather
from gt_bench.schemas import Row
from gt_bench.store.archive import ROOT

# columns of a row of `gt-bench try --search N --ensemble`: keys of `gt_bench.schemas.EnsembleSummary`
ENSEMBLE = {
    "default_mean": "default_mean",
    "default_std": "default_std",
    "default_hours": "default_hours",
    "tuned_hours": "tuned_hours",
    "ensemble_mean": "mean",
    "ensemble_std": "std",
    "ensemble_hours": "hours",
}


def load_rows(suite: str | None = None, dataset: str | None = None, records: Path = ROOT) -> list[Row]:
    """Own and shipped rows of a suite, a dataset, or all.

    Raises:
        RecipeError: for a suite or a dataset that does not exist.
        StoreError: for a folder of records that does not exist.
    """
    grid = with_tried(load_grid())
    if suite is not None:
        suite = grid.suite_name(suite)
        grid.suite(suite)
    if dataset is not None and dataset not in grid.datasets:
        raise RecipeError(f"no dataset {dataset!r}{nearest(dataset, grid.datasets)}")
    suites = grid.suites if suite is None else [suite]
    # claims of a suite are decided by all of its cells, so a dataset is chosen among the rows
    cells = {key: cell for key, cell in grid.cells.items() if cell.suite in suites}
    found = gather(grid.model_copy(update={"cells": cells, "suites": suites}), root=records)
    return [_flat(row) for row in (*found.rows, *found.others) if dataset in (None, row["dataset"])]


def _flat(row: Row) -> Row:
    """Returns a row with the numbers of its ensemble as columns, which are None if there is none."""
    ensemble: Mapping[str, object] = row.get("ensemble") or {}
    others = {key: value for key, value in row.items() if key != "ensemble"}
    return cast(Row, others | {column: ensemble.get(key) for column, key in ENSEMBLE.items()})
