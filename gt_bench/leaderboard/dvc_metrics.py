"""Cells and leaderboards as DVC reads them, in the paper's unit.

    metrics/SUITE/DATASET/ROW.json            of training. `dvc metrics show|diff`: test, std, validation, runs, status;
                                              `dvc plots show|diff`: validation by epoch, the mean over the runs that
                                              reached it
    reports/metrics/SUITE/DATASET/ROW.json    of the leaderboard: mean, std, published, difference, verdict, runs,
                                              status
    reports/published/SUITE.csv               the same: published, ours

Equal records give equal bytes.
"""

import math
import shutil
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from gt_bench.leaderboard.collect import summarise
from gt_bench.leaderboard.row import Row
from gt_bench.leaderboard.words import status_of
from gt_bench.records.events import CellDone
from gt_bench.records.run import Curves, points
from gt_bench.utils.format import csv_text
from gt_bench.utils.io import write_bytes, write_json

POINTS = 200  # of a curve, because the file is committed


def write_training(done: CellDone, metrics: Path = Path("metrics")) -> None:
    """Writes metrics/SUITE/DATASET/ROW.json, without published numbers. Raises WriteError."""
    result, records = done
    row = summarise(result, records)
    scale = 100 if row.percent else 1
    good = [r.run for r in records if r.run.status == "ok"]
    validated = [run.val for run in good if run.val is not None]
    validation = statistics.fmean(validated) if validated else None
    numbers = {"test": row.summary.mean, "std": row.summary.spread, "validation": validation}
    epochs = [
        {"epoch": epoch, "validation": float(f"{scale * value:.6g}")}
        for epoch, value in curve([r.run.epochs for r in records])
    ]
    shown = _in_unit(numbers, scale) | {"runs": row.summary.runs, "status": status_of(row.state)}
    # DVC takes an empty list for a curve of no columns
    write_json(
        metrics / f"{result.cell}.json", shown | ({"curve": epochs[:: -(-len(epochs) // POINTS)]} if epochs else {})
    )


def write_leaderboard(suite: str, rows: Sequence[Row], reports: Path) -> None:
    """Writes the other two files of a suite and removes those of cells that no longer exist. Raises WriteError."""
    shutil.rmtree(reports / "metrics" / suite, ignore_errors=True)
    (reports / "metrics" / suite).mkdir(parents=True)
    first = {row.cell: row for row in reversed(rows)}  # the first row of a cell is that of its metric
    for cell, row in first.items():
        write_json(reports / "metrics" / f"{cell}.json", metrics_of(row))
    metrics = [{"cell": cell, **metrics_of(row)} for cell, row in first.items()]
    both = [its | {"ours": its["mean"]} for its in metrics if {"published", "mean"} <= its.keys()]
    text = csv_text(("cell", "published", "ours", "verdict"), both)
    write_bytes(reports / "published" / f"{suite}.csv", text.encode())


def metrics_of(row: Row) -> dict[str, object]:
    """Returns the numbers and the verdict of a row in the unit of the paper, without missing ones."""
    numbers = {
        "mean": row.summary.mean,
        "std": row.summary.spread,
        "published": row.published.mean if row.published else None,
        "difference": row.difference,
    }
    said: dict[str, object] = {
        "verdict": row.verdict.word if row.verdict else None,
        "runs": row.summary.runs,
        "status": status_of(row.state),
    }
    return _in_unit(numbers, 100 if row.percent else 1) | said


def _in_unit(numbers: Mapping[str, float | None], scale: int) -> dict[str, float]:
    return {
        name: float(f"{scale * value:.6g}")
        for name, value in numbers.items()
        if value is not None and math.isfinite(value)
    }


def curve(runs: Sequence[Curves]) -> list[tuple[int, float]]:
    """Returns (epoch, mean validation value of the runs that validated in this epoch)."""
    by_epoch: dict[int, list[float]] = {}
    for run in runs:
        for epoch, value in points(run, "val"):
            if math.isfinite(value):
                by_epoch.setdefault(epoch, []).append(value)
    return [(epoch, statistics.fmean(values)) for epoch, values in sorted(by_epoch.items())]
