"""Whether a recipe fits what it names: the arguments of its model by the constructor's signature, the dataset's level, the encodings that the model reads."""

import inspect
from functools import cache
from pathlib import Path
from typing import Any, cast

from pydantic import ConfigDict, create_model

from gt_bench.config.recipe import Recipe
from gt_bench.config.schema import NoBooleans, RecipeError, validated
from gt_bench.schemas import Settings

# in_dim and the like come from the dataset, never from a recipe
DATA_ARGUMENTS = ("in_dim", "edge_dim", "out_dim", "level")


def check_model(recipe: Recipe, path: str | Path = "recipe") -> Settings:
    """Arguments of the recipe's model, checked and converted by the constructor's own signature. Raises RecipeError."""
    from gt_bench.plugins.adapter import OwnModelError, unfilled
    from gt_bench.plugins.models import find
    from gt_bench.runtime.module_loader import ImportFails

    try:
        info = find(recipe.model.name)
        unfilled(info.cls, list(recipe.model.arguments))
    except KeyError as error:
        raise RecipeError(f"{path}: model.name: {error.args[0]}") from None
    except (OwnModelError, ImportFails) as error:
        raise RecipeError(f"{path}: {error}") from error
    arguments = validated(_signature_schema(cast(type, info.cls)), recipe.model.arguments, str(path), prefix="model.")
    return arguments.model_dump(exclude_unset=True)


def check_fit(recipe: Recipe, level: str, dataset: str, path: str | Path = "recipe") -> None:
    """Raises RecipeError where the recipe's model cannot predict at the dataset's level, or knows nothing of an encoding it is given."""
    from gt_bench.plugins.models import find
    from gt_models.encodings import ENCODINGS, EncodingError, find_encoding
    from gt_models.registry import list_models, model_info

    info = find(recipe.model.name)
    if recipe.subgraphs and level != "node":
        raise RecipeError(f"{path}: subgraphs are for datasets with a target per node; {dataset!r} has one per {level}")
    level = recipe.level_of(level)
    if level not in info.levels:
        others = [m for m in list_models() if level in model_info(m).levels]
        raise RecipeError(
            f"{path}: model {info.name!r} predicts at level {', '.join(info.levels)}, but dataset {dataset!r} asks for {level}; models that can: {', '.join(others)}"
        )
    for name, arguments in recipe.encodings.items():
        try:
            encoding = find_encoding(name)
            encoding.arguments(arguments)
        except EncodingError as error:
            raise RecipeError(f"{path}: encodings.{name}: {error}") from None
        if not set(encoding.arrays) & set(info.encodings):
            usable = [e.name for e in ENCODINGS.values() if set(e.arrays) & set(info.encodings)]
            raise RecipeError(
                f"{path}: encodings.{name}: model {info.name!r} does not use it; it can use: {', '.join(usable) or 'none'}"
            )


class _Arguments(NoBooleans):
    model_config = ConfigDict(extra="forbid", strict=False, protected_namespaces=())


@cache
def _signature_schema(cls: type) -> type[NoBooleans]:
    fields: dict[str, Any] = {}
    for name, parameter in inspect.signature(cls, eval_str=True).parameters.items():
        if name not in DATA_ARGUMENTS:
            default = ... if parameter.default is inspect.Parameter.empty else parameter.default
            fields[name] = (parameter.annotation, default)
    return create_model(cls.__name__, __base__=_Arguments, **fields)
