"""Trained models for experiments: the run of a cell whose weights are stored."""

from pathlib import Path

from torch import nn

from gt_bench.config.params import RunSettings
from gt_bench.config.recipe import load_recipe
from gt_bench.experiment.pretrained import best_with_weights
from gt_bench.experiment.run import STORE, Experiment
from gt_bench.records.run import WEIGHTS, RunRecord
from gt_bench.store.run_store import Store
from gt_bench.store.weights import load_trained
from gt_bench.utils.errors import UserError
from gt_bench.utils.paths import INSTALLED, SUITES, recipe_file


class RunNotFound(UserError, RuntimeError):
    """The required run is not in the store; the message names it and the command that computes it."""


def experiment(cell: str, data: Path, store: Path | None = None) -> Experiment:
    """Returns the experiment of a cell by its full recipe.

    Args:
        cell: suite/dataset/model.
        data: folder that contains packed/.
        store: folder of the store.

    Raises:
        RunNotFound: the dataset is not packed.
    """
    suite, dataset, model = cell.split("/")
    path = recipe_file(f"{suite}/{dataset}/{model}", INSTALLED / SUITES)
    if not (data / "packed" / dataset).is_dir():
        remedy = f"run `dvc repro download@{dataset}`"
        raise RunNotFound("the dataset is not packed", file=data / "packed" / dataset, remedy=remedy)
    return Experiment(load_recipe(path), str(path), dataset, RunSettings(device="cpu"), Store(store or STORE), data)


def best_run(run: Experiment, cell: str) -> tuple[RunRecord, nn.Module]:
    """Returns the run of a cell that is best on validation among those with stored weights.

    Returns:
        (its record, its model in evaluation mode and float64).

    Raises:
        RunNotFound: there is no such run.
    """
    record = best_with_weights(run, run.recipe.seeds)
    if record is None:
        problem = f"needs the weights of a complete run of {cell} by the current code"
        raise RunNotFound(problem, value=cell, remedy=f"`gt-bench train {cell}` saves those of the best seed")
    return record, load_trained(run.store.folder(record.digest) / WEIGHTS).double()
