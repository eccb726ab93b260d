"""A leaderboard as DVC reads it: a metrics file per cell, learning curves, and what papers print beside what was found here.

    reports/metrics/SUITE/DATASET/ROW.json    `dvc metrics show|diff`: mean, std, difference, verdict, runs, status, in the paper's unit
    reports/curves/SUITE/DATASET/ROW.csv      `dvc plots show|diff`: validation by epoch, the mean over the runs that came so far
    reports/published/SUITE.csv               the same: published, ours

Equal records give equal bytes.
"""

import csv
import io
import math
import shutil
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stages.contents import Record, Result, Row
from stages.files import write_bytes, write_json

FOLDERS = ("metrics", "curves")


def write_for_dvc(
    suite: str,
    rows: Sequence[Row],
    results: Sequence[Result],
    records: Mapping[str, Record],
    reports: Path,
) -> None:
    """Writes the three for a suite; what is of no cell any more goes. Raises WriteError."""
    for name in FOLDERS:
        shutil.rmtree(reports / name / suite, ignore_errors=True)
        (reports / name / suite).mkdir(parents=True)
    first = {row["cell"]: row for row in reversed(rows)}  # of a cell's rows the first is its own metric
    for cell, row in first.items():
        write_json(reports / "metrics" / f"{cell}.json", metrics_of(row))
    for result in results:
        runs = [records[digest]["deterministic"]["epochs"] for digest in result["runs"] if digest in records]
        write_bytes(reports / "curves" / f"{result['cell']}.csv", _csv(("epoch", "validation"), curve(runs)))
    beside = [(row["cell"], metrics_of(row)) for row in first.values()]
    both = [(cell, found["published"], found["mean"], found["verdict"]) for cell, found in beside if {"published", "mean"} <= found.keys()]
    write_bytes(reports / "published" / f"{suite}.csv", _csv(("cell", "published", "ours", "verdict"), both))


def metrics_of(row: Row) -> dict[str, Any]:
    """What of a row is a number or a word, in the paper's unit; what there is none of is left out."""
    scale = 100 if row["unit"] == "percent" else 1
    numbers = {"mean": row["mean"], "std": row["std"], "published": row["published_mean"], "difference": row["difference"]}
    shown = {name: float(f"{scale * value:.6g}") for name, value in numbers.items() if value is not None and math.isfinite(value)}
    return shown | {"verdict": row["verdict"], "runs": row["runs"], "status": row["status"]}


def curve(runs: Sequence[Mapping[str, Sequence[float | None]]]) -> list[tuple[int, float]]:
    """(epoch, mean of validation over the runs that validated in it)."""
    found: dict[int, list[float]] = {}
    for run in runs:
        for epoch, value in zip(run["epoch"], run["val"], strict=True):
            if value is not None and math.isfinite(value):
                found.setdefault(epoch, []).append(value)
    return [(epoch, statistics.fmean(values)) for epoch, values in sorted(found.items())]


def _csv(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> bytes:
    file = io.StringIO(newline="")
    csv.writer(file, lineterminator="\n").writerows([head, *rows])
    return file.getvalue().encode()
