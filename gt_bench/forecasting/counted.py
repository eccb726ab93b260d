"""Cost of runs by counted operations (docs/scale.json), without timing anything.

`benchmarks/scale.py` counts the operations of a run of each cell and derives its time on a CPU thread and on an H100.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gt_bench.config.grid import Cell, Grid
from gt_bench.forecasting.cache import ForecastCost
from gt_bench.utils.format import duration

COUNTS = Path("docs/scale.json")


def counted_costs(grid: Grid) -> dict[str, ForecastCost]:
    """Return the counted cost of one run of each cell that was counted, without memory.

    Args:
        grid: the grid; a cell with `resources.gpus` has its time on an H100, the others on one CPU thread.
    """
    counted, costs = counts(COUNTS), {}
    for cell in grid.cells.values():
        count = counted.get(cell.cell, {})
        seconds = count.get("h100", {}).get("unfused") if grid.resources_of(cell).gpus else count.get("cpu")
        if seconds is not None:
            costs[cell.cell] = ForecastCost(seconds, search_seconds=seconds * count.get("search_runs", 0))
    return costs


def announcement(name: str, cells: Sequence[Cell], grid: Grid, path: Path = COUNTS) -> list[str]:
    """Return what a run of cells will compute, how long it takes, and how to limit it; nothing if all have results.

    Args:
        name: of the cells, for the message.
        cells: cells that will run.
        grid: the grid; its limits on seeds are taken into account.
        path: file with the counts.
    """
    left = [cell for cell in cells if not Path("results", f"{cell.cell}.json").exists()]
    if not left:
        return []
    counted = counts(path)
    known = [(cell, counted[cell.cell]) for cell in left if "cpu" in counted.get(cell.cell, {})]
    runs = [
        min(count["seeds"], grid.limits_of(cell).seeds or count["seeds"]) + count["search_runs"]
        for cell, count in known
    ]
    cpu = sum(count["cpu"] * n for (_, count), n in zip(known, runs, strict=True))
    gpu = sum(count["h100"]["unfused"] * n for (_, count), n in zip(known, runs, strict=True))
    time = f"; about {duration(cpu)} on one CPU thread or {duration(gpu)} on an H100, counted" if known else ""
    without = f" ({len(left) - len(known)} cells are not counted)" if known and len(known) < len(left) else ""
    suite = left[0].suite
    return [
        f"{name}: {len(left)} of {len(cells)} cells have no result and will be computed{time}{without}",
        f"to limit it: `limits: {{{suite}: {{seeds: 1, epochs: 10}}}}` in params.yaml, or a single cell: "
        f"dvc repro train@{left[0].key}; Ctrl-C stops, the same command resumes",
    ]


def counts(path: Path) -> dict[str, dict[str, Any]]:
    """Return what was counted of each cell; nothing if there is no such file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))["cells"]
    except (OSError, ValueError, KeyError):  # outside the repository there is no such file
        return {}
