"""Search spaces: validation, size, grid points, and the number of trials of a cell."""

import itertools
import random
from typing import NoReturn

from gt_bench.config.grid import Cell, Grid
from gt_bench.config.recipe import DESCRIPTIVE, Recipe, load_recipe
from gt_bench.config.schema import RecipeError
from gt_bench.config.search_section import Choice, SearchSection
from gt_bench.experiment.validate import check_model
from gt_bench.utils.json_types import Settings


def check_space(recipe: Recipe, cell: Cell) -> None:
    """Checks the search space of a recipe.

    Each key must be a key of the recipe that decides a run. Each choice and each end of a range must be valid. A grid
    search must not have ranges.

    Args:
        recipe: the recipe.
        cell: its cell, for messages.

    Raises:
        RecipeError: the space is invalid.
    """
    search = recipe.searched
    keys = [name for key, space in search.space.items() for name in (key, *getattr(space, "also", ()))]

    def refuse(key: str, problem: str, remedy: str = "", value: object = None) -> NoReturn:
        raise RecipeError(problem, file=cell.recipe_path, place=f"search.{key}", value=value, remedy=remedy)

    if repeated := sorted({key for key in keys if keys.count(key) > 1}):
        refuse("space", f"duplicate key {', '.join(repeated)}", "remove one", repeated)
    if unused := [key for key in keys if key.split(".")[0] in DESCRIPTIVE or key == "model.name"]:
        problem = "this key cannot be searched, because runs do not depend on it"
        refuse(f"space.{unused[0]}", problem, "remove it")
    if measures := [key for key in keys if key in ("split", "targets")]:
        problem = "this key cannot be searched, because validation values of two of its choices are not comparable"
        refuse(f"space.{measures[0]}", problem, "remove it")
    absent = [key for key in keys if key.startswith("encodings.") and key.split(".")[1] not in recipe.encodings]
    if absent:
        refuse(f"space.{absent[0]}", "the recipe does not have this encoding", "add it to encodings")
    for key, space in search.space.items():
        ends = [] if isinstance(space, Choice) else [int(v) if space.integer else v for v in (space.low, space.high)]
        candidates = space.choices if isinstance(space, Choice) else ends
        for value in candidates:
            try:
                check_model(recipe.with_values({key: value}), cell.recipe_path)
            except RecipeError as error:
                inside = "" if error.place == key else f"with {value!r:.200}: {error.place}: "
                refuse(f"space.{key}", f"{inside}{error.problem}", error.remedy, value)
    ranges = [key for key, space in search.space.items() if not isinstance(space, Choice)]
    if search.sampler == "grid" and ranges:
        refuse("sampler", f"grid requires choices instead of a range for {', '.join(ranges)}", value="grid")


def trials_of(cell: Cell, grid: Grid, recipe: Recipe) -> int:
    """Returns the number of trials of a cell's search.

    It is that of the recipe, or with `fair_search` the same number for all searched cells of the suite.

    Raises:
        RecipeError: with `fair_search`, the search spaces of the suite have different sizes.
    """
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
        remedy = "\n  ".join(["make them equal:", *lines])
        place = f"fair_search.{cell.suite}"
        raise RecipeError("search spaces differ in size", file="params.yaml", place=place, remedy=remedy)
    return fair


def space_size(search: SearchSection) -> tuple[int, int]:
    """Returns the number of combinations of the discrete keys, and the number of continuous keys."""
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
    """Formats the result of `space_size`: "12 points times 1 continuous key"."""
    points, continuous = size
    return f"{points:,} points" + (
        f" times {continuous} continuous {'key' if continuous == 1 else 'keys'}" if continuous else ""
    )


def grid_points(search: SearchSection) -> list[Settings]:
    """Returns all combinations of choices in an order that depends on the sampler's seed. The space has no ranges."""
    choices = [space.choices for space in search.space.values() if isinstance(space, Choice)]
    points = [dict(zip(search.space, values, strict=True)) for values in itertools.product(*choices)]
    random.Random(search.sampler_seed).shuffle(points)
    return points
