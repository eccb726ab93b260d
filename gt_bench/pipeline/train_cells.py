"""Train several cells in parallel, each in a process of its own. Cells that fail are reported; the others continue.

The longest cells start first. Cores for which no cell is left compute seeds of running cells ahead (order.py).
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from gt_bench.config.cell_recipe import limited, settings_of
from gt_bench.config.grid import Cell, Grid
from gt_bench.config.option_text import OptionError
from gt_bench.config.schema import RecipeError
from gt_bench.experiment.cell import experiment_of
from gt_bench.forecasting.counted import counted_costs
from gt_bench.pipeline.train import train_cell
from gt_bench.runtime.resources import at_once, cores
from gt_bench.runtime.startup import prepare_process
from gt_bench.runtime.worker_pool import Lost, TaskResult, WorkerPool
from gt_bench.scheduling.order import WorkItem, tasks_of, threads_of
from gt_bench.store.run_store import Store
from gt_bench.utils.errors import UserError


def train_cells(cells: Sequence[Cell], grid: Grid, jobs: int = 1) -> list[str]:
    """Train several cells in parallel; a cell that starts from the weights of another comes after it.

    Args:
        cells: to train.
        grid: the grid.
        jobs: how many cells train at once.

    Returns:
        The names of the cells that failed, after their errors were printed.

    Raises:
        OptionError: `jobs` is below 1.
    """
    if jobs < 1:
        raise OptionError("expected 1 or more, the number of cells that train at once", place="--jobs", value=jobs)
    cells = sorted(cells, key=lambda cell: cell.after is not None and cell.after in {c.cell for c in cells})
    most = _most(cells, grid, jobs)
    failed: list[str] = []

    def report(cell: str, error: Exception) -> None:
        failed.append(cell)
        print(f"error: {cell}: {error}", file=sys.stderr, flush=True)

    if sys.platform != "linux":  # forks are not safe: train the cells one after the other in this process
        for cell in cells:
            try:
                train_cell(cell, grid)
            except UserError as error:
                report(cell.cell, error)
        return failed

    ahead = grid.run.parallel == "auto" and most > 1 and "tensorboard" not in grid.run.trackers  # it is fed only live
    if grid.run.parallel == "auto":  # free cores take seeds of running cells
        grid = grid.model_copy(
            update={"run": grid.run.model_copy(update={"parallel": 1 if ahead else cores() // most})}
        )
    by_name = {cell.cell: cell for cell in cells}
    costs = {name: cost.seconds for name, cost in counted_costs(grid).items() if cost.seconds is not None}
    tasks = tasks_of({cell.cell: _seeds(cell, grid) for cell in cells}, costs)
    tasks = [task for task in tasks if ahead or task.seed is None]
    begun: set[WorkItem] = set()
    finished: set[str] = set()

    def work(task: WorkItem, tell: Callable[..., None]) -> None:
        def notice(*_: object) -> None:
            if task not in begun:  # once per process
                begun.add(task)
                tell()

        if task.seed is None:
            train_cell(by_name[task.cell], grid, bar=most == 1, notice=notice)
        else:
            _compute_ahead(by_name[task.cell], grid, task.seed, notice)

    def on_done(task: WorkItem, result: TaskResult) -> None:
        begun.discard(task)
        if task.seed is not None:  # whatever happened, the process of the cell finds the record or computes it
            return
        finished.add(task.cell)
        if not result.ok:
            lost = Lost(f"{result.died}; its finished seeds are saved, run the command again")
            report(task.cell, result.error or lost)
            if result.error is not None and not isinstance(result.error, UserError):
                print("\n".join(result.error.__notes__), file=sys.stderr, flush=True)

    with WorkerPool(work, most, fresh=True) as pool:

        def is_ready(task: WorkItem, unfinished: list[WorkItem]) -> bool:
            if task.seed is not None:
                return WorkItem(task.cell) in pool.tasks
            running = sum(other.seed is None for other in pool.tasks)
            return running < jobs and WorkItem(by_name[task.cell].after or "") not in unfinished

        # Another cell starts only after all running cells have finished an epoch: their memory is known then.
        pool.run(
            tasks,
            on_message=lambda task: begun.add(task),
            may_add=lambda _: begun.issuperset(pool.tasks),
            is_ready=is_ready,
            on_done=on_done,
            is_needed=lambda task: task.seed is None or task.cell not in finished,
        )
    return failed


def _most(cells: Sequence[Cell], grid: Grid, jobs: int) -> int:
    """Return how many processes run at once; with run.parallel: auto on the CPU, one per core."""
    import torch

    gpu = grid.run.device != "cpu" and torch.cuda.device_count() > 0
    if jobs == 1 or gpu or grid.run.parallel != "auto" or "tensorboard" in grid.run.trackers:
        return at_once(jobs, len(cells))
    threads = max((threads_of(cell) for cell in cells), default=1)
    return max(at_once(jobs, len(cells)), at_once("auto", 10**6, threads))


def _seeds(cell: Cell, grid: Grid) -> list[int]:
    """Return the seeds of a cell; none if its recipe is invalid, which the training of the cell reports."""
    try:
        return limited(settings_of(cell), grid, cell)[0].seeds
    except RecipeError:
        return []


def _compute_ahead(cell: Cell, grid: Grid, seed: int, notice: Callable[..., None]) -> None:
    """Compute a seed of a cell that another process trains, unless a process has begun it."""
    recipe, _cuts = limited(settings_of(cell), grid, cell)
    store = Store()
    experiment = experiment_of(cell, recipe, grid, store, Path("data"), prepare_process(grid.run))
    if not store.is_locked(experiment.digest(seed)):
        experiment.run(seed, on_epoch=notice, shared=True)
