"""A plan file: what is worth its hours, entry after entry.

    runs:
    - cells: [edge-transformer/texas/edge-transformer, "ppgt/zinc/*"]    # suites, cells, or a pattern of cells
    - {cells: [polynormer], seeds: 3}       # cuts as in params.yaml: seeds, trials, epochs, pairs
    - {cells: [polynormer]}                 # and then to the end

Every run of an entry comes before those of the next; within one the planner orders (see planner.py). What an entry cuts is shown as `reduced`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from pydantic import Field

from gt_bench.config.grid import Cell, Grid, Limits
from gt_bench.config.schema import RecipeError, Strict, read_yaml, validated


class _Entry(Limits):
    cells: list[str] = Field(min_length=1)


class _File(Strict):
    runs: list[_Entry] = Field(min_length=1)


@dataclass(frozen=True)
class Entry:
    """Cells whose runs come before those of the next entry, and what is cut of them."""

    cells: tuple[Cell, ...]
    limits: Limits = field(default_factory=Limits)


def limited_grid(grid: Grid, cell: Cell, limits: Limits) -> Grid:
    """The grid in which `cell` is cut by `limits`, and where they say nothing, as params.yaml says."""
    merged = Limits(**(grid.limits_of(cell).model_dump(exclude_none=True) | limits.model_dump(exclude_none=True)))
    return grid.model_copy(update={"limits": {**grid.limits, cell.cell: merged}})


def entries_of(names: Sequence[str], plan: Path | None, grid: Grid) -> list[Entry]:
    """What a command line asks for: the plan, or one entry of the named suites and cells, all where none is named. Raises RecipeError."""
    if names and plan is not None:
        raise RecipeError(f"give names or --plan {plan}, not both: the plan says which cells")
    return read_plan(plan, grid) if plan is not None else [Entry(tuple(grid.chosen(names)))]


def read_plan(path: Path, grid: Grid) -> list[Entry]:
    """Raises RecipeError for a file that is not there or not of this form, and for a suite, cell or pattern that names nothing."""
    file: _File = validated(_File, read_yaml(path), str(path))
    entries = []
    for number, entry in enumerate(file.runs, 1):
        found: dict[str, Cell] = {}
        for name in entry.cells:
            try:
                found |= {cell.key: cell for cell in _named(name, grid)}
            except RecipeError as error:
                raise RecipeError(f"{path}: entry {number}: {error}") from None
        entries.append(Entry(tuple(found.values()), Limits(**entry.model_dump(exclude={"cells"}))))
    return entries


def _named(name: str, grid: Grid) -> list[Cell]:
    if not set(name) & set("*?["):
        return grid.chosen([name])
    if found := [cell for cell in grid.cells.values() if fnmatchcase(cell.cell, name)]:
        return found
    raise RecipeError(f"no cell is named like {name!r}; `gt-bench list` shows all")
