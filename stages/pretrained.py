"""Models with the weights of a run that the store keeps (`gt_models.create_model(name, pretrained=cell)`)."""

from pathlib import Path

from torch import nn

from stages.cells import experiment_of, limited, settings_of
from stages.engine import weights
from stages.errors import UserError
from stages.params import load_grid
from stages.store import Store


class NoWeights(UserError, ValueError):
    """A cell that kept no weights; the message says how they are had."""


def model_of(name: str, cell: str, data: Path = Path("data"), store_root: Path = Path("store")) -> nn.Module:
    """Model `name` as the recipe of `cell` builds it, in evaluation mode, with the weights of its kept run that is best on validation.

    Raises NoWeights where no run of the cell kept any, or it is of another model; RecipeError and DatasetError where cell or data are not
    here.
    """
    grid = load_grid()
    found, store = grid.find(cell), Store(store_root)
    recipe = limited(settings_of(found), grid, found)[0]
    if recipe.model.name != name:
        raise NoWeights(f"{found.recipe_path}: is a recipe of {recipe.model.name!r}, not of {name!r}")
    experiment = experiment_of(found, recipe, grid, store, data)
    digests = [experiment.digest(seed) for seed in recipe.seeds]
    kept = [record for digest in digests if (store.folder(digest) / weights.FILE).exists() and (record := store.get(digest))]
    if not kept:
        raise NoWeights(
            f"{found.recipe_path}: no run of it kept its weights: set `keep_weights: true` there and run `gt-bench train {found.cell}`"
        )
    sign = 1 if experiment.task.direction == "max" else -1
    best = max(kept, key=lambda record: sign * record["deterministic"]["val"])
    model = experiment.build()
    weights.load_weights(model, store.folder(best["digest"]), "all")
    return model.eval()
