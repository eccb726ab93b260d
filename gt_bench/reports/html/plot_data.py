"""Data of the plots: rows in raw units, datasets that differ only in size, counted operations, HOT's run time."""

import csv
import json
import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from gt_bench.claims.experiments.registry import FindingError, file_of, sealed
from gt_bench.leaderboard.collect import OWN, Gathered
from gt_bench.leaderboard.export import to_columns
from gt_bench.leaderboard.row import Row
from gt_bench.records.run import RunRecord
from gt_bench.reports.html.content import id_of, short, texts_of
from gt_bench.reports.paper_table import kind_of


def rows_for_plots(
    rows: Sequence[Row], details: Mapping[str, Mapping[str, object]], papers: Mapping[tuple[str, str | None], str]
) -> list[dict[str, object]]:
    """Return what plots read of the rows of leaderboards.

    Args:
        rows: The rows.
        details: By the id of a row; see `cell_details`.
        papers: Label of the paper by (id, metric) of the rows that decide one of its own numbers.

    Returns:
        One entry per row with a mean, in raw units.
    """
    keep = (
        "dataset", "model", "metric", "direction", "unit", "mean", "std", "runs", "seeds", "verdict", "difference",
        "device", "parameters", "published_mean", "published_printed", "interval_low", "interval_high", "margin",
        "seconds_per_epoch", "peak_memory_mib", "source",
    )  # fmt: skip
    return [
        {"id": id_of(row), "suite": row.suite, "kind": kind_of(row).word, "sign": kind_of(row).sign}
        | {key: short(value) for key, value in to_columns(row).items() if key in keep}
        | {
            "mean_text": texts_of(row)["mean ± std"],
            "provisional": row.provisional,
            "paper": papers.get((id_of(row), row.metric)),
            "curves": bool(details[id_of(row)].get("curves")),
        }
        for row in rows
        if row.summary.mean is not None
    ]


def own(held: Gathered) -> list[tuple[str, str]]:
    """Return (dataset, metric) of the own results, the latest first."""
    finished = {
        cell: max(record.measured.finished for record in version.records)
        for (source, cell), version in held.versions.items()
        if source == OWN and version.records
    }
    rows = [row for row in held.rows if row.source == OWN and row.summary.mean is not None and row.cell in finished]
    rows.sort(key=lambda row: finished[row.cell], reverse=True)
    return list(dict.fromkeys((row.dataset, row.metric or "") for row in rows))


CORE = 0.8  # with less of its core, the time of a run on a CPU is that of a busy machine


def core_share(records: Sequence[RunRecord]) -> float | None:
    """Returns the mean share of its threads' cores that the least busy of some runs on a CPU had; None if unknown."""
    shares = []
    for record in records:
        measured = record.measured
        percent = measured.usage.get("cpu_percent") or ()
        if measured.device != "cpu" or not percent or not measured.threads:
            return None
        shares.append(statistics.fmean(percent) / 100 / measured.threads)
    return min(shares, default=None)


def scaling(rows: Sequence[Row], records: Mapping[tuple[str, str], Sequence[RunRecord]]) -> list[dict[str, object]]:
    """Returns seconds and memory of models on datasets whose names differ only in a number, their size.

    Seconds of runs on a CPU are processor time. `starved` marks a point that had less than `CORE` of its core: it is
    shown and no line is fitted to it.

    Args:
        rows: rows of leaderboards.
        records: records by (source, cell).
    """
    points = []
    for row in rows:
        family, cost = re.fullmatch(r"(.+)-(\d+)", row.dataset), row.cost
        if family and cost.seconds_per_epoch is not None and row.source is not None:
            share = core_share(records.get((row.source, row.cell), ()))
            seconds = cost.seconds_per_epoch * (1.0 if share is None else min(share, 1.0))
            points.append({"id": id_of(row), "family": family[1], "size": int(family[2]), "model": row.model,
                          "device": cost.device, "seconds": short(seconds),
                          "starved": share is not None and share < CORE,
                          "memory": short(cost.peak_memory_mib)})  # fmt: skip
    sizes: dict[tuple[object, object], set[object]] = {}
    for point in points:
        sizes.setdefault((point["family"], point["model"]), set()).add(point["size"])
    several = [point for point in points if len(sizes[point["family"], point["model"]]) > 1]
    return sorted(several, key=lambda point: (point["family"], point["model"], point["size"]))


def growth(folder: Path | None = None) -> dict[str, object]:
    """Returns operations of the models by size of graph (findings/growth.json of a suite).

    Empty if the file is missing or its checksum is wrong.
    """
    try:
        content = json.loads(file_of("growth", folder).read_text(encoding="utf-8"))
        if content["sha256"] != sealed(content["cases"]):
            return {}
        return {name: case["value"] for name, case in content["cases"].items()}
    except (FindingError, OSError, ValueError, KeyError, TypeError):
        return {}


def hot_scaling(path: Path) -> list[dict[str, object]]:
    """Returns the successful rows of the file of benchmarks/hot_scaling.py. Empty if there is no file."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return [
                {
                    "model": row["model"],
                    "edges": int(row["edges"]),
                    "seconds": float(row["forward_seconds"]),
                    "memory": float(row["peak_mib"]),
                }
                for row in csv.DictReader(file)
                if row["status"] == "ok"
            ]
    except (OSError, ValueError, KeyError):
        return []
