"""The names of a model and a dataset, refused before torch is loaded, which takes three seconds."""

from gt_bench.config.schema import RecipeError, nearest
from gt_bench.data.custom.description import Description
from gt_bench.data.registry import UnknownDataset
from gt_bench.plugins.datasets import NOTHING, dataset_name, is_place
from gt_bench.plugins.models import is_known
from gt_models.registry import list_models


def check_names(model: str, dataset: str, data: Description = NOTHING) -> None:
    """Checks the names of a model and a dataset. User-supplied ones, which are named by path, are not looked at.

    Args:
        model: as for `check_model_name`.
        dataset: as for `named_dataset`.
        data: as for `named_dataset`.

    Raises:
        RecipeError, DatasetError: as for these.
    """
    if not is_place(dataset):
        named_dataset(dataset, data)
    check_model_name(model)


def named_dataset(text: str, data: Description) -> str:
    """Returns the name of a dataset. User-supplied data are added to datasets.yaml.

    Args:
        text: a name, or where user-supplied data are.
        data: what is declared about user-supplied data.

    Raises:
        RecipeError: it is the name of a model.
        DatasetError: there is no such dataset, or it has not what is declared.
    """
    try:
        return dataset_name(text, data)
    except UnknownDataset:
        if text in list_models():
            raise RecipeError(
                f"{text!r} is a model, not a dataset", value=text, remedy="name the model before the dataset"
            ) from None
        raise


def check_model_name(name: str) -> None:
    """Checks the name of a model; `path/to/file.py:MyModel` passes.

    Raises:
        RecipeError: there is no such model.
    """
    if not is_known(name):
        raise RecipeError(
            f"no model named {name!r:.100}{nearest(name, list_models())}",
            value=name,
            remedy="docs/models.md has the names; a class of your own is named with its file: path/to/file.py:MyModel",
        )
