"""Checks of a recipe against its model, its dataset and the machine. Each raises RecipeError with file and key."""

import inspect
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from pydantic import ConfigDict, create_model

from gt_bench.config.recipe import Recipe
from gt_bench.config.schema import ExactNumbers, RecipeError, validated
from gt_bench.plugins.model_errors import OwnModelError
from gt_bench.plugins.models import find
from gt_bench.runtime.module_loader import ImportFails
from gt_bench.utils.json_types import Settings
from gt_models.registry import list_models, model_info

if TYPE_CHECKING:
    from torch import Tensor

    from gt_bench.data.packed import PackedDataset
    from gt_bench.tasks.base import Task

# arguments of constructors that come from the dataset, never from a recipe
DATA_ARGUMENTS = ("in_dim", "edge_dim", "out_dim", "level")
EVALUATED_PARTS: tuple[Literal["val", "test"], ...] = ("val", "test")
# tasks of the standard training loop whose outputs are ordered by graph, so that processes can share a batch
SHARED_TASKS = ("graph-classification", "graph-regression", "graph-multilabel", "set-to-graph")
# tasks whose batches can be padded and whose models can be compiled
STATIC_TASKS = (*SHARED_TASKS, "node-classification", "node-regression")
SHARED_TASKS_TEXT = (
    f"{', '.join(SHARED_TASKS)}, node-classification on many graphs, and node-classification with subgraphs"
)


def check_model(recipe: Recipe, path: str | Path = "recipe") -> Settings:
    """Checks and converts the arguments of the recipe's model by the signature of its constructor.

    Args:
        recipe: the recipe.
        path: its file, for messages.

    Returns:
        The arguments that the recipe gives, with the types of the constructor.

    Raises:
        RecipeError: the model does not exist or cannot be imported, or an argument is unknown, missing or of a wrong
            type.
    """
    from gt_bench.plugins.adapter import unfilled

    try:
        info = find(recipe.model.name)
        unfilled(info.cls, list(recipe.model.arguments))
    except KeyError as error:
        raise RecipeError(error.args[0], file=path, place="model.name", value=recipe.model.name) from None
    except (OwnModelError, ImportFails) as error:
        raise RecipeError(str(error), file=path, place="model.name", value=recipe.model.name) from error
    arguments = validated(_signature_schema(cast(type, info.cls)), recipe.model.arguments, path, "model")
    return arguments.model_dump(exclude_unset=True)


def check_fit(recipe: Recipe, level: str, dataset: str, path: str | Path = "recipe") -> None:
    """Checks that the recipe's model supports the dataset's level and the recipe's encodings.

    Args:
        recipe: the recipe.
        level: what a target of the dataset belongs to: node, graph, pair and others.
        dataset: name of the dataset, for messages.
        path: file of the recipe, for messages.

    Raises:
        RecipeError: it does not, or the recipe has sections for other tasks.
    """
    from gt_models.encodings import ENCODINGS, EncodingError, find_encoding

    info = find(recipe.model.name)
    if recipe.subgraphs and level != "node":
        problem = f"requires a dataset with one target per node, but {dataset!r} has one per {level}"
        raise RecipeError(problem, file=path, place="subgraphs", remedy="remove subgraphs")
    if level == "edge" and recipe.head is None:
        remedy = "which need the prediction for an edge from the embeddings of its nodes: head: {name: product}"
        remedy = f"{dataset!r} has targets of edges, {remedy}"
        raise RecipeError("missing", file=path, place="head", remedy=remedy)
    if level != "edge":
        of_edges = {"head": recipe.head, "batch.edges": recipe.batch.edges, "batch.negatives": recipe.batch.negatives}
        if given := [key for key, value in of_edges.items() if value]:
            problem = f"is for targets of edges, but {dataset!r} has one per {level}"
            raise RecipeError(problem, file=path, place=given[0], remedy="remove it")
    what = "embeddings of nodes for its edges" if level == "edge" else recipe.level_of(level)
    level = recipe.level_of(level)
    if level not in info.levels:
        others = [m for m in list_models() if level in model_info(m).levels]
        raise RecipeError(
            f"model {info.name!r} predicts at level {', '.join(info.levels)}, but dataset {dataset!r} requires {what}",
            file=path,
            place="model.name",
            value=info.name,
            remedy=f"models that support it: {', '.join(others)}",
        )
    for name, arguments in recipe.encodings.items():
        try:
            encoding = find_encoding(name)
            encoding.arguments(arguments)
        except EncodingError as error:
            raise RecipeError(str(error), file=path, place=f"encodings.{name}") from None
        if not set(encoding.arrays) & set(info.encodings):
            usable = [e.name for e in ENCODINGS.values() if set(e.arrays) & set(info.encodings)]
            problem, remedy = f"model {info.name!r} does not use it", f"it can use: {', '.join(usable) or 'none'}"
            raise RecipeError(problem, file=path, place=f"encodings.{name}", remedy=remedy)


