"""Cells side by side, each in a process of its own. One that cannot be trained is said and loses no other."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from gt_bench.config.grid import Cell, Grid
from gt_bench.config.schema import RecipeError
from gt_bench.pipeline.train import train_cell
from gt_bench.runtime.resources import at_once, cores
from gt_bench.runtime.worker_pool import Crew, Ending, Lost
from gt_bench.utils.errors import UserError


def train_cells(cells: Sequence[Cell], grid: Grid, jobs: int = 1, **folders: Path) -> list[str]:
    """Trains several cells, each in a process of its own, `jobs` at once; one that starts from another comes after it. Returns the cells that could not be trained, having
    said why: the others are. Raises RecipeError for no job."""
    if jobs < 1:
        raise RecipeError(f"--jobs {jobs}: give how many cells train at once, 1 or more")
    cells = sorted(cells, key=lambda cell: cell.after is not None and cell.after in {c.cell for c in cells})
    most = at_once(jobs, len(cells))
    lost: list[str] = []

    def say(cell: str, error: Exception) -> None:
        lost.append(cell)
        print(f"error: {cell}: {error}", file=sys.stderr, flush=True)

    if sys.platform != "linux":  # no sound forks: one after the other, here
        for cell in cells:
            try:
                train_cell(cell, grid, **folders)
            except UserError as error:
                say(cell.cell, error)
        return lost
    import gt_bench.experiment.run  # noqa: F401 (what is imported before the forks is imported once)

    if grid.run.parallel == "auto":  # the cores are shared; a cell's seeds have what is left
        grid = grid.model_copy(update={"run": grid.run.model_copy(update={"parallel": max(1, cores() // most)})})
    by_name = {cell.cell: cell for cell in cells}
    begun: set[str] = set()

    def work(name: str, tell: Callable[..., None]) -> None:
        def notice() -> None:
            if name not in begun:  # in the process of the cell: once
                begun.add(name)
                tell()

        train_cell(by_name[name], grid, bar=most == 1, notice=notice, **folders)

    def ended(name: str, ending: Ending) -> None:
        begun.discard(name)
        if not ending.ok:
            say(name, ending.error or Lost(f"{ending.died}; its finished seeds are kept, the same command goes on"))
            if ending.error is not None and not isinstance(ending.error, UserError):
                print("\n".join(ending.error.__notes__), file=sys.stderr, flush=True)

    with Crew(work, most, fresh=True) as crew:
        # once the present cells have had an epoch, what they take is known
        crew.run(
            list(by_name),
            heard=lambda name: begun.add(name),
            more=lambda _: begun.issuperset(crew.tasks),
            ready=lambda name, unfinished: by_name[name].after not in unfinished,
            ended=ended,
        )
    return lost
