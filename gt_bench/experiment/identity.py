"""Digests that identify the runs of an experiment."""

from typing import TYPE_CHECKING

from gt_bench.config.recipe import Recipe
from gt_bench.data.custom.metric import metric_digest
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
