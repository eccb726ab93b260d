"""The recipe that a cell trains: with the values that its search found, and limited by params.yaml."""

from collections.abc import Iterable

from gt_bench.config.cuts import EPOCHS, SEEDS
from gt_bench.config.grid import Cell, Grid
from gt_bench.config.recipe import Recipe, load_recipe
from gt_bench.config.schema import RecipeError
from gt_bench.config.search_section import in_space
from gt_bench.records.cell import Reduction


def limited(recipe: Recipe, grid: Grid, cell: Cell) -> tuple[Recipe, list[Reduction | str]]:
    """Applies the limits of params.yaml for the cell or its suite to a recipe.

    Returns:
        The limited recipe, and what was reduced.
    """
    limits = grid.limits_of(cell)
    cuts: list[Reduction | str] = [*recipe.reduced]
    if limits.seeds is not None and limits.seeds < len(recipe.seeds):
        cuts.append(Reduction(unit=SEEDS, have=limits.seeds, full=len(recipe.seeds)))
        recipe = recipe.model_copy(update={"seeds": recipe.seeds[: limits.seeds]})
    if limits.epochs is not None and limits.epochs < recipe.total_epochs:
        cuts.append(Reduction(unit=EPOCHS, have=limits.epochs, full=recipe.total_epochs))
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
        cuts.append(Reduction(unit=protocol.UNIT, have=most, full=protocol.parts))
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
        remedy = f"run the search first: `gt-bench tune {cell.cell}`"
        raise RecipeError("file not found", file=cell.settings_path, remedy=remedy)
    chosen = load_recipe(cell.settings_path)
    space = recipe.search.space if recipe.search else {}
    values = {key: chosen.value(key) for key in space}
    # without data, a search keeps the recipe's own values
    searched = all(in_space(one, values[key]) or values[key] == recipe.value(key) for key, one in space.items())
    if not searched or (recipe.with_values(values).decisive(), recipe.seeds) != (chosen.decisive(), chosen.seeds):
        raise RecipeError(
            f"{cell.recipe_path} was edited after this search",
            file=cell.settings_path,
            remedy=f"search again: `gt-bench tune {cell.cell}`",
        )
    return chosen


def recipes_of(cells: Iterable[Cell]) -> dict[str, Recipe | RecipeError]:
    """Returns the recipe of each cell by its name, or what is wrong with it."""
    found: dict[str, Recipe | RecipeError] = {}
    for cell in cells:
        try:
            found[cell.cell] = load_recipe(cell.recipe_path)
        except RecipeError as error:
            found[cell.cell] = error
    return found
