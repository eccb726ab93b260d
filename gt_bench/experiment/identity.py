"""Digests and code hashes that identify the runs of an experiment."""

from pathlib import Path
from typing import TYPE_CHECKING

from gt_bench.config.recipe import Recipe
from gt_bench.data.custom.metric import metric_digest
from gt_bench.experiment import golden_values
from gt_bench.experiment.components import code_of
from gt_bench.plugins.models import files_digest
from gt_bench.schemas import Digests
from gt_bench.tasks.base import Task
from gt_bench.utils.digest import digest_of

if TYPE_CHECKING:
    from gt_bench.data.packed import PackedDataset


def digests_of(recipe: Recipe, packed: "PackedDataset", encodings: str, task: Task) -> Digests:
    """Returns the digests of recipe, data, encodings and user-supplied files; see `gt_bench.schemas.Digests`.

    Args:
        recipe: the recipe.
        packed: the dataset.
        encodings: digest of its encodings.
        task: its task.
    """
    digests: Digests = {"recipe": digest_of(recipe.decisive()), "data": packed.digest, "encodings": encodings}
    if files := files_digest(recipe.model.name, recipe.model.arguments):
        digests["files"] = files
    if custom := [metric_digest(name) for name in task.custom]:
        digests["metric"] = digest_of(custom)
    if joins_last(recipe, packed, task):
        digests["last_batch"] = "joined"
    return digests


def joins_last(recipe: Recipe, packed: "PackedDataset", task: Task) -> bool:
    """Returns whether the last batch of an epoch can have one graph, which then joins the batch before it."""
    batch = recipe.batch
    if batch.last or task.loader or task.runner or not (batch.graphs or batch.nodes):
        return False
    if batch.nodes:  # the sizes of batches depend on the order of the epoch
        return True
    graphs = batch.graphs or 1
    sizes = {len(packed.split("train", split)) for split in range(packed.header.num_splits)}
    return graphs > 1 and any(size > graphs and size % graphs == 1 for size in sizes)


def modified_code(path: str, model: str, task: str, code: str) -> str | None:
    """Finds out whether the code computes other numbers than the committed golden values of the same versions.

    Args:
        path: file of the recipe, suites/SUITE/recipes/DATASET/ROW.yaml or tuned/SUITE/DATASET/ROW.yaml.
        model: name of the model.
        task: name of the task.
        code: hash of the code that computes the runs.

    Returns:
        `code` if it does, otherwise None.
    """
    parts = [part for part in Path(path).with_suffix("").parts if part != "recipes"]
    reference = golden_values.reference_cell("/".join(parts[-3:]), model, task)
    if reference is None:
        return None
    reference_code = code_of(*golden_values.model_and_task(reference))
    return code if golden_values.differences({reference: reference_code})[reference] else None
