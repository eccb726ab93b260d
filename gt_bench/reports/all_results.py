"""All results as tables of pandas: a row per cell (`gt_bench.load_results`) or per run (`gt_bench.load_runs`)."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from gt_bench.config.grid import load_grid
from gt_bench.config.schema import RecipeError, nearest
from gt_bench.config.tried import with_tried
from gt_bench.leaderboard.collect import Gathered, gather
from gt_bench.schemas import COLUMNS, Columns, Record, Row

if TYPE_CHECKING:
    import pandas as pd

# columns of a row of `gt-bench try --search N --ensemble`: keys of `gt_bench.schemas.EnsembleSummary`
ENSEMBLE = {
    "default_mean": "default_mean",
    "default_std": "default_std",
    "default_hours": "default_hours",
    "tuned_hours": "tuned_hours",
    "trials": "trials",
    "ensemble_mean": "mean",
    "ensemble_std": "std",
    "ensemble_hours": "hours",
}
RESULT_COLUMNS = (*COLUMNS, "source", *ENSEMBLE)
# float64 also where no row has a value
NUMBERS = [name for name, kind in Columns.__annotations__.items() if kind in (float | None, int | None)] + [*ENSEMBLE]
RUN_COLUMNS = (
    *("cell", "suite", "dataset", "model", "source", "seed", "split", "status", "error"),
    *("metric", "direction", "val", "test", "best_epoch", "epochs", "test_metrics", "curves"),
    *("parameters", "seconds", "train_seconds_per_epoch", "eval_seconds_per_epoch", "peak_memory_mib", "device"),
    *("cpu", "torch", "commit", "started", "finished", "verified", "by", "recipe", "digest"),
)


def load_results(suite: str | None = None, dataset: str | None = None) -> "pd.DataFrame":
    """Returns a row per cell and source. `gt_bench.load_results` describes the columns.

    Raises:
        RecipeError: for a suite or a dataset that does not exist.
    """
    found = _gathered(suite, dataset)
    return table_of(row for row in (*found.rows, *found.others) if dataset in (None, row["dataset"]))


def load_runs(suite: str | None = None, dataset: str | None = None) -> "pd.DataFrame":
    """Returns a row per run of the cells of `load_results`. `gt_bench.load_runs` describes the columns.

    Raises:
        RecipeError: for a suite or a dataset that does not exist.
    """
    import pandas as pd

    rows = [
        _run(cell, source, version.result["suite"], record)
        for (source, cell), version in _gathered(suite, dataset).versions.items()
        if dataset in (None, version.result["dataset"])
        for record in version.records
    ]
    table = pd.DataFrame(rows, columns=list(RUN_COLUMNS))
    return table.astype({"val": float, "test": float, "best_epoch": float})


def table_of(rows: Iterable[Row]) -> "pd.DataFrame":
    """Return rows of leaderboards as a table with `RESULT_COLUMNS`; a value that does not exist is missing."""
    import pandas as pd

    table = pd.DataFrame([_with_ensemble(row) for row in rows], columns=list(RESULT_COLUMNS))
    return table.astype(dict.fromkeys(NUMBERS, float))


def _gathered(suite: str | None, dataset: str | None) -> Gathered:
    grid = with_tried(load_grid())
    if suite is not None:
        suite = grid.suite_name(suite)
        if suite == "tried" and suite not in grid.suites:  # nothing was tried yet
            return Gathered()
        grid.suite(suite)
    if dataset is not None and dataset not in grid.datasets:
        raise RecipeError(f"no dataset {dataset!r}{nearest(dataset, grid.datasets)}")
    suites = grid.suites if suite is None else [suite]
    # claims of a suite are decided by all of its cells, so a dataset is chosen among the rows
    cells = {key: cell for key, cell in grid.cells.items() if cell.suite in suites}
    return gather(grid.model_copy(update={"cells": cells, "suites": suites}))


def _with_ensemble(row: Row) -> dict[str, object]:
    """Returns a row with the numbers of its ensemble as columns, which are None if there is none."""
    ensemble: Mapping[str, object] = row.get("ensemble") or {}
    return dict(row) | {column: ensemble.get(key) for column, key in ENSEMBLE.items()}


def _run(cell: str, source: str, suite: str, record: Record) -> dict[str, Any]:
    run, cost = record["deterministic"], record["measured"]
    curves = run["epochs"]
    return {
        **{key: run.get(key) for key in RUN_COLUMNS},
        **{key: cost.get(key) for key in RUN_COLUMNS if key in cost},
        **{key: cost["environment"].get(key) for key in ("cpu", "torch", "commit")},
        "cell": cell,
        "suite": suite,
        "model": cell.split("/")[-1],
        "source": source,
        "epochs": len(curves["epoch"]),
        "curves": curves,
        "verified": record.get("verified"),
        "by": record.get("by"),
        "digest": record["digest"],
    }
