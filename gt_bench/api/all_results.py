"""All results as tables of pandas: `gt_bench.load_results` and `gt_bench.load_runs`."""

from typing import TYPE_CHECKING

from gt_bench.config.grid import load_grid
from gt_bench.config.schema import RecipeError, nearest
from gt_bench.config.tried import with_tried
from gt_bench.leaderboard.collect import Gathered
from gt_bench.pipeline.gather import gather
from gt_bench.reports.all_results import results_of, runs_of

if TYPE_CHECKING:
    import pandas as pd


def load_results(suite: str | None = None, dataset: str | None = None) -> "pd.DataFrame":
    """Returns a row per cell and source. `gt_bench.load_results` describes the columns.

    Raises:
        RecipeError: for a suite or a dataset that does not exist.
    """
    return results_of(_gathered(suite, dataset), dataset)


def load_runs(suite: str | None = None, dataset: str | None = None) -> "pd.DataFrame":
    """Returns a row per run of the cells of `load_results`. `gt_bench.load_runs` describes the columns.

    Raises:
        RecipeError: for a suite or a dataset that does not exist.
    """
    return runs_of(_gathered(suite, dataset), dataset)


def _gathered(suite: str | None, dataset: str | None) -> Gathered:
    grid = with_tried(load_grid())
    if suite is not None:
        if suite == "tried" and suite not in grid.suites:  # nothing was tried yet
            return Gathered()
        if suite in grid.datasets:
            raise RecipeError(
                f"{suite!r} is a dataset, not a suite", place="suite", value=suite, remedy=f"use dataset={suite!r}"
            )
        grid.suite(suite)
    if dataset is not None and dataset not in grid.datasets:
        raise RecipeError(
            f"no results on a dataset {dataset!r}{nearest(dataset, grid.datasets)}", place="dataset", value=dataset
        )
    suites = grid.suites if suite is None else [suite]
    # claims of a suite are decided by all of its cells, so a dataset is chosen among the rows
    cells = {key: cell for key, cell in grid.cells.items() if cell.suite in suites}
    return gather(grid.model_copy(update={"cells": cells, "suites": suites}))
