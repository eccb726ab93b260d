"""Stage train@cell: train all seeds of one cell that are not stored yet, in parallel if the machine allows it.

    python -m stages.train suite/dataset/model

It writes results/suite/dataset/model.json, which names the records, and metrics/suite/dataset/model.json for DVC. If
the dataset is unavailable, the status is "not run: data".
"""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from gt_bench.config.grid import Cell, Grid
from gt_bench.experiment.run import Experiment
from gt_bench.experiment.train_cell import train
from gt_bench.experiment.train_seeds import Watch
from gt_bench.leaderboard.dvc_metrics import write_training
from gt_bench.pipeline.stage import cell_stage
from gt_bench.records.cell import CellResult
from gt_bench.records.events import CellDone
from gt_bench.records.state import CellStatus
from gt_bench.runtime.progress import Progress
from gt_bench.search.artifacts import search_summary
from gt_bench.store.attempts import remember, superseded
from gt_bench.store.run_store import Store
from gt_bench.store.weights import keep_best
from gt_bench.tracking.trackers import Trackers, check_trackers, open_trackers
from gt_bench.utils.format import print_text
from gt_bench.utils.io import write_json
from gt_bench.utils.tempfiles import sweep

DATA = Path("data")


def train_cell(
    cell: Cell,
    grid: Grid,
    store_root: Path = Path("store"),
    results: Path = Path("results"),
    metrics: Path | None = Path("metrics"),
    *,
    bar: bool = True,
    notice: Callable[[], None] = lambda: None,
) -> CellResult:
    """Train the seeds that are not stored yet, and write the result of the cell.

    Args:
        cell: to train.
        grid: the grid; seeds run in parallel as its `run.parallel` and the machine allow.
        store_root: folder of the store.
        results: folder of results.
        metrics: folder of metrics for DVC; None if DVC does not know the cell.
        bar: False to print plain lines instead of a progress bar.
        notice: called after each epoch.

    Returns:
        The result.

    Raises:
        RecipeError: the recipe is invalid for this cell, or a logger of `run.tracking` is not installed.
        Lost: processes of seeds died. It is raised after the other seeds have finished.
    """
    check_trackers(grid.run)
    store, path = Store(store_root), results / f"{cell.cell}.json"
    sweep(path.parent, *([(metrics / cell.cell).parent] if metrics else []))
    trackers: list[Trackers] = []

    @contextlib.contextmanager
    def watching(experiment: Experiment, result: CellResult) -> Iterator[Watch]:
        recipe, packed = experiment.recipe, experiment.packed
        opened = open_trackers(cell, grid.run, result.recipe, {"name": packed.header.name, "digest": packed.digest})
        trackers.extend([opened] if opened else [])
        with Progress(cell.cell, len(recipe.seeds) * recipe.reports, bar) as progress:
            yield Watch(progress, recipe, opened, notice)

    def write_metric(done: CellDone) -> None:
        if metrics:
            write_training(done, metrics)

    def write_result(done: CellDone) -> None:
        if done.result.status == CellStatus.NO_DATA:
            print_text(f"{cell.cell}: not run: data. {done.result.reason}", flush=True)
        remember(done.result, store)
        keep_best(done.records, store)
        write_json(path, done.result.to_disk())  # last: `gt-bench work` does not train a cell with a result again

    def track(done: CellDone) -> None:
        for one in trackers:
            one.close(*done, superseded(done.result, store), store.root)

    done = train(cell, grid, store, DATA, watching)
    if cell.settings == "tuned":
        done = done._replace(result=done.result.model_copy(update={"search": search_summary(cell)}))
    for subscriber in (write_metric, write_result, track):
        subscriber(done)
    return done.result


def main() -> int:
    """Run the stage and return its exit status."""
    return cell_stage(__doc__, train_cell)
