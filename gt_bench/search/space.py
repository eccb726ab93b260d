"""The space of a search: what of it is checked, how large it is, and how many trials a cell has in it."""

import itertools
import random

from gt_bench.config.grid import Cell, Grid
from gt_bench.config.recipe import DESCRIBED, Recipe, load_recipe
from gt_bench.config.schema import RecipeError
from gt_bench.config.search_space import Choice, SearchSection
from gt_bench.experiment.validate import check_model
from gt_bench.schemas import Settings


def check_space(recipe: Recipe, cell: Cell) -> None:
    """Every key of the space must be a key of the recipe that decides a run, every choice and end of a range a value that the recipe accepts,
    and where the search is over a grid there are no ranges. Raises RecipeError."""
    search = recipe.searched
    keys = [name for key, space in search.space.items() for name in (key, *getattr(space, "also", ()))]
    if repeated := sorted({key for key in keys if keys.count(key) > 1}):
        raise RecipeError(f"{cell.recipe_path}: search.space chooses {', '.join(repeated)} more than once")
    if nothing := [key for key in keys if key.split(".")[0] in DESCRIBED or key == "model.name"]:
        raise RecipeError(
            f"{cell.recipe_path}: search.space.{nothing[0]}: decides no run, so there is nothing to search"
        )
    absent = [key for key in keys if key.startswith("encodings.") and key.split(".")[1] not in recipe.encodings]
    if absent:
        raise RecipeError(
            f"{cell.recipe_path}: search.space.{absent[0]}: the recipe asks for no such encoding; add it under encodings"
        )
    for key, space in search.space.items():
        ends = [] if isinstance(space, Choice) else [int(v) if space.integer else v for v in (space.low, space.high)]
        candidates = space.choices if isinstance(space, Choice) else ends
        for value in candidates:
            try:
                check_model(recipe.with_values({key: value}), cell.recipe_path)
            except RecipeError as error:
                raise RecipeError(
                    f"{cell.recipe_path}: search.space.{key}: {value!r:.200} cannot stand there: {error}"
                ) from None
    ranges = [key for key, space in search.space.items() if not isinstance(space, Choice)]
    if search.sampler == "grid" and ranges:
        raise RecipeError(
            f"{cell.recipe_path}: search.sampler grid needs choices, not a range, for {', '.join(ranges)}"
        )


def trials_of(cell: Cell, grid: Grid, recipe: Recipe) -> int:
    """Trials of a cell's search: its recipe's, or with `fair_search` the number that every searched cell of its suite has. Raises RecipeError
    where those cells do not search spaces of the same size."""
    fair = grid.fair_search.get(cell.suite)
    if fair is None:
        return recipe.searched.trials
    sizes: dict[tuple[int, int], list[str]] = {}
    for other in grid.suite(cell.suite):
        search = load_recipe(other.recipe_path).search
        if search is not None:
            sizes.setdefault(space_size(search), []).append(other.cell)
    if len(sizes) > 1:
        lines = [f"{size_text(size)}: {', '.join(cells)}" for size, cells in sizes.items()]
        raise RecipeError(
            "\n  ".join(
                [f"params.yaml: fair_search.{cell.suite}: the spaces are not of one size; make them equal:", *lines]
            )
        )
    return fair


def space_size(search: SearchSection) -> tuple[int, int]:
    """(points of the keys that have finitely many values, number of the keys that have a continuum)."""
    points, continuous = 1, 0
    for space in search.space.values():
        if isinstance(space, Choice):
            points *= len(space.choices)
        elif space.integer or space.step:
            points *= int((space.high - space.low) / (space.step or 1) + 1e-9) + 1
        else:
            continuous += 1
    return points, continuous


def size_text(size: tuple[int, int]) -> str:
    """`space_size` in words."""
    points, continuous = size
    return f"{points:,} points" + (
        f" times {continuous} continuous {'key' if continuous == 1 else 'keys'}" if continuous else ""
    )


def grid_points(search: SearchSection) -> list[Settings]:
    """Every combination of the choices, in an order drawn from the sampler's seed; a space with a range has no such points."""
    choices = [space.choices for space in search.space.values() if isinstance(space, Choice)]
    points = [dict(zip(search.space, values, strict=True)) for values in itertools.product(*choices)]
    random.Random(search.sampler_seed).shuffle(points)
    return points
