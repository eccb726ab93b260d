"""From a cell to its experiment: recipe, limits of params.yaml, tuned values. Also the command line of a stage."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from gt_bench.config.cuts import EPOCHS, SEEDS, Cut
from gt_bench.config.grid import Cell, Grid, load_grid
from gt_bench.config.recipe import Recipe, load_recipe
from gt_bench.config.schema import RecipeError
from gt_bench.config.search_section import in_space
from gt_bench.config.tried import with_tried
from gt_bench.runtime.exit_status import status_of, usage
from gt_bench.runtime.signals import handled
from gt_bench.runtime.threads import settle_environment

if TYPE_CHECKING:
    from gt_bench.experiment.run import Experiment
    from gt_bench.store.run_store import Store


def limited(recipe: Recipe, grid: Grid, cell: Cell) -> tuple[Recipe, list[str]]:
    """Applies the limits of params.yaml for the cell or its suite to a recipe.

    Returns:
        The limited recipe, and one line for each value that was reduced.
    """
    limits, cuts = grid.limits_of(cell), list(recipe.reduced)
    if limits.seeds is not None and limits.seeds < len(recipe.seeds):
        cuts.append(str(Cut(limits.seeds, len(recipe.seeds), SEEDS)))
        recipe = recipe.model_copy(update={"seeds": recipe.seeds[: limits.seeds]})
    if limits.epochs is not None and limits.epochs < recipe.total_epochs:
        cuts.append(str(Cut(limits.epochs, recipe.total_epochs, EPOCHS)))
        if recipe.phases:  # epochs of phases are reduced in proportion, to one at least
            shares = [max(1, phase.epochs * limits.epochs // recipe.total_epochs) for phase in recipe.phases]
            phases = [
                phase.model_copy(update={"epochs": epochs}) for phase, epochs in zip(recipe.phases, shares, strict=True)
            ]
            recipe = recipe.model_copy(update={"phases": phases})
        else:
            recipe = recipe.model_copy(update={"epochs": limits.epochs})
    protocol = recipe.protocol
    most = getattr(limits, protocol.UNIT) if protocol else None
    if protocol and most is not None and most < protocol.parts:
        cuts.append(str(Cut(most, protocol.parts, protocol.UNIT)))
        recipe = recipe.with_protocol(protocol.only(most))
    return recipe, cuts


def settings_of(cell: Cell) -> Recipe:
    """Returns the recipe that a cell trains: its own, or if the cell is tuned, the one with the values found by search.

    Raises:
        RecipeError: the search has not ended yet, or it searched another state of the recipe.
    """
    recipe = load_recipe(cell.recipe_path)
    if cell.settings != "tuned":
        return recipe
    if not cell.settings_path.exists():
        raise RecipeError(f"{cell.settings_path}: file not found; run the search first: `gt-bench tune {cell.cell}`")
    chosen = load_recipe(cell.settings_path)
    space = recipe.search.space if recipe.search else {}
    values = {key: chosen.value(key) for key in space}
    # without data, a search keeps the recipe's own values
    searched = all(in_space(one, values[key]) or values[key] == recipe.value(key) for key, one in space.items())
    if not searched or (recipe.with_values(values).decisive(), recipe.seeds) != (chosen.decisive(), chosen.seeds):
        raise RecipeError(
            f"{cell.settings_path}: {cell.recipe_path} was edited after this search; search again: "
            f"`gt-bench tune {cell.cell}`"
        )
    return chosen


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
    from gt_bench.experiment.run import Experiment

    source = None
    if cell.cell in dependents:
        raise RecipeError(f"{cell.recipe_path}: start.cell: these cells start from each other: {', '.join(dependents)}")
    if recipe.start:
        start = grid.find(recipe.start.cell)
        start_recipe = limited(settings_of(start), grid, start)[0]
        source = experiment_of(start, start_recipe, grid, store, data, allocator, (*dependents, cell.cell))
    return Experiment(recipe, str(cell.settings_path), cell.dataset, grid.run, store, data, allocator, source)


def say_notes(cells: Iterable[Cell]) -> None:
    """Prints the notes of the datasets of these cells, once per dataset."""
    from gt_bench.data import packed

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
    settle_environment()
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        return usage(description, sys.argv[1:])

    def work() -> None:
        with handled():
            grid = with_tried(load_grid())
            cell = grid.find(sys.argv[1])
            say_notes([cell])
            stage(cell, grid)

    return status_of(work)
