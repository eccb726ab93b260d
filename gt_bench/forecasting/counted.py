"""Cost of runs by counted operations (docs/scale.json), without timing anything.

`benchmarks/scale.py` counts the operations of a run of each cell and derives its time on a CPU thread and on an H100.
"""

import json
from pathlib import Path

from gt_bench.config.grid import Grid
from gt_bench.forecasting.cache import Cost

COUNTS = Path("docs/scale.json")


def counted_costs(grid: Grid, path: Path = COUNTS) -> dict[str, Cost]:
    """Return the counted cost of one run of each cell that was counted, without memory.

    Args:
        grid: the grid; a cell with `resources.gpus` has its time on an H100, the others on one CPU thread.
        path: file with the counts; outside the repository there is none.
    """
    try:
        counts = json.loads(path.read_text(encoding="utf-8"))["cells"]
    except (OSError, ValueError, KeyError):
        return {}
    found = {}
    for cell in grid.cells.values():
        one = counts.get(cell.cell, {})
        seconds = one.get("h100", {}).get("unfused") if grid.resources_of(cell).gpus else one.get("cpu")
        if seconds is not None:
            found[cell.cell] = Cost(seconds, search_seconds=seconds * one.get("search_runs", 0))
    return found
