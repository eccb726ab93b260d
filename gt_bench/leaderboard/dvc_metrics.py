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

from gt_bench.leaderboard.rows import spread, summarise
from gt_bench.schemas import Curves, Record, Result, Row
from gt_bench.utils.format import csv_text
from gt_bench.utils.io import write_bytes, write_json

POINTS = 200  # of a curve, because the file is committed


def write_training(result: Result, records: Sequence[Record], metrics: Path = Path("metrics")) -> None:
    """Writes metrics/SUITE/DATASET/ROW.json, without published numbers. Raises WriteError."""
    row = summarise(result, records)
    scale = 100 if row["unit"] == "percent" else 1
    good = [r["deterministic"] for r in records if r["deterministic"]["status"] == "ok"]
    validated = [run["val"] for run in good if run["val"] is not None]
    validation = statistics.fmean(validated) if validated else None
    numbers = {"test": row["mean"], "std": spread(row), "validation": validation}
    epochs = [
        {"epoch": epoch, "validation": float(f"{scale * value:.6g}")}
        for epoch, value in curve([r["deterministic"]["epochs"] for r in records])
    ]
    shown = _in_unit(numbers, scale) | {"runs": row["runs"], "status": row["status"]}
    # DVC takes an empty list for a curve of no columns
    write_json(
        metrics / f"{result['cell']}.json", shown | ({"curve": epochs[:: -(-len(epochs) // POINTS)]} if epochs else {})
    )


def write_leaderboard(suite: str, rows: Sequence[Row], reports: Path) -> None:
    """Writes the other two files of a suite and removes those of cells that no longer exist. Raises WriteError."""
    shutil.rmtree(reports / "metrics" / suite, ignore_errors=True)
    (reports / "metrics" / suite).mkdir(parents=True)
    first = {row["cell"]: row for row in reversed(rows)}  # the first row of a cell is that of its metric
    for cell, row in first.items():
        write_json(reports / "metrics" / f"{cell}.json", metrics_of(row))
    found = [{"cell": cell, **metrics_of(row)} for cell, row in first.items()]
    both = [one | {"ours": one["mean"]} for one in found if {"published", "mean"} <= one.keys()]
    text = csv_text(("cell", "published", "ours", "verdict"), both)
    write_bytes(reports / "published" / f"{suite}.csv", text.encode())


def metrics_of(row: Row) -> dict[str, object]:
    """Returns the numbers and the verdict of a row in the unit of the paper, without missing ones."""
    scale = 100 if row["unit"] == "percent" else 1
    numbers = {
        "mean": row["mean"],
        "std": spread(row),
        "published": row["published_mean"],
        "difference": row["difference"],
    }
    return _in_unit(numbers, scale) | {"verdict": row["verdict"], "runs": row["runs"], "status": row["status"]}


def _in_unit(numbers: Mapping[str, float | None], scale: int) -> dict[str, float]:
    return {
        name: float(f"{scale * value:.6g}")
        for name, value in numbers.items()
        if value is not None and math.isfinite(value)
    }


def curve(runs: Sequence[Curves]) -> list[tuple[int, float]]:
    """Returns (epoch, mean validation value of the runs that validated in this epoch)."""
    found: dict[int, list[float]] = {}
    for run in runs:
        for epoch, value in zip(run["epoch"], run["val"], strict=True):
            if value is not None and math.isfinite(value):
                found.setdefault(epoch, []).append(value)
    return [(epoch, statistics.fmean(values)) for epoch, values in sorted(found.items())]