def check_metric(packed: "PackedDataset", task: "Task", splits: Iterable[int], path: str) -> None:
    """Checks that the task's metric is defined on the validation and test parts of these splits.

    Tasks with a loader or runner of their own are not checked, except those with targets of edges, nor are datasets of
    pairs or hyperedges.

    Args:
        packed: the dataset.
        task: its task.
        splits: indices of splits.
        path: file of the recipe, for messages.

    Raises:
        RecipeError: the metric is undefined on a part, for example ROC-AUC on targets of one class.
    """
    import torch

    from gt_bench.tasks.metrics import why_undefined

    header = packed.header
    of_edges = header.level == "edge" and header.task != "link-prediction"
    of_rows = header.level in ("node", "graph") and header.split_kind != "hyperedge" and not task.loader
    if task.runner or not header.num_splits or not (of_rows or of_edges):
        return
    y = packed.array("y")
    for split in sorted(set(splits)):
        for part in EVALUATED_PARTS:
            ids = packed.split(part, split)
            rows: Tensor = ids
            if header.level == "node" and header.split_kind == "graph":
                evaluated = torch.zeros(packed.num_graphs, dtype=torch.bool).index_fill(0, ids, True)
                rows = evaluated.repeat_interleave(packed.sizes)
            reason = why_undefined(task.metric, y[rows]) if len(ids) else None  # the loader reports an empty part
            if reason:
                remedy = "use a split whose part has both classes, or another metric: accuracy"
                if header.task.endswith("-regression"):
                    remedy = "use a split whose part has different targets, or another metric: mae"
                if header.task == "graph-multilabel":
                    remedy = "use a split in which a label has both values in this part"
                raise RecipeError(
                    f"the {part} part of split {split} {reason}: {task.metric} is not defined there",
                    file=path,
                    place=f"dataset {header.name!r}",
                    value=task.metric,
                    remedy=remedy,
                )


def check_processes(recipe: Recipe, task: str, split_kind: str, dataset: str, path: str | Path = "recipe") -> None:
    """Checks that several processes can share the batches of a recipe with `processes:` above 1.

    Args:
        recipe: the recipe.
        task: name of the dataset's task.
        split_kind: what a split of the dataset contains: "node", "graph", "edge" or "hyperedge".
        dataset: name of the dataset, for messages.
        path: file of the recipe, for messages.

    Raises:
        RecipeError: a batch has one graph, or the task does not compute its outputs graph by graph.
    """
    if (
        recipe.processes == 1
        or task in SHARED_TASKS
        or (task == "node-classification" and (split_kind == "graph" or recipe.subgraphs))
    ):
        return
    reason = (
        f"{dataset!r} is a single graph"
        if split_kind in ("node", "edge", "hyperedge")
        else f"the task of {dataset!r} ({task}) is not computed graph by graph"
    )
    raise RecipeError(
        f"{recipe.processes} processes cannot share a batch, because {reason}",
        file=path,
        place="processes",
        value=recipe.processes,
        remedy=f"remove this key. Supported tasks: {SHARED_TASKS_TEXT}",
    )


