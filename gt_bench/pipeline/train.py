"""Stage train@cell: train all seeds of one cell that are not stored yet, in parallel if the machine allows it.

    python -m stages.train suite/dataset/model

It writes results/suite/dataset/model.json, which names the records, and metrics/suite/dataset/model.json for DVC. If
the dataset is unavailable, the status is "not run: data".
"""

from collections.abc import Callable
from pathlib import Path

from gt_bench.config.grid import Cell, Grid
from gt_bench.experiment.cell import cell_stage, experiment_of, limited, settings_of
from gt_bench.experiment.status import new_result
from gt_bench.experiment.train_seeds import Watch, seed_workers, train_seeds
from gt_bench.schemas import Result
from gt_bench.search.artifacts import search_summary
from gt_bench.tracking.trackers import check_trackers, open_trackers
from gt_bench.utils.format import print_text

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
) -> Result:
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
    from gt_bench.data.packed import DatasetUnavailable
    from gt_bench.data.prepare import open_unchanged
    from gt_bench.leaderboard.dvc_metrics import write_training
    from gt_bench.runtime.progress import Progress
    from gt_bench.store.attempts import remember, superseded
    from gt_bench.store.run_store import Store
    from gt_bench.utils.io import write_json
    from gt_bench.utils.tempfiles import sweep

    check_trackers(grid.run)
    recipe, cuts = limited(settings_of(cell), grid, cell)
    result = new_result(cell, recipe, cuts)
    result["search"] = search_summary(cell) if cell.settings == "tuned" else None
    path = results / f"{cell.cell}.json"
    sweep(path.parent, *([(metrics / cell.cell).parent] if metrics else []))
    try:
        open_unchanged(DATA / "packed" / cell.dataset)
    except DatasetUnavailable as error:
        result |= {"status": "not run: data", "reason": str(error), "seeds": []}
        if metrics:
            write_training(result, [], metrics)
        write_json(path, result)
        print_text(f"{cell.cell}: not run: data. {error}", flush=True)
        return result

    from gt_bench.runtime.startup import prepare_process
    from gt_bench.store.weights import keep_best

    allocator = prepare_process(grid.run)  # with one thread: `Experiment.run` uses the number of the recipe

    experiment = experiment_of(cell, recipe, grid, Store(store_root), DATA, allocator)
    experiment.check_metric(recipe.seeds)
    result |= {"metric": experiment.task.metric, "direction": experiment.task.direction}
    sweep(*(experiment.store.folder(experiment.digest(seed)) for seed in recipe.seeds))
    header = experiment.header
    if header.derived:
        result["reduced"] = [*cuts, f"derived data: {header.derived}"]
    if header.pinned_remark:
        result["notes"] = [header.pinned_remark]
    described = {
        "name": header.name,
        "digest": experiment.packed.digest,
        "task": header.task,
        "metric": header.metric,
        "statistics": header.statistics,
    }
    with seed_workers(experiment, grid.run.parallel) as pool:
        trackers = open_trackers(cell, grid.run, result["recipe"], described)
        with Progress(cell.cell, len(recipe.seeds) * recipe.reports, bar) as progress:
            records = train_seeds(experiment, Watch(progress, recipe, trackers, notice), pool)
    result["runs"] = [r["digest"] for r in records]
    failed = [r["deterministic"] for r in records if r["deterministic"]["status"] != "ok"]
    if failed:
        result |= {"status": failed[0]["status"], "reason": failed[0]["error"]}
    if metrics:
        write_training(result, records, metrics)
    write_json(path, result)
    remember(result, experiment.store)
    keep_best(records, experiment.store)
    if trackers:
        trackers.close(result, records, superseded(result, experiment.store), experiment.store.root)
    return result


def main() -> int:
    """Run the stage and return its exit status."""
    return cell_stage(__doc__, train_cell)
