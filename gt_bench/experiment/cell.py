"""From a cell to its experiment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gt_bench.config.cell_recipe import limited, settings_of
from gt_bench.config.grid import Cell, Grid
from gt_bench.config.recipe import Recipe
from gt_bench.config.schema import RecipeError

if TYPE_CHECKING:
    from gt_bench.experiment.run import Experiment
    from gt_bench.store.run_store import Store


def experiment_of(
    cell: Cell,
    recipe: Recipe,
    grid: Grid,
    store: Store,
    data: Path,
    allocator: str = "system default",
    dependents: tuple[str, ...] = (),
) -> Experiment:
    """Creates the experiment of a cell, and of the cell that its recipe starts from.

    Args:
        cell: the cell.
        recipe: its recipe, limited.
        grid: the grid, in which the cell of `start:` is looked up.
        store: where records are stored.
        data: folder with packed/ and encodings/.
        allocator: setting of the memory allocator, for the record.
        dependents: cells that start from this one.

    Raises:
        RecipeError: cells start from each other, or the recipe does not fit model or dataset.
        DatasetError: the dataset or its encodings are missing or damaged.
    """
    from gt_bench.experiment.run import Experiment  # loads torch

    source = None
    if cell.cell in dependents:
        problem = f"these cells start from each other: {', '.join(dependents)}"
        raise RecipeError(problem, file=cell.recipe_path, place="start.cell", value=cell.cell)
    if recipe.start:
        start = grid.find(recipe.start.cell)
        start_recipe = limited(settings_of(start), grid, start)[0]
        source = experiment_of(start, start_recipe, grid, store, data, allocator, (*dependents, cell.cell))
    return Experiment(recipe, str(cell.settings_path), cell.dataset, grid.run, store, data, allocator, source)
