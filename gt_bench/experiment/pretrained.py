"""Saved weights of a cell's best seed: load them as a model, or evaluate them again."""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from gt_bench.config.cell_recipe import limited, settings_of
from gt_bench.config.grid import Cell, Grid, load_grid
from gt_bench.experiment.cell import experiment_of
from gt_bench.experiment.run import Experiment
from gt_bench.experiment.setup import DATA
from gt_bench.records.run import WEIGHTS, RunRecord
from gt_bench.runtime.environment import Clock
from gt_bench.runtime.startup import prepare_process
from gt_bench.runtime.threads import computing_with
from gt_bench.store.run_store import Store, best_run
from gt_bench.store.weights import WeightsError, damaged, load_trained
from gt_bench.training.checkpoint import Checkpoint
from gt_bench.training.trainer import Run


def model_of(name: str, cell: str) -> nn.Module:
    """Loads the best seed of a cell as a model in evaluation mode (`gt_models.create_model(name, pretrained=cell)`).

    Args:
        name: name of the model.
        cell: a cell of the grid whose recipe uses this model.

    Raises:
        WeightsError: no run of the cell has saved weights, or the cell uses another model.
        RecipeError: the cell does not exist.
        DatasetError: its dataset is not available.
    """
    grid = load_grid()
    found, store = grid.find(cell), Store()
    recipe = limited(settings_of(found), grid, found)[0]
    if recipe.model.name != name:
        raise WeightsError(f"is a recipe of {recipe.model.name!r}, not of {name!r}", file=found.recipe_path, value=name)
    best = best_with_weights(experiment_of(found, recipe, grid, store, Path("data")), recipe.seeds)
    if best is None:
        remedy = f"`gt-bench train {found.cell}` saves those of the best seed"
        raise WeightsError("no run has saved weights", file=found.recipe_path, remedy=remedy)
    return load_trained(store.folder(best.digest))


def best_with_weights(experiment: Experiment, seeds: Iterable[int]) -> RunRecord | None:
    """Returns the record of the run with saved weights that is best on validation, or None."""
    store = experiment.store
    folders = [store.folder(experiment.digest(seed)) for seed in seeds]
    return best_run(
        [record for folder in folders if (folder / WEIGHTS).exists() and (record := store.get(folder.name))]
    )


def score_cell(cell: Cell, grid: Grid) -> bool:
    """Evaluates a cell's best seed again and prints each test metric next to the one in the record.

    Returns:
        Whether they agree; see `agree`.

    Raises:
        WeightsError: the cell has no run in the store, or its weights were not saved here.
    """
    recipe = limited(settings_of(cell), grid, cell)[0]
    experiment = experiment_of(cell, recipe, grid, Store(), DATA, prepare_process(grid.run))
    best = best_run([record for seed in recipe.seeds if (record := experiment.settled(seed))])
    if best is None:
        remedy = f"run `gt-bench train {cell.cell}` first"
        raise WeightsError("the store has no run of this cell", place=cell.cell, remedy=remedy)
    seed = best.run.seed
    now, recorded = score(experiment, seed)
    for name, value in recorded.items():
        print(f"{name}: {now[name]!r} now, {value!r} in the record of seed {seed}")
    return agree(now, recorded, recipe.processes)


def score(experiment: Experiment, seed: int) -> tuple[dict[str, float], dict[str, float]]:
    """Evaluates the saved weights of a seed on the test split.

    Returns:
        The test metrics computed now, and those in the record.

    Raises:
        WeightsError: the seed has no saved weights.
    """
    record, folder = experiment.settled(seed), experiment.store.folder(experiment.digest(seed))
    if record is None or not (folder / WEIGHTS).exists():
        remedy = "only the weights of a cell's best seed are saved, on the machine that trained it: train the cell here"
        raise WeightsError("file not found", file=folder / WEIGHTS, remedy=remedy)
    try:
        weights = load_file(folder / WEIGHTS)
    except SafetensorError as error:
        raise damaged(folder / WEIGHTS, error) from None
    content = record.run
    run = Run(
        experiment.recipe,
        experiment.task,
        experiment.loader(seed),
        experiment.build,
        seed=seed,
        meter=Clock(),
        checkpoint=Checkpoint(None),
    )
    with computing_with(experiment.recipe.threads):
        outcome = run.test_weights(weights, content.epochs, content.best_epoch)
    return outcome.test_metrics, content.test_metrics


def agree(now: Mapping[str, float], recorded: Mapping[str, float], processes: int) -> bool:
    """Returns whether two evaluations agree.

    Args:
        now: test metrics computed now, in one process.
        recorded: test metrics of the record.
        processes: number of processes that computed the record. Several add in another order, so a relative difference
            of 1e-4 is allowed. Otherwise the metrics must be equal to the bit.
    """
    if processes == 1:
        return now == recorded
    return now.keys() == recorded.keys() and all(math.isclose(now[name], recorded[name], rel_tol=1e-4) for name in now)
