"""The grid from the recipes: every recipe suites/SUITE/recipes/DATASET/ROW.yaml is a cell. Writes grid.yaml: datasets, suites, cells,
finetunes and searches, which dvc.yaml reads.

    python -m gt_bench.pipeline.grid            write
    python -m gt_bench.pipeline.grid --check    only say what would change; status 1 if anything
"""

import sys
from pathlib import Path

from gt_bench.config.grid import load_grid
from gt_bench.config.grid_text import render
from gt_bench.config.schema import RecipeError
from gt_bench.runtime.exit_status import status_of, usage
from gt_bench.utils.io import write_bytes
from gt_bench.utils.paths import SUITES

GRID = Path("grid.yaml")
OLD_MARK = (
    "# Below: written by `python -m gt_bench.pipeline.grid`"  # where older checkouts had the grid: in params.yaml
)


def main(arguments: list[str]) -> int:
    """Writes grid.yaml; with --check only says whether it is what the recipes give (exit status 1 where not)."""
    if arguments not in ([], ["--check"]):
        return usage(__doc__ or "", arguments)
    return status_of(lambda: _check() if arguments else write_grid())


def _check() -> int:
    agrees = _present() == render(SUITES)
    print(
        f"{GRID} agrees with the recipes"
        if agrees
        else f"{GRID} differs from the recipes: run `python -m gt_bench.pipeline.grid`"
    )
    return int(not agrees)


def write_grid() -> int:
    """Writes grid.yaml from the recipes and prints how many cells there are. Raises RecipeError."""
    params = Path("params.yaml")
    if not params.exists():
        raise RecipeError(
            f"{params}: no such file here; grid.yaml is only written next to a params.yaml, and only needed there"
        )
    text = render(SUITES)
    own, mark, _ = params.read_text(encoding="utf-8").partition(OLD_MARK)
    if mark:
        write_bytes(params, own.rstrip().encode() + b"\n")
        print(f"{params}: the grid that stood at its end is in {GRID} now")
    if text != _present():
        write_bytes(GRID, text.encode())
    grid = load_grid(params)
    print(
        f"{GRID}: {len(grid.cells)} cells, {len(grid.searches)} with a search, {len(grid.suites)} suites, {len(grid.datasets)} datasets"
    )
    return 0


def _present() -> str:
    return GRID.read_text(encoding="utf-8") if GRID.exists() else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
