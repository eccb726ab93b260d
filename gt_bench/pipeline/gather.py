"""The rows of leaderboards from own and from shipped records, with what the current code would compute differently."""

from pathlib import Path

from gt_bench.config.grid import Grid
from gt_bench.leaderboard import collect
from gt_bench.leaderboard.collect import Gathered
from gt_bench.provenance.staleness import freshness
from gt_bench.store.shipped_files import ROOT


def gather(grid: Grid, results: Path = Path("results"), store: Path = Path("store"), root: Path = ROOT) -> Gathered:
    """Returns what results/, store/ and the shipped records have of the cells of the grid.

    Damaged files become rows or problems.

    Raises:
        StoreError: `root` is given and does not exist.
    """
    return collect.gather(grid, freshness, results, store, root)
