"""A golden run of one cell in this process."""

from pathlib import Path

from gt_bench.data.registry import get_spec
from gt_bench.data.standin import miniature
from gt_bench.testing.golden_run import Computed, compute

CELL = "small/web/mlp"


def one(cell: str = CELL) -> Computed:
    """The golden run of one cell, in this process."""
    miniature(get_spec(cell.split("/")[1]), Path("mini/packed", cell.split("/")[1]))
    return compute(cell, Path("mini"))
