"""The width at which a model has a given number of parameters (`gt-bench match`), as GraphGym matches models.

Models are built on the device "meta", without memory. The width is a multiple of the number of attention heads. Source:
You et al. 2020, "Design Space for Graph Neural Networks", Section 5: models are compared at one budget.
"""

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch

from gt_bench.config.recipe import Recipe
from gt_bench.config.recipe_sections import FeaturesSection
from gt_bench.config.schema import RecipeError, nearest
from gt_bench.data.packed import PackedHeader
from gt_bench.data.registry import get_spec
from gt_bench.data.standin import shape_of
from gt_bench.experiment.validate import check_model
from gt_bench.plugins.argument_space import HEADS, WIDTH
from gt_bench.plugins.models import find
from gt_bench.tasks.registry import create_task
from gt_bench.training.feature_preparation import prepared_header
from gt_bench.utils.errors import UserError
from gt_bench.utils.json_types import Settings
from gt_models.registry import create_model

WIDTHS = ("hidden_dim", "hidden", "hidden_channels", "dim", "width", "channels")
MOST = 2**20  # largest value that is tried
NEXT = 16  # invalid values in a row, for example odd widths, after which the search ends
FAR = 0.1  # relative difference to the budget that is worth a remark


_UNITS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9}


def count_in(text: str) -> int:
    """Reads `500k`, `1.5M` or `500000`.

    Raises:
        ValueError: the text is no such number, or below 1.
    """
    match = re.fullmatch(r"(\d+(?:[._]\d+)*)\s*([kKmMbB]?)", text.strip())
    number = round(float(match[1].replace("_", "")) * _UNITS[match[2].lower()]) if match else 0
    if number < 1:
        raise ValueError(f"expected a number of parameters such as 500k, 1.5M or 500000 (given: {text!r:.200})")
    return number


@dataclass(frozen=True)
class Matched:
    """The argument `by` has `value`, and the model `parameters` parameters. `step`: value is a multiple of it."""

    by: str
    value: int
    parameters: int
    step: int


def dims_of(dataset: str, features: FeaturesSection | None = None) -> Settings:
    """Returns the arguments of a constructor that describe a dataset, which need not be on disk if its shape is known.

    Raises:
        DatasetError: the dataset does not exist, or its shape is not known.
    """
    data = Path("data")
    path, level = data / "packed" / dataset / "header.json", ""
    if path.exists():
        header = PackedHeader.model_validate_json(path.read_bytes())
        try:
            about, level = prepared_header(header, features), header.level
        except ValueError as error:
            raise RecipeError(str(error), file=f"dataset {dataset!r}") from None
        task = create_task(header.task, header.metric)
    else:
        spec = get_spec(dataset)
        about, level = cast(PackedHeader, shape_of(spec, data)), spec.level
        task = create_task(spec.task, spec.metric)
    return {"in_dim": task.in_dim(about), "out_dim": about.out_dim, "edge_dim": about.edge_dim, "level": level}


def widths_of(model: str) -> list[str]:
    """Returns the names of the whole-number arguments of a model's constructor."""
    parameters = inspect.signature(find(model).cls).parameters
    given = {"in_dim", "out_dim", "edge_dim", "level"}
    whole = [n for n, p in parameters.items() if type(p.default) is int or p.annotation in (int, "int", int | None)]
    return [name for name in whole if name not in given]


def usual_width(model: str) -> str:
    """Returns the argument that is a model's width.

    Raises:
        RecipeError: none has a usual name.
    """
    known = widths_of(model)
    for name in WIDTHS:
        if name in known:
            return name
    problem = f"no argument is named {', '.join(WIDTHS)}"
    remedy = f"give --by with one of {', '.join(known) or '(none)'}"
    raise RecipeError(problem, file=f"gt-bench match {model}", place="--by", remedy=remedy)


