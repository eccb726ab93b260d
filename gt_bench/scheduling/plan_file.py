"""Plan files: which runs to compute, in which order.

    runs:
    - cells: [edge-transformer/texas/edge-transformer, "ppgt/zinc/*"]    # suites, cells, or a pattern of cells
    - {cells: [polynormer], seeds: 3}       # limits as in params.yaml: seeds, trials, epochs, pairs
    - {cells: [polynormer]}                 # then all runs

All runs of an entry come before those of the next entry; within an entry the planner decides the order (planner.py).
Results of limited cells are shown as `reduced`.
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
    """Cells whose runs come before those of the next entry, and their limits."""

    cells: tuple[Cell, ...]
    limits: Limits = field(default_factory=Limits)


def limited_grid(grid: Grid, cell: Cell, limits: Limits) -> Grid:
    """Return the grid with `limits` for `cell`; limits that are not given remain as in params.yaml."""
    merged = Limits(**(grid.limits_of(cell).model_dump(exclude_none=True) | limits.model_dump(exclude_none=True)))
    return grid.model_copy(update={"limits": {**grid.limits, cell.cell: merged}})


def entries_of(names: Sequence[str], plan: Path | None, grid: Grid) -> list[Entry]:
    """Return the entries of a command line: those of the plan, or one entry with the named suites and cells.

    Args:
        names: of suites and cells; all if empty.
        plan: path of a plan file.
        grid: the grid.

    Raises:
        RecipeError: both are given, or one of them is invalid.
    """
    if names and plan is not None:
        raise RecipeError(f"give either names or --plan {plan}, not both: the plan names the cells")
    return read_plan(plan, grid) if plan is not None else [Entry(tuple(grid.chosen(names)))]


def read_plan(path: Path, grid: Grid) -> list[Entry]:
    """Return the entries of a plan file.

    Raises:
        RecipeError: the file is missing or invalid, or a suite, cell or pattern matches nothing.
    """
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
    raise RecipeError(f"no cell matches {name!r}; `gt-bench list` shows all")
