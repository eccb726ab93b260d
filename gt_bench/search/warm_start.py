"""First trials of a search: the recipe's own values, and those of shipped records and neighbouring cells."""

import inspect
from collections.abc import Iterator
from typing import NamedTuple

from gt_bench.config.grid import Cell, Grid
from gt_bench.config.recipe import Recipe, load_recipe
from gt_bench.config.schema import RecipeError, validated
from gt_bench.config.search_section import SearchSection, in_space
from gt_bench.store.run_store import StoreError
from gt_bench.store.shipped_files import file_of, read
from gt_bench.utils.json_types import Settings
from gt_bench.utils.nested import flat
from gt_models.registry import model_info


class Start(NamedTuple):
    """A first trial.

    Attributes:
        origin: where its values come from.
        values: {dotted key: value} for all keys of the space.
    """

    origin: str
    values: Settings


class Starts(NamedTuple):
    """First trials of a search, in their order, and one line for each source that has none."""

    found: list[Start]
    left_out: list[str]


def starts_of(recipe: Recipe, cell: Cell, grid: Grid) -> Starts:
    """Collects the first trials that `warm_start` of a search names. Only files of the suites are read.

    Equal values are tried once. A source with a value outside the space is left out.

    Args:
        recipe: recipe with the search.
        cell: its cell.
        grid: the grid, in which cells with the same model are looked up.
    """
    starts: list[Start] = []
    left_out: list[str] = []
    for origin, values in _sources(recipe, cell, grid, left_out):
        fitted: Settings = {}
        for key, space in recipe.searched.space.items():
            value = values.get(key)
            if key not in values or (matched := in_space(space, value)) is None:
                shown = f"{key} is {value!r:.60}, outside the space" if key in values else f"it has no {key}"
                left_out.append(f"{origin}: left out: {shown}")
                break
            fitted[key] = matched[0]
        else:
            if fitted not in [start.values for start in starts]:
                starts.append(Start(origin, fitted))
    return Starts(starts, left_out)


def _sources(recipe: Recipe, cell: Cell, grid: Grid, left_out: list[str]) -> Iterator[tuple[str, dict[str, object]]]:
    """Yields (origin, values of all keys of a recipe)."""
    wanted, model = recipe.searched.warm_start, recipe.model.name
    if "defaults" in wanted:
        yield f"defaults: {cell.cell}", values_of(recipe)
    for name in ("records", "neighbours"):
        if name not in wanted:
            continue
        for other in grid.cells.values():
            if (other.dataset == cell.dataset) != (name == "records"):
                continue
            try:
                theirs = load_recipe(other.recipe_path)
                path = file_of(other.cell)
                if theirs.model.name != model:
                    continue
                if path.exists():
                    run = read(path).records[0]
                    content = run.run.recipe | {"seeds": [0]}
                    tuned = validated(Recipe, content, str(path))
                    yield f"{name}: {other.cell}, shipped record", values_of(tuned)
                elif name == "neighbours" and theirs.search is None:
                    yield f"{name}: {other.cell}, recipe", values_of(theirs)
            except (RecipeError, StoreError, IndexError) as error:
                left_out.append(f"{name}: {other.cell}: left out: {str(error).splitlines()[0]}")


def values_of(recipe: Recipe) -> dict[str, object]:
    """Returns the values of all keys of a recipe, including defaults of the schema and of the model's constructor."""
    defaults = {
        f"model.{name}": parameter.default
        for name, parameter in inspect.signature(model_info(recipe.model.name).cls).parameters.items()
        if parameter.default is not inspect.Parameter.empty
    }
    given = flat(recipe.model_dump(mode="json", exclude={"search", "origin", "published"}))
    return defaults | {key: value for key, value in given if value != {}}


def lines_of(starts: Starts, search: SearchSection) -> list[str]:
    """Returns what a search prints about its first trials."""
    lines = [
        f"warm start: trial {number} has the values of {start.origin}" for number, start in enumerate(starts.found)
    ]
    if not starts.found:
        lines.append(f"warm start: no values found by {', '.join(search.warm_start)}: all trials are sampled")
    return [*lines, *(f"warm start: {line}" for line in starts.left_out)]
