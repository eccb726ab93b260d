"""Trained models for findings that look into one: the run of a cell whose weights the store keeps."""

from pathlib import Path

from torch import nn

from gt_bench.config.grid import RunSettings
from gt_bench.config.recipe import load_recipe
from gt_bench.experiment.pretrained import best_kept
from gt_bench.experiment.run import STORE, Experiment
from gt_bench.schemas import Record
from gt_bench.store.run_store import Store
from gt_bench.store.weights import load_trained
from gt_bench.training.pretrained_init import FILE
from gt_bench.utils.errors import UserError
from gt_bench.utils.paths import INSTALLED, SUITES, recipe_file


class NoRun(UserError, RuntimeError):
    """The run that a finding looks into is not here; the message says which, and the command that computes it."""


def experiment(cell: str, data: Path, store: Path | None = None) -> Experiment:
    """The cell `suite/dataset/model` as its recipe says, with nothing cut. `store`: STORE where left out. Raises NoRun where its dataset is not packed."""
    suite, dataset, model = cell.split("/")
    path = recipe_file(f"{suite}/{dataset}/{model}", INSTALLED / SUITES)
    if not (data / "packed" / dataset).is_dir():
        raise NoRun(f"needs {data / 'packed' / dataset}: `dvc repro download@{dataset}`")
    return Experiment(load_recipe(path), str(path), dataset, RunSettings(device="cpu"), Store(store or STORE), data)


def kept(run: Experiment, cell: str) -> tuple[Record, nn.Module]:
    """The record of the cell's run that is best on validation among those whose weights are kept, and its model in evaluation mode and float64. Raises NoRun."""
    record = best_kept(run, run.recipe.seeds)
    if record is None:
        raise NoRun(
            f"needs the weights of a run of {cell}, complete and by the present code: {training(cell)} keeps those of the best seed"
        )
    return record, load_trained(run.store.folder(record["digest"]) / FILE).double()


def training(cell: str) -> str:
    """The command that trains the cell."""
    return f"`gt-bench train {cell}`"