def check_static(recipe: Recipe, task: str, split_kind: str, dataset: str, path: str | Path = "recipe") -> None:
    """Checks that batches of a recipe with `batch.static` can be padded, and that its model can be compiled.

    Args:
        recipe: the recipe.
        task: name of the dataset's task.
        split_kind: what a split of the dataset contains: "node", "graph" or "hyperedge".
        dataset: name of the dataset, for messages.
        path: file of the recipe, for messages.

    Raises:
        RecipeError: the model, the task or another key of the recipe does not support it.
    """
    static, mode = recipe.batch.static, recipe.compile
    if not (static or mode):
        return
    from gt_bench.training.static_batches import COMPILATIONS, MODELS

    key = "compile" if mode else "batch.static"
    name, many = recipe.model.name, split_kind == "graph"
    if name not in MODELS:
        remedy = f"remove {key}. Supported models: {', '.join(sorted(MODELS))}"
        raise RecipeError(f"model {name!r} does not support it", file=path, place=key, value=name, remedy=remedy)
    if task not in STATIC_TASKS:
        problem = f"the task of {dataset!r} ({task}) does not support it"
        remedy = f"remove {key}. Supported tasks: {', '.join(STATIC_TASKS)}"
        raise RecipeError(problem, file=path, place=key, value=task, remedy=remedy)
    used = [other for other in ("subgraphs", "eval_device") if getattr(recipe, other)]
    used += [f"batch.{other}" for other in ("parts", "hyperedges", "configurations") if getattr(recipe.batch, other)]
    used += ["processes"] if recipe.processes > 1 else []
    if used:
        problem = f"cannot be combined with {used[0]}"
        raise RecipeError(problem, file=path, place=key, value=used[0], remedy="remove one of them")
    if static and not many:
        problem = f"{dataset!r} is one graph, whose size does not change"
        raise RecipeError(problem, file=path, place="batch.static", remedy="remove batch.static")
    if mode and many and not static:
        problem = f"the batches of {dataset!r} have different sizes, and the model would be compiled for each of them"
        raise RecipeError(problem, file=path, place="compile", remedy="add batch: {static: true}")
    if mode and 2 * len(recipe.phases) > COMPILATIONS:
        raise RecipeError(
            f"a model is compiled at most {COMPILATIONS} times, for training and evaluation of each phase, but the "
            f"recipe has {len(recipe.phases)} phases",
            file=path,
            place="compile",
            value=len(recipe.phases),
            remedy=f"use at most {COMPILATIONS // 2}",
        )


def check_num_gpus(recipe: Recipe, device: str, gpu: bool, path: str | Path = "recipe") -> None:
    """Checks that the machine has a GPU for each process of a run.

    Args:
        recipe: the recipe.
        device: `run.device` of params.yaml.
        gpu: whether runs use a GPU.
        path: file of the recipe, for messages.

    Raises:
        RecipeError: there are fewer GPUs than processes, or `device` names a single GPU.
    """
    import torch

    if not gpu:
        return
    count, wanted = torch.cuda.device_count(), recipe.processes
    if ":" in device:
        problem = f"{wanted} processes need one GPU each, but params.yaml selects one: run.device: {device}"
        remedy = "set run.device to cuda or auto"
        raise RecipeError(problem, file=path, place="processes", value=device, remedy=remedy)
    if count < wanted:
        problem = f"{wanted} processes need one GPU each, but this machine has {count}"
        remedy = f"set processes to {count} or less, or run.device to cpu in params.yaml"
        raise RecipeError(problem, file=path, place="processes", value=wanted, remedy=remedy)


class _Arguments(ExactNumbers):
    model_config = ConfigDict(extra="forbid", strict=False, protected_namespaces=())


@cache
def _signature_schema(cls: type) -> type[ExactNumbers]:
    fields: dict[str, Any] = {}
    for name, parameter in inspect.signature(cls, eval_str=True).parameters.items():
        if name not in DATA_ARGUMENTS:
            default = ... if parameter.default is parameter.empty else parameter.default
            fields[name] = (Any if parameter.annotation is parameter.empty else parameter.annotation, default)
    return create_model(cls.__name__, __base__=_Arguments, **fields)
