"""Write grid.yaml from the recipes: every suites/<suite>/recipes/<dataset>/<row>.yaml is a cell.

grid.yaml lists datasets, suites, cells, finetunes and searches. dvc.yaml reads it.

    python -m gt_bench.pipeline.grid            write
    python -m gt_bench.pipeline.grid --check    only compare; exit status 1 if grid.yaml is out of date
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


def main(arguments: list[str]) -> int:
    """Write grid.yaml; with --check only compare it with the recipes. Return the exit status."""
    if arguments not in ([], ["--check"]):
        return usage(__doc__ or "", arguments)
    return status_of(lambda: _check() if arguments else write_grid())


def _check() -> int:
    agrees = _present() == render(SUITES)
    print(
        f"{GRID} agrees with the recipes"
        if agrees
        else f"{GRID} differs from the recipes; run `python -m gt_bench.pipeline.grid`"
    )
    return int(not agrees)


def write_grid() -> int:
    """Write grid.yaml from the recipes, and print how many cells it has.

    Raises:
        RecipeError: a recipe is invalid, or this folder has no params.yaml.
    """
    params = Path("params.yaml")
    if not params.exists():
        raise RecipeError("no such file", file=params, remedy="run this in a folder with params.yaml and suites/")
    text = render(SUITES)
    if text != _present():
        write_bytes(GRID, text.encode())
    grid = load_grid(params)
    print(
        f"{GRID}: {len(grid.cells)} cells, {len(grid.searches)} with a search, {len(grid.suites)} suites, "
        f"{len(grid.datasets)} datasets"
    )
    return 0


def _present() -> str:
    return GRID.read_text(encoding="utf-8") if GRID.exists() else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
