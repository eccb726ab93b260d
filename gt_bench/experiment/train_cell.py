"""Training of a cell: from its recipe to its result and its records."""

import contextlib
from collections.abc import Callable
from pathlib import Path

from gt_bench.config.cell_recipe import limited, settings_of
from gt_bench.config.grid import Cell, Grid
from gt_bench.data.packed import DatasetUnavailable
from gt_bench.data.prepare import open_unchanged
from gt_bench.experiment.cell import experiment_of
from gt_bench.experiment.run import Experiment
from gt_bench.experiment.status import new_result
from gt_bench.experiment.train_seeds import Watch, seed_workers, train_seeds
from gt_bench.records.cell import CellResult
from gt_bench.records.events import CellDone
from gt_bench.records.state import CellStatus
from gt_bench.runtime.resources import unbound
from gt_bench.runtime.startup import prepare_process
from gt_bench.store.run_store import Store
from gt_bench.utils.tempfiles import sweep

Watching = Callable[[Experiment, CellResult], contextlib.AbstractContextManager[Watch]]


def train(cell: Cell, grid: Grid, store: Store, data: Path, watching: Watching) -> CellDone:
    """Trains the seeds of a cell that are not stored yet.

    Args:
        cell: to train.
        grid: the grid; seeds run in parallel as its `run.parallel` and the machine allow.
        store: where records are stored and looked up.
        data: folder with packed/ and encodings/.
        watching: opens what displays and logs the runs. It is called after the processes of seeds have started, with
            the experiment and the result so far.

    Returns:
        The result and its records. If the dataset is unavailable, the status is "not run: data" and there are none.

    Raises:
        RecipeError: the recipe is invalid for this cell.
        Lost: processes of seeds died. It is raised after the other seeds have finished.
    """
    recipe, cuts = limited(settings_of(cell), grid, cell)
    result = new_result(cell, recipe, cuts)
    try:
        open_unchanged(data / "packed" / cell.dataset)
    except DatasetUnavailable as error:
        missing = {"status": CellStatus.NO_DATA, "reason": str(error), "seeds": []}
        return CellDone(result.model_copy(update=missing), [])
    allocator = prepare_process(grid.run)  # with one thread: `Experiment.run` uses the number of the recipe
    experiment = experiment_of(cell, recipe, grid, store, data, allocator)
    experiment.check_metric(recipe.seeds)
    sweep(*(store.folder(experiment.digest(seed)) for seed in recipe.seeds))
    try:
        with seed_workers(experiment, grid.run.parallel) as pool, watching(experiment, result) as watch:
            records = train_seeds(experiment, watch, pool)
    finally:
        unbound()
    header = experiment.header
    failed = next((record.run for record in records if record.run.status != "ok"), None)
    found: dict[str, object] = {
        "metric": experiment.task.metric,
        "direction": experiment.task.direction,
        "runs": [record.digest for record in records],
        "reduced": [*cuts, *([f"derived data: {header.derived}"] if header.derived else [])],
    }
    found |= {"pinned": header.pinned} if header.pinned else {}
    found |= {"status": failed.status, "reason": failed.error} if failed else {}
    return CellDone(result.model_copy(update=found), records)
