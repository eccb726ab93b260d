"""Train several cells in parallel, each in a process of its own. Cells that fail are reported; the others continue."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from gt_bench.config.grid import Cell, Grid
from gt_bench.config.schema import RecipeError
from gt_bench.pipeline.train import train_cell
from gt_bench.runtime.resources import at_once, cores
from gt_bench.runtime.worker_pool import Lost, TaskResult, WorkerPool
from gt_bench.utils.errors import UserError


def train_cells(cells: Sequence[Cell], grid: Grid, jobs: int = 1, **folders: Path) -> list[str]:
    """Train several cells in parallel; a cell that starts from the weights of another comes after it.

    Args:
        cells: to train.
        grid: the grid.
        jobs: how many cells train at once.
        **folders: as for `train_cell`.

    Returns:
        The names of the cells that failed, after their errors were printed.

    Raises:
        RecipeError: `jobs` is below 1.
    """
    if jobs < 1:
        raise RecipeError(f"--jobs {jobs}: expected 1 or more, the number of cells that train at once")
    cells = sorted(cells, key=lambda cell: cell.after is not None and cell.after in {c.cell for c in cells})
    most = at_once(jobs, len(cells))
    failed: list[str] = []

    def report(cell: str, error: Exception) -> None:
        failed.append(cell)
        print(f"error: {cell}: {error}", file=sys.stderr, flush=True)

    if sys.platform != "linux":  # forks are not safe: train the cells one after the other in this process
        for cell in cells:
            try:
                train_cell(cell, grid, **folders)
            except UserError as error:
                report(cell.cell, error)
        return failed
    import gt_bench.experiment.run  # noqa: F401 - imported once, before the forks

    if grid.run.parallel == "auto":  # the cells share the cores; the seeds of a cell get the rest
        grid = grid.model_copy(update={"run": grid.run.model_copy(update={"parallel": max(1, cores() // most)})})
    by_name = {cell.cell: cell for cell in cells}
    begun: set[str] = set()

    def work(name: str, tell: Callable[..., None]) -> None:
        def notice() -> None:
            if name not in begun:  # once per process of a cell
                begun.add(name)
                tell()

        train_cell(by_name[name], grid, bar=most == 1, notice=notice, **folders)

    def on_done(name: str, result: TaskResult) -> None:
        begun.discard(name)
        if not result.ok:
            report(name, result.error or Lost(f"{result.died}; its finished seeds are saved, run the command again"))
            if result.error is not None and not isinstance(result.error, UserError):
                print("\n".join(result.error.__notes__), file=sys.stderr, flush=True)

    with WorkerPool(work, most, fresh=True) as pool:
        # Another cell starts only after all running cells have finished an epoch: their memory is known then.
        pool.run(
            list(by_name),
            on_message=lambda name: begun.add(name),
            may_add=lambda _: begun.issuperset(pool.tasks),
            is_ready=lambda name, unfinished: by_name[name].after not in unfinished,
            on_done=on_done,
        )
    return failed