def matched(recipe: Recipe, dataset: str, by: str, budget: int, path: str) -> Matched:
    """Finds the value of an argument with which a model has about `budget` parameters.

    Args:
        recipe: the recipe; its own value of the argument is ignored.
        dataset: name of the dataset.
        by: the argument, in which the number of parameters grows.
        budget: number of parameters.
        path: file of the recipe, for messages.

    Returns:
        The multiple of the number of heads whose number of parameters is nearest to the budget.

    Raises:
        RecipeError: the model has no such argument, its size does not depend on it, or the smallest model is larger.
    """
    known = widths_of(recipe.model.name)
    if by not in known:
        problem = f"{by!r} is not a whole-number argument of {recipe.model.name}{nearest(by, known)}"
        remedy = f"expected one of {', '.join(known)}"
        raise RecipeError(problem, file=path, place="--by", value=by, remedy=remedy)
    parameters = inspect.signature(find(recipe.model.name).cls).parameters
    if recipe.head:
        problem = f"{dataset!r} has targets of edges, whose head has parameters too"
        raise RecipeError(problem, file=path, value=dataset, remedy="give the width itself")
    dims, arguments = _dims(recipe, dataset), check_model(recipe.with_values({f"model.{by}": 8}), path)
    head = next((name for name in parameters if HEADS.search(name) and name != by), None)
    heads = arguments.get(head, parameters[head].default) if head else 1
    step = heads if WIDTH.search(by) and type(heads) is int and heads > 0 else 1
    errors: list[str] = []

    def count(value: int) -> int | None:
        try:
            return _parameters(recipe.model.name, dims | arguments | {by: value})
        except (ValueError, RuntimeError, ZeroDivisionError, AssertionError, TypeError) as error:
            errors.append(str(error))
            return None

    found = _nearest(count, budget, step)
    if found is None:
        problem = f"{recipe.model.name} cannot be built with any {by} tried: {errors[-1]}"
        raise RecipeError(problem, file=path, place="--by", value=by)
    value, size = found
    smallest = _first(count, step, step)
    if smallest and smallest[1] > budget:
        raise RecipeError(
            f"{budget:,} is less than {smallest[1]:,}, the number of parameters of {recipe.model.name} with {by}: "
            f"{smallest[0]} on {dataset}",
            file=path,
            place="--parameters",
            value=budget,
            remedy="raise the budget or reduce num_layers",
        )
    other = _first(count, 2 * value, step)
    if other and other[1] == size:
        problem = f"{by} does not change the number of parameters of {recipe.model.name} ({size:,})"
        remedy = f"choose one of {', '.join(name for name in known if name != by)}"
        raise RecipeError(problem, file=path, place="--by", value=by, remedy=remedy)
    return Matched(by, value, size, step)


def parameters_of(recipe: Recipe, dataset: str, path: str) -> int:
    """Returns the number of parameters of a recipe's model on a dataset.

    Args:
        recipe: the recipe.
        dataset: name of the dataset, which need not be on disk if its shape is known.
        path: file of the recipe, for messages.

    Raises:
        RecipeError: the model does not exist, or its arguments do not fit it.
        DatasetError: the dataset does not exist, or its shape is not known.
    """
    arguments = check_model(recipe, path)
    try:
        return _parameters(recipe.model.name, _dims(recipe, dataset) | arguments)
    except (ValueError, RuntimeError, ZeroDivisionError, AssertionError, TypeError) as error:
        if isinstance(error, UserError):
            raise
        raise RecipeError(str(error), file=path, place="model") from error


def _dims(recipe: Recipe, dataset: str) -> Settings:
    """Returns the arguments of the model's constructor that describe the dataset."""
    parameters = inspect.signature(find(recipe.model.name).cls).parameters
    dims = {k: v for k, v in dims_of(dataset, recipe.features).items() if k in parameters}
    return dims | ({"level": recipe.level_of(dims["level"])} if "level" in dims else {})


def _first(count: Callable[[int], int | None], start: int, step: int) -> tuple[int, int] | None:
    """Returns the first valid value from `start` on, with its number of parameters."""
    for value in range(start, start + NEXT * step, step):
        if (size := count(value)) is not None:
            return value, size
    return None


def _nearest(count: Callable[[int], int | None], budget: int, step: int) -> tuple[int, int] | None:
    """Returns the multiple of `step` whose number of parameters is nearest to the budget, by bisection."""
    low = _first(count, step, step)
    if low is None or low[1] >= budget:
        return low
    high = low
    while high[1] < budget and high[0] < MOST:
        low, following = high, _first(count, 2 * high[0], step)
        if following is None or following[1] == high[1]:
            return high
        high = following
    while high[0] - low[0] > step:
        middle = _first(count, (low[0] + high[0]) // (2 * step) * step, step)
        if middle is None or middle[0] >= high[0]:
            break
        low, high = (middle, high) if middle[1] < budget else (low, middle)
    return min((low, high), key=lambda pair: abs(pair[1] - budget))


def _parameters(model: str, arguments: Settings) -> int:
    with torch.random.fork_rng(devices=[]):
        try:
            with torch.device("meta"):
                built = create_model(model, **arguments)
        except NotImplementedError:  # an initialisation that computes with values
            built = create_model(model, **arguments)
    return sum(parameter.numel() for parameter in built.parameters())
