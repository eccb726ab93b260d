"""The encodings that a model reads, found by running it on a small batch."""

import inspect

import torch

from gt_bench.config.recipe import Recipe
from gt_bench.config.schema import RecipeError
from gt_bench.data.packed import PackedDataset
from gt_bench.encodings.cache import EncodedDataset
from gt_bench.experiment.validate import check_model
from gt_bench.plugins.adapter import PlainModel
from gt_bench.tasks.base import Task
from gt_bench.tasks.registry import create_task
from gt_bench.training.feature_preparation import prepared_header
from gt_bench.training.interfaces import SplitData
from gt_bench.training.loader import induced
from gt_bench.utils.errors import UserError
from gt_bench.utils.json_types import Settings
from gt_models.batch import GraphBatch
from gt_models.encodings import ENCODINGS, EncodingError
from gt_models.registry import ModelInfo, create_model, list_models, model_info
from gt_models.transforms import needs

CPU = torch.device("cpu")
PROBE_NODES = 40  # nodes of the batch that shows which encodings a model reads


class Incompatible(UserError, ValueError):
    """A model cannot be run on a dataset; the message has the reason, and what fits."""


def where_of(info: ModelInfo, dataset: str) -> str:
    """Returns what error messages name instead of the file of a recipe."""
    return f"gt-bench try {info.name} {dataset}"


def with_encodings(recipe: Recipe, info: ModelInfo, packed: PackedDataset) -> Recipe:
    """Returns the recipe with the encodings that its model reads; those in the recipe keep their arguments.

    Raises:
        Incompatible: the model needs encodings, and the dataset cannot have any.
        RecipeError: an encoding needs arguments that only a recipe can have.
    """
    where = where_of(info, packed.header.name)
    try:
        header = prepared_header(packed.header, recipe.features)
    except ValueError as error:
        raise RecipeError(str(error), file=where) from None
    # it is unknown which attributes of the batch a plain module reads
    if not info.encodings or issubclass(info.cls, PlainModel):
        return recipe
    arguments = check_model(recipe, where)
    try:
        task = create_task(header.task, header.metric, recipe.loss, header.also)
    except KeyError as error:
        raise RecipeError(error.args[0], file=where) from None
    dims = {
        "in_dim": task.in_dim(header),
        "out_dim": recipe.width_of(header.out_dim),
        "level": recipe.level_of(header.level),
        "edge_dim": header.edge_dim,
    }
    model = _probe_model(info, dims, arguments)
    try:
        needed = needs(model, _probe_batch(recipe, task, packed), recipe.encodings)
    except EncodingError as error:  # the encoding is not for such a graph, or needs arguments of the recipe
        raise RecipeError(str(error), file=where, place="encodings") from error
    read = {
        name: {key: value for key, value in arguments.items() if value != ENCODINGS[name].parameters[key].default}
        for name, arguments in needed.items()
    }
    # this task copies graphs in each step, and only stored graphs have encodings
    if read and header.task == "configuration-ranking":
        fitting = [
            name for name in list_models() if header.level in model_info(name).levels and not model_info(name).encodings
        ]
        problem = f"reads {', '.join(read)}, and graphs of the task {header.task} carry no encodings"
        remedy = f"models that read none: {', '.join(fitting)}"
        raise Incompatible(problem, place=f"model {info.name!r}", value=header.task, remedy=remedy)
    if not read:
        return recipe
    return recipe.model_copy(update={"encodings": read | {k: v for k, v in recipe.encodings.items() if k not in read}})


def _probe_batch(recipe: Recipe, task: Task, packed: PackedDataset) -> GraphBatch:
    """Returns a small batch of the task: hyperedges with their graph, otherwise a part of the first graph."""
    header = packed.header
    if header.split_kind == "hyperedge" and task.loader is not None:
        encoded = EncodedDataset(packed, packed.folder, {})
        data = SplitData(packed, encoded, 0, recipe.batch, 0, CPU, torch.float32)
        batch = next(iter(task.loader(data).training(0)))[0]
    else:
        batch = packed.batch(torch.tensor([0]))
        if batch.num_nodes > PROBE_NODES:
            batch = induced(batch, torch.arange(PROBE_NODES))
        width = task.in_dim(prepared_header(header, recipe.features))
        if width != header.in_dim or "missing" in header.statistics:  # the task adds to the features, or some are NaN
            batch.x = torch.zeros(batch.num_nodes, width)
    batch.y = None
    return batch


def _probe_model(info: ModelInfo, dims: Settings, arguments: Settings) -> torch.nn.Module:

    parameters = inspect.signature(info.cls).parameters
    try:
        with torch.random.fork_rng():
            return create_model(
                info.name, **{key: value for key, value in dims.items() if key in parameters}, **arguments
            )
    except (ValueError, RuntimeError, ZeroDivisionError) as error:
        raise RecipeError(str(error), file=f"gt-bench try {info.name}", place="model") from error
