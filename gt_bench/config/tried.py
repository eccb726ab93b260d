"""Cells of `gt-bench try`. They form the suite `tried`, with recipes and results but without entries in grid.yaml."""

from pathlib import Path

from gt_bench.config.grid import Cell, Grid
from gt_bench.config.recipe import TRIED


class TriedCell(Cell):
    """A cell outside the grid, with the recipe tried/DATASET/ROW.yaml."""

    @property
    def recipe_path(self) -> Path:
        """Path of its recipe."""
        return Path(f"{self.cell}.yaml")

    @property
    def settings_path(self) -> Path:
        """Path of its recipe, or of the result of its search."""
        return self.recipe_path if self.settings == "recipes" else super().settings_path


def tried_cells(dataset: str | None = None, results: Path = Path("results")) -> list[Cell]:
    """Returns the cells of the suite `tried` that have a recipe or a result, ordered by name.

    Args:
        dataset: return only cells of this dataset.
        results: folder of results.
    """
    names = {path.with_suffix("") for path in Path(TRIED).glob("*/*.yaml")}
    names |= {path.relative_to(results).with_suffix("") for path in (results / TRIED).glob("*/*.json")}
    cells: list[Cell] = []
    for path in sorted(names):
        if dataset in (None, path.parent.name):
            name = path.as_posix()
            settings = "tuned" if Path("tuned", f"{name}.yaml").exists() else "recipes"
            cells.append(
                TriedCell(
                    key=name.replace("/", "-"), cell=name, dataset=path.parent.name, model=path.name, settings=settings
                )
            )
    return cells


def with_tried(grid: Grid) -> Grid:
    """Returns the grid with the cells of the suite `tried`."""
    cells = {cell.key: cell for cell in tried_cells()}
    if not cells:
        return grid
    datasets = list(dict.fromkeys([*grid.datasets, *(cell.dataset for cell in cells.values())]))
    more = {"cells": grid.cells | cells, "suites": [*grid.suites, TRIED], "datasets": datasets}
    return grid.model_copy(update=more)
