"""The model and the batches of an experiment."""

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import torch
from torch import nn

from gt_bench.config.schema import RecipeError
from gt_bench.schemas import Settings
from gt_bench.store.weights import with_head
from gt_bench.tasks.edges import is_symmetric
from gt_bench.training import pretrained_init
from gt_bench.training.failures import failure, is_out_of_memory
from gt_bench.training.feature_preparation import prepared, prepared_header
from gt_bench.training.inductive_loader import InductiveLoader
from gt_bench.training.interfaces import Batches, Header, Packed
from gt_bench.training.loader import Loader
from gt_bench.training.subgraph_loader import SubgraphLoader
from gt_bench.training.target_scaling import StandardisedTargets
from gt_models.registry import create_model, model_info

if TYPE_CHECKING:
    from gt_bench.experiment.run import Experiment


def constructor_arguments(experiment: "Experiment") -> Settings:
    """Returns the arguments of the model's constructor: dimensions of the dataset, and `model:` of the recipe."""
    recipe, header = experiment.recipe, experiment.header
    given = {
        "in_dim": experiment.task.in_dim(cast(Header, prepared_header(header, recipe.features))),
        "out_dim": recipe.width_of(header.out_dim),
        "level": recipe.level_of(header.level),
    }
    if "edge_dim" in inspect.signature(model_info(recipe.model.name).cls).parameters:
        given["edge_dim"] = header.edge_dim
    return given | experiment.arguments


def head_arguments(experiment: "Experiment") -> Settings | None:
    """Returns the arguments of the head (`gt_models.layers.edge_head.EdgeHead`) of a task of edges, otherwise None."""
    header, head = experiment.header, experiment.recipe.head
    if head is None:
        return None
    # the features of a pair that is no edge do not exist
    edge_dim = None if header.task == "link-prediction" else header.edge_dim
    about = {"out_dim": header.out_dim, "edge_dim": edge_dim, "symmetric": is_symmetric(experiment.packed)}
    return head.model_dump() | about


def build_model(experiment: "Experiment") -> nn.Module:
    """Returns a newly initialised model.

    Raises:
        RecipeError: the constructor rejects the recipe's values, a layer has width 0, or the model does not support the
            phases of the recipe.
    """
    recipe, path = experiment.recipe, experiment.path
    try:
        model = with_head(
            create_model(recipe.model.name, **constructor_arguments(experiment)), head_arguments(experiment)
        )
    except (ValueError, RuntimeError, ZeroDivisionError) as error:  # torch raises the last two for a width below 0
        if is_out_of_memory(error):
            raise
        raise RecipeError(f"{path}: model: {error}") from error
    # torch_geometric infers a width of 0 from the first batch
    if unsized := [name for name, weight in model.named_parameters() if nn.parameter.is_lazy(weight)]:
        raise RecipeError(f"{path}: model: {unsized[0]} has no size; give each layer a width above 0")
    if empty := [name for name, weight in model.named_parameters() if not weight.numel()]:
        zeros = ", ".join(f"{key}: {value}" for key, value in recipe.model.arguments.items() if value == 0)
        raise RecipeError(
            f"{path}: model: {empty[0]} has no entries{zeros and f' (given: {zeros})'}; give each layer a width above 0"
        )
    for phase in recipe.phases:
        set_phase = getattr(model, "set_phase", None)
        if set_phase is None:
            raise RecipeError(
                f"{path}: phases: model {recipe.model.name!r} does not support phases; use epochs instead"
            )
        try:
            set_phase(phase.name)
        except ValueError as error:
            raise RecipeError(f"{path}: phases: {error}") from error
    return model


def build_initial_model(experiment: "Experiment", seed: int) -> Callable[[], nn.Module]:
    """Returns `experiment.build`, or if the recipe has `start:`, a function that also loads the weights of the source.

    Raises:
        RecipeError: the weights are not in the store.
    """
    start, source = experiment.recipe.start, experiment.source
    if start is None:
        return experiment.build
    assert source is not None  # without it `digest` raises before
    digest = source.digest(seed)
    record = experiment.store.get(digest)
    status, reason = (record["deterministic"][key] for key in ("status", "error")) if record else (None, None)
    folder = experiment.store.folder(digest)
    has_weights = source.recipe.keep_weights and (folder / pretrained_init.FILE).exists()
    if status is None or (status == "ok" and not has_weights):
        raise RecipeError(
            f"{experiment.path}: start: {start.cell}: the run with seed {seed} "
            f"{'has no saved weights' if status else 'is not in the store'}; add seed {seed} and "
            f"keep_weights: true to its recipe and run `python -m stages.train {start.cell}`"
        )

    def build() -> nn.Module:
        if status != "ok":  # this run ends with the same status
            raise failure(status, f"the run that it starts from ({start.cell}, seed {seed}): {reason}")
        model = experiment.build()
        try:
            pretrained_init.load_weights(model, folder, start.load)
        except ValueError as error:
            raise RecipeError(f"{experiment.path}: start: {start.cell}: {error}") from None
        return model

    return build


def build_loader(experiment: "Experiment", seed: int) -> Batches:
    """Returns the batches that a seed trains on and is evaluated on.

    Raises:
        ValueError: the recipe's `batch:`, `targets:` or `subgraphs:` does not fit the dataset.
    """
    recipe, task, split = experiment.recipe, experiment.task, experiment.split_of(seed)
    dtype = torch.float64 if recipe.precision == "float64" else torch.float32
    packed = cast(Packed, prepared(experiment.packed, recipe.features, split))
    if recipe.targets:
        packed = StandardisedTargets(packed, recipe.targets, split)
    elif not recipe.features:
        packed = experiment.packed_or_sparse
    data = (packed, experiment.encoded, split, recipe.batch, seed, experiment.device, dtype)
    if experiment.inductive:
        return InductiveLoader(*data, encodings=recipe.encodings)
    if recipe.subgraphs:
        subgraphs = SubgraphLoader(*data, subgraphs=recipe.subgraphs, encodings=recipe.encodings)
        return cast(Batches, subgraphs)  # it has no method `on`: only whole graphs use another evaluation device
    if task.computes_encodings and task.loader:
        return task.loader(*data, encodings=recipe.encodings)
    return (task.loader or Loader)(*data)
