"""All results as tables of pandas: a row per cell (`gt_bench.load_results`) or per run (`gt_bench.load_runs`)."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from gt_bench.leaderboard.collect import Gathered
from gt_bench.leaderboard.export import COLUMNS, to_columns
from gt_bench.leaderboard.row import Row
from gt_bench.records.run import RunRecord

if TYPE_CHECKING:
    import pandas as pd

# columns of a row of `gt-bench try --search N --ensemble`: fields of `gt_bench.records.cell.EnsembleSummary`
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
RESULT_COLUMNS = ("cell", "suite", *COLUMNS[1:], "source", *ENSEMBLE)
# float64 also where no row has a value
NUMBERS = (
    *("mean", "std", "published_mean", "published_std", "published_runs", "difference", "interval_low"),
    *("interval_high", "margin", "margin_std", "power", "seeds_needed", "p_difference", "p_equivalence"),
    *("excluded_gap", "q_difference", "claim_low", "claim_high", "claim_more_seeds", "parameters"),
    *("seconds_per_epoch", "peak_memory_mib", "chance", "expected_limit", "expected_margin", *ENSEMBLE),
)
RUN_COLUMNS = (
    *("cell", "suite", "dataset", "model", "source", "seed", "split", "status", "error"),
    *("metric", "direction", "val", "test", "best_epoch", "epochs", "test_metrics", "curves"),
    *("parameters", "seconds", "train_seconds_per_epoch", "eval_seconds_per_epoch", "peak_memory_mib", "device"),
    *("cpu", "torch", "commit", "started", "finished", "verified", "by", "recipe", "digest"),
)


def results_of(gathered: Gathered, dataset: str | None = None) -> "pd.DataFrame":
    """Returns a row per cell and source, of all datasets or one. `gt_bench.load_results` describes the columns."""
    return table_of(row for row in (*gathered.rows, *gathered.others) if dataset in (None, row.dataset))


def runs_of(gathered: Gathered, dataset: str | None = None) -> "pd.DataFrame":
    """Returns a row per run of the cells of `results_of`. `gt_bench.load_runs` describes the columns."""
    import pandas as pd

    rows = [
        _run(cell, source, version.result.suite, record)
        for (source, cell), version in gathered.versions.items()
        if dataset in (None, version.result.dataset)
        for record in version.records
    ]
    table = pd.DataFrame(rows, columns=list(RUN_COLUMNS))
    return table.astype({"val": float, "test": float, "best_epoch": float})


def table_of(rows: Iterable[Row]) -> "pd.DataFrame":
    """Return rows of leaderboards as a table with `RESULT_COLUMNS`; a value that does not exist is missing."""
    import pandas as pd

    table = pd.DataFrame([_with_ensemble(row) for row in rows], columns=list(RESULT_COLUMNS))
    return table.astype(dict.fromkeys(NUMBERS, float))


def _with_ensemble(row: Row) -> dict[str, object]:
    """Returns a row with the numbers of its ensemble as columns, which are None if there is none."""
    ensemble = row.search and row.search.ensemble
    return {**to_columns(row), "suite": row.suite} | {
        column: ensemble and getattr(ensemble, key) for column, key in ENSEMBLE.items()
    }


def _run(cell: str, source: str, suite: str, record: RunRecord) -> dict[str, Any]:
    run, cost = record.run, record.measured
    curves = run.epochs
    return {
        **{key: getattr(run, key, getattr(cost, key, None)) for key in RUN_COLUMNS},
        **{key: getattr(cost.environment, key, None) for key in ("cpu", "torch", "commit")},
        "cell": cell,
        "suite": suite,
        "model": cell.split("/")[-1],
        "source": source,
        "epochs": len(curves["epoch"]),
        "curves": curves,
        "verified": record.verified,
        "by": record.by,
        "digest": record.digest,
    }
