"""The command line of a stage of one cell: `python -m stages.train suite/dataset/model`."""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from gt_bench.config.grid import Cell, Grid, load_grid
from gt_bench.config.tried import with_tried
from gt_bench.data import packed
from gt_bench.runtime.exit_status import status_of, usage
from gt_bench.runtime.signals import handled


def say_notes(cells: Iterable[Cell]) -> None:
    """Prints the notes of the datasets of these cells, once per dataset."""
    for dataset in dict.fromkeys(cell.dataset for cell in cells):
        packed.say_notes(Path("data", "packed", dataset))


def cell_stage(description: str, stage: Callable[[Cell, Grid], object]) -> int:
    """Runs a stage whose only argument is the name of a cell.

    Args:
        description: help text.
        stage: called with the cell of the command line and the grid.

    Returns:
        Exit status.
    """
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        return usage(description, sys.argv[1:])

    def work() -> None:
        with handled():
            grid = with_tried(load_grid())
            stage(grid.find(sys.argv[1]), grid)

    return status_of(work)
