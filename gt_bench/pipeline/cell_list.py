"""The list of cells: file of settings, number of seeds in the store, and state."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypedDict

from gt_bench.config.grid import Cell, Grid
from gt_bench.config.recipe import TRIED
from gt_bench.config.schema import RecipeError
from gt_bench.experiment.status import stored_seeds
from gt_bench.store.record_checks import missing_records, stored_problem
from gt_bench.store.run_store import Store, StoreError
from gt_bench.store.shipped_files import file_of, read_result
from gt_bench.utils.format import print_text


class Listed(TypedDict):
    """A line of the list.

    Attributes:
        cell: suite/dataset/row.
        settings: file of its settings.
        seeds: number of seeds in the store, of those in the recipe.
        state: status of the result; if there is none, `begun`, `shipped` or `not run`.
    """

    cell: str
    settings: str
    seeds: str
    state: str


def listing(cells: Iterable[Cell], grid: Grid) -> tuple[list[Listed], list[str]]:
    """Return a line for each cell, and what could not be read."""
    found: list[Listed] = []
    problems: list[str] = []
    store = Store()
    for cell in cells:
        seeds, state = "?", "unreadable"
        try:
            path = Path("results", f"{cell.cell}.json")
            result = read_result(path, cell.cell)
            if cell.suite == TRIED and result:  # each `try` writes its recipe again, with its result
                runs, asked = (
                    [d for d in result.runs if (store.folder(d) / "record.json").exists()],
                    len(result.seeds),
                )
            else:
                runs, asked = stored_seeds(cell, grid)
            without = "begun" if runs else "shipped" if file_of(cell.cell).exists() else "not run"
            state = result.status if result else without
            damaged = [problem for digest in runs for problem in stored_problem(store, digest)[:1]]
            seeds = f"{len(runs) - len(damaged)}/{asked}"
            damaged = [f"{cell.cell}: {problem}" for problem in damaged]
            damaged += missing_records(result, path, store) if result else []
            problems += damaged
            state = "damaged" if damaged else state
        except (StoreError, RecipeError) as error:
            problems.append(str(error))
        found.append({"cell": cell.cell, "settings": str(cell.settings_path), "seeds": seeds, "state": state})
    return found, problems


def show_listing(found: Sequence[Listed], problems: Sequence[str]) -> None:
    """Print the list, and what could not be read below it."""
    from gt_bench.utils.terminal import print_table

    texts = [[one["cell"], one["settings"], one["seeds"], one["state"]] for one in found]
    print_table(("cell", "settings", "seeds", "state"), texts, wrapped=("state",), always=("seeds", "state"))
    if any(one["cell"].startswith(f"{TRIED}/") for one in found):
        print_text(f"to remove a cell of {TRIED}: rm CELL.yaml results/CELL.json")
    for problem in problems:
        print_text(problem)
