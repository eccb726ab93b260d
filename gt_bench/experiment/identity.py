"""Digests and code hashes that identify the runs of an experiment."""

from pathlib import Path
from typing import TYPE_CHECKING

from gt_bench.config.schema import RecipeError
from gt_bench.data.custom.metric import metric_digest
from gt_bench.experiment import golden_values
from gt_bench.experiment.components import code_of
from gt_bench.plugins.models import files_digest
from gt_bench.schemas import Digests, Record
from gt_bench.store.run_store import run_digest
from gt_bench.utils.digest import digest_of

if TYPE_CHECKING:
    from gt_bench.experiment.run import Experiment


def digests_of(experiment: "Experiment") -> Digests:
    """Returns the digests of recipe, data, encodings and user-supplied files; see `gt_bench.schemas.Digests`."""
    recipe = experiment.recipe
    digests: Digests = {
        "recipe": digest_of(recipe.decisive()),
        "data": experiment.packed.digest,
        "encodings": experiment.encoded.digest,
    }
    if files := files_digest(recipe.model.name, recipe.model.arguments):
        digests["files"] = files
    if modified := modified_code(experiment.path, recipe.model.name, experiment.header.task, experiment.code):
        digests["modified"] = modified
    if custom := [metric_digest(name) for name in experiment.task.custom]:
        digests["metric"] = digest_of(custom)
    if joins_last(experiment):
        digests["last_batch"] = "joined"
    return digests


def joins_last(experiment: "Experiment") -> bool:
    """Returns whether the last batch of an epoch can have one graph, which then joins the batch before it."""
    batch, task, packed = experiment.recipe.batch, experiment.task, experiment.packed
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


def check_digest(experiment: "Experiment", record: Record, digest: str, test: bool) -> None:
    """Checks that the process that computed a run found the same digest for it as this process.

    Args:
        experiment: the experiment in this process.
        record: the computed record.
        digest: the digest that this process found.
        test: False for a trial of a search.

    Raises:
        RecipeError: code, data or the model's files were edited during the run.
    """
    run = record["deterministic"]
    if run_digest(run["recipe"], run["seed"], run["split"], run["digests"], run["versions"], test) == digest:
        return
    recipe = experiment.decisive(run["seed"])
    mine: dict[str, object] = {**experiment.digests, **experiment.versions, "recipe": recipe}
    theirs: dict[str, object] = {**run["digests"], **run["versions"], "recipe": run["recipe"]}
    differing = sorted(key for key in mine.keys() | theirs.keys() if mine.get(key) != theirs.get(key))
    raise RecipeError(
        f"{experiment.path}: seed {run['seed']}: {', '.join(differing or ['split'])} changed during the run, because "
        "code, data or the model's files were edited; nothing is stored; run the same command again"
    )
