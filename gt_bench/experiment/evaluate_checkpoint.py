"""The kept weights of a cell's best seed, tested again and held against its record."""

import math
from collections.abc import Mapping

from safetensors import SafetensorError
from safetensors.torch import load_file

from gt_bench.config.grid import Cell, Grid
from gt_bench.experiment.cell import experiment_of, limited, settings_of
from gt_bench.experiment.run import DATA, Experiment, prepare_process
from gt_bench.runtime.environment import Clock
from gt_bench.runtime.threads import computing_with
from gt_bench.store.best_run import best_run
from gt_bench.store.run_store import Store
from gt_bench.store.weights import NotKept, damaged
from gt_bench.training.checkpoint import Checkpoint
from gt_bench.training.pretrained_init import FILE
from gt_bench.training.trainer import Run


def score_cell(cell: Cell, grid: Grid) -> bool:
    """Prints each test metric as it is now and in the record; whether they agree. Raises NotKept."""
    recipe = limited(settings_of(cell), grid, cell)[0]
    experiment = experiment_of(cell, recipe, grid, Store(), DATA, prepare_process(grid.run))
    best = best_run([record for seed in recipe.seeds if (record := experiment.settled(seed))])
    if best is None:
        raise NotKept(f"{cell.cell}: no seed of it is in the store; `gt-bench train {cell.cell}` comes first")
    seed = best["deterministic"]["seed"]
    now, then = score(experiment, seed)
    for name, value in then.items():
        print(f"{name}: {now[name]!r} now, {value!r} in the record of seed {seed}")
    return agree(now, then, recipe.processes)


def score(experiment: Experiment, seed: int) -> tuple[dict[str, float], dict[str, float]]:
    """(test metrics of the kept weights of a seed, computed now; those in its record). Raises NotKept where no weights are kept."""
    record, folder = experiment.settled(seed), experiment.store.folder(experiment.digest(seed))
    if record is None or not (folder / FILE).exists():
        raise NotKept(
            f"{folder / FILE}: there is no such file: only the weights of a cell's best seed are kept, where it was trained"
        )
    try:
        kept = load_file(folder / FILE)
    except SafetensorError as error:
        raise NotKept(damaged(folder / FILE, error)) from None
    run = record["deterministic"]
    again = Run(
        experiment.recipe,
        experiment.task,
        experiment.loader(seed),
        experiment.build,
        seed=seed,
        meter=Clock(),
        checkpoint=Checkpoint(None),
    )
    with computing_with(experiment.recipe.threads):
        again._begin()
        again.best = {"model": kept}
        again.outcome.curves, again.outcome.best_epoch = run["epochs"], run["best_epoch"]
        again._test()
    return again.outcome.test_metrics, run["test_metrics"]


def agree(now: Mapping[str, float], recorded: Mapping[str, float], processes: int) -> bool:
    """Whether a score is that of the record: to the bit, but for rounding where several processes made the record, as one process scores."""
    if processes == 1:
        return now == recorded
    return now.keys() == recorded.keys() and all(math.isclose(now[name], recorded[name], rel_tol=1e-4) for name in now)
