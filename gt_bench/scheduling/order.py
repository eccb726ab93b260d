"""The order in which tasks start so that no core is idle at the end. No number depends on it.

Longest first: a task that starts late delays the end by its whole length. Two users:

- `train_cells`: a process trains the seeds of a cell one after the other. Cores without a cell compute single seeds of
  running cells ahead, those that the process of the cell would reach last. It finds them in the store.
- `gt-bench work` without a time limit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gt_bench.config.grid import Cell
from gt_bench.config.recipe import load_recipe
from gt_bench.config.schema import RecipeError

LEAST_SHARED = 20.0  # seconds of runs that share a process: starting a process takes several
PARTS_PER_CORE = 4  # a process gets at most this part of the work of a core


@dataclass(frozen=True)
class WorkItem:
    """A cell, or one of its seeds that is computed ahead.

    Attributes:
        cell: name of the cell.
        seed: None for the whole cell.
    """

    cell: str
    seed: int | None = None


def tasks_of(seeds: Mapping[str, Sequence[int]], seconds: Mapping[str, float]) -> list[WorkItem]:
    """Return the tasks of cells in the order in which they should start.

    Cells without a forecast come first, because they may be long. Seeds that are computed ahead come last: a core takes
    one only if no cell waits.

    Args:
        seeds: of each cell, in the order in which the process of the cell trains them.
        seconds: of a run of each cell; some may be missing.
    """
    unknown = max(seconds.values(), default=1.0)
    each = {cell: seconds.get(cell, unknown) for cell in seeds}
    cells = sorted(seeds, key=lambda cell: (cell in seconds, -each[cell] * len(seeds[cell])))
    ahead = [
        (number * each[cell], WorkItem(cell, seed))
        for cell in cells
        for number, seed in enumerate(seeds[cell])
        if number  # the process of the cell begins with the first
    ]
    ahead.sort(key=lambda one: -one[0])  # stable
    return [*map(WorkItem, cells), *(task for _, task in ahead)]


def shared_seconds(total: float, cores: int, most: float) -> float:
    """Return up to how many seconds of runs share a process.

    Args:
        total: seconds of all runs.
        cores: number of processes at once.
        most: seconds beyond which starting a process costs nothing.
    """
    return min(most, max(LEAST_SHARED, total / (PARTS_PER_CORE * max(1, cores))))


def threads_of(cell: Cell) -> int:
    """Return the cores of a run of the cell; 1 if its recipe is invalid, which the training of the cell reports."""
    try:
        return load_recipe(cell.recipe_path).cores
    except RecipeError:
        return 1
