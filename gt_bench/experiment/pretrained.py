"""Models with the weights of a run that the store keeps (`gt_models.create_model(name, pretrained=cell)`)."""

from collections.abc import Iterable
from pathlib import Path

from torch import nn

from gt_bench.config.grid import load_grid
from gt_bench.experiment.cell import experiment_of, limited, settings_of
from gt_bench.experiment.run import Experiment
from gt_bench.schemas import Record
from gt_bench.store.best_run import best_run
from gt_bench.store.run_store import Store
from gt_bench.store.weights import load_trained
from gt_bench.training.pretrained_init import FILE
from gt_bench.utils.errors import UserError


class NoWeights(UserError, ValueError):
    """A cell that kept no weights; the message says how they are had."""


def model_of(name: str, cell: str) -> nn.Module:
    """Model `name` as the recipe of `cell` builds it, in evaluation mode, with the weights of its kept run that is best on validation.

    Raises NoWeights where no run of the cell kept any, or it is of another model; RecipeError and DatasetError where cell or data are not
    here.
    """
    grid = load_grid()
    found, store = grid.find(cell), Store()
    recipe = limited(settings_of(found), grid, found)[0]
    if recipe.model.name != name:
        raise NoWeights(f"{found.recipe_path}: is a recipe of {recipe.model.name!r}, not of {name!r}")
    best = best_kept(experiment_of(found, recipe, grid, store, Path("data")), recipe.seeds)
    if best is None:
        raise NoWeights(
            f"{found.recipe_path}: no run of it is here with its weights: `gt-bench train {found.cell}` keeps those of the best seed"
        )
    return load_trained(store.folder(best["digest"]))


def best_kept(experiment: Experiment, seeds: Iterable[int]) -> Record | None:
    """Of the runs with these seeds whose weights are kept, the one that is best on validation."""
    store = experiment.store
    folders = [store.folder(experiment.digest(seed)) for seed in seeds]
    return best_run([record for folder in folders if (folder / FILE).exists() and (record := store.get(folder.name))])
