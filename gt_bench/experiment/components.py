"""Which modules compute a run, by component: model, task, trainer, and what keys of its recipe add (versions: gt_bench/utils/versions.py)."""

from collections.abc import Mapping

from gt_bench.tasks.registry import task_module
from gt_bench.utils.code_digest import code_digest
from gt_bench.utils.versions import modules_of_encodings, version_of
from gt_models.registry import model_module

TRAINER = "gt_bench.training.trainer"
# keys of a recipe that bring code of their own, and the module that has its version
PROTOCOLS = {
    "subgraphs": "gt_bench.training.subgraph_loader",
    "targets": "gt_bench.training.target_scaling",
    "start": "gt_bench.training.pretrained_init",
    "processes": "gt_bench.training.ddp",
}


def modules_of_run(model: str | None, task: str, recipe: Mapping[str, object] | None = None) -> dict[str, str]:
    """By component the module that declares its version: model, task, trainer, and each key of `PROTOCOLS` in the recipe.

    Stored encodings have versions in their own digests. A recipe with `subgraphs` computes its encodings during
    training, so they are components of its runs.

    Args:
        model: name in the registry; None for a custom model, which is identified by the digest of its files.
        task: name of the dataset's task.
        recipe: decisive content of the recipe.

    Raises:
        KeyError: the model or task does not exist.
    """
    recipe = recipe or {}
    modules = {"model": model_module(model)} if model is not None else {}
    modules |= {"task": task_module(task), "trainer": TRAINER}
    modules |= {key: PROTOCOLS[key] for key in sorted(PROTOCOLS.keys() & recipe.keys())}
    encodings = recipe.get("encodings")
    return modules | (
        modules_of_encodings(encodings) if "subgraphs" in recipe and isinstance(encodings, Mapping) else {}
    )


def run_versions(model: str | None, task: str, recipe: Mapping[str, object] | None = None) -> dict[str, int]:
    """By component the version that is part of the key of a run; arguments and errors as `modules_of_run`."""
    return {component: version_of(module) for component, module in modules_of_run(model, task, recipe).items()}


def code_of(model: str | None, task: str) -> str:
    """Hash of the code that computes runs of `model` on a dataset with `task`: information, and where golden values are compared again.

    Arguments and errors as `modules_of_run`.
    """
    return code_digest(["gt_bench.experiment.run", "gt_bench.encodings.compute", *modules_of_run(model, task).values()])
