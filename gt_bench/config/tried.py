"""What `gt-bench try` made, as cells of one more suite, `tried`: they have a recipe and results, and no entry in grid.yaml."""

from pathlib import Path

from gt_bench.config.grid import Cell, Grid
from gt_bench.config.recipe import TRIED


class TriedCell(Cell):
    """A cell outside the grid: its recipe is tried/DATASET/ROW.yaml."""

    @property
    def recipe_path(self) -> Path:
        """The recipe that was written for it."""
        return Path(f"{self.cell}.yaml")

    @property
    def settings_path(self) -> Path:
        """The same, or that of a search's result."""
        return self.recipe_path if self.settings == "recipes" else super().settings_path


def tried_cells(dataset: str | None = None, results: Path = Path("results"), tuned: Path = Path("tuned")) -> list[Cell]:
    """The cells of the suite `tried` that have a recipe or a result, in the order of their names.

    Args:
        dataset: only those of this dataset.
        results: folder of results.
        tuned: folder of what searches chose.
    """
    found = {path.with_suffix("") for path in Path(TRIED).glob("*/*.yaml")}
    found |= {path.relative_to(results).with_suffix("") for path in (results / TRIED).glob("*/*.json")}
    cells: list[Cell] = []
    for path in sorted(found):
        if dataset in (None, path.parent.name):
            name = path.as_posix()
            settings = "tuned" if (tuned / f"{name}.yaml").exists() else "recipes"
            cells.append(
                TriedCell(
                    key=name.replace("/", "-"), cell=name, dataset=path.parent.name, model=path.name, settings=settings
                )
            )
    return cells


def with_tried(grid: Grid, results: Path = Path("results")) -> Grid:
    """The grid with everything that was tried as cells of the suite `tried`; the same grid where nothing was."""
    cells = {cell.key: cell for cell in tried_cells(results=results)}
    if not cells:
        return grid
    datasets = list(dict.fromkeys([*grid.datasets, *(cell.dataset for cell in cells.values())]))
    more = {"cells": grid.cells | cells, "suites": [*grid.suites, TRIED], "datasets": datasets}
    return grid.model_copy(update=more)
