"""What every stage that runs a cell needs of it: the recipe with which it trains, as far as params.yaml lets it, the experiment of that, and the
stage's command line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from gt_bench.config.grid import Cell, Grid, load_grid
from gt_bench.config.limits import EPOCHS, SEEDS, Cut
from gt_bench.config.recipe import Recipe, load_recipe
from gt_bench.config.schema import RecipeError
from gt_bench.config.tried import with_tried
from gt_bench.runtime.exit_status import status_of, usage
from gt_bench.runtime.signals import handled
from gt_bench.runtime.threads import settle_environment

if TYPE_CHECKING:
    from gt_bench.experiment.run import Experiment
    from gt_bench.store.run_store import Store


def limited(recipe: Recipe, grid: Grid, cell: Cell) -> tuple[Recipe, list[str]]:
    """The recipe under the limits of its cell or suite in params.yaml, and what was cut."""
    limits, cuts = grid.limits_of(cell), list(recipe.reduced)
    if limits.seeds is not None and limits.seeds < len(recipe.seeds):
        cuts.append(str(Cut(limits.seeds, len(recipe.seeds), SEEDS)))
        recipe = recipe.model_copy(update={"seeds": recipe.seeds[: limits.seeds]})
    if limits.epochs is not None and limits.epochs < recipe.total_epochs:
        cuts.append(str(Cut(limits.epochs, recipe.total_epochs, EPOCHS)))
        if recipe.phases:  # each phase keeps its share, and at least one epoch
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
    """What a cell trains with: its recipe, or what its search chose. Raises RecipeError where there is none yet, or it belongs to another recipe."""
    recipe = load_recipe(cell.recipe_path)
    if cell.settings != "tuned":
        return recipe
    if not cell.settings_path.exists():
        raise RecipeError(
            f"{cell.settings_path}: there is no such file yet: the cell is searched first, by `gt-bench tune {cell.cell}`"
        )
    chosen = load_recipe(cell.settings_path)
    values = {key: chosen.value(key) for key in (recipe.search.space if recipe.search else ())}
    if (recipe.with_values(values).decisive(), recipe.seeds) != (chosen.decisive(), chosen.seeds):
        raise RecipeError(
            f"{cell.settings_path}: chosen for another state of {cell.recipe_path}; search again: `gt-bench tune {cell.cell}`"
        )
    return chosen


def experiment_of(
    cell: Cell,
    recipe: Recipe,
    grid: Grid,
    store: Store,
    data: Path,
    allocator: str = "system default",
    later: tuple[str, ...] = (),
) -> Experiment:
    """The experiment of a cell with this recipe, and of the cells that it starts from. Raises RecipeError where they start from each other."""
    from gt_bench.experiment.run import Experiment

    source = None
    if cell.cell in later:
        raise RecipeError(f"{cell.recipe_path}: start.cell: these cells start from each other: {', '.join(later)}")
    if recipe.start:
        before = grid.find(recipe.start.cell)
        source = experiment_of(
            before, limited(settings_of(before), grid, before)[0], grid, store, data, allocator, (*later, cell.cell)
        )
    return Experiment(recipe, str(cell.settings_path), cell.dataset, grid.run, store, data, allocator, source)


def say_notes(cells: Iterable[Cell], data: Path = Path("data")) -> None:
    """Prints the notes of the datasets of these cells, each once."""
    from gt_bench.data import packed

    for dataset in dict.fromkeys(cell.dataset for cell in cells):
        packed.say_notes(data / "packed" / dataset)


def cell_stage(description: str, stage: Callable[[Cell, Grid], object]) -> int:
    """The command line of a stage that takes one cell."""
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
