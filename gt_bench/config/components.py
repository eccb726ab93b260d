"""Which modules compute a run: model, task, trainer and parts of the recipe. See gt_bench/utils/versions.py."""

from collections.abc import Mapping
from functools import cache

from gt_bench.config.tasks import task_module
from gt_bench.utils.code_digest import code_digest
from gt_bench.utils.versions import modules_of_encodings, version_of
from gt_models.registry import model_module

TRAINER = "gt_bench.training.trainer"
# {key of a recipe that needs additional code: the module that declares its version}
MODULES_OF_KEYS = {
    "subgraphs": "gt_bench.training.subgraph_loader",
    "inductive": "gt_bench.training.inductive_loader",
    "features": "gt_bench.training.feature_preparation",
    "targets": "gt_bench.training.target_scaling",
    "start": "gt_bench.training.pretrained_init",
    "processes": "gt_bench.training.ddp",
    "head": "gt_models.layers.edge_head",
}


def modules_of_run(model: str | None, task: str, recipe: Mapping[str, object] | None = None) -> dict[str, str]:
    """Returns the module that declares the version of each component of a run.

    Components are the model, the task, the trainer, and each key of `MODULES_OF_KEYS` in the recipe. Versions of stored
    encodings are part of the digest of the encodings. A recipe with `subgraphs`, one on inductive data, and link
    prediction compute their encodings during training, so they are components of their runs.

    Args:
        model: name in the registry. None for a custom model, which is identified by the digest of its files.
        task: name of the dataset's task.
        recipe: `Recipe.decisive()`, with the key `inductive` for inductive data.

    Raises:
        KeyError: the model or task does not exist.
    """
    recipe = recipe or {}
    modules = {"model": model_module(model)} if model is not None else {}
    modules |= {"task": task_module(task), "trainer": TRAINER}
    modules |= {key: MODULES_OF_KEYS[key] for key in sorted(MODULES_OF_KEYS.keys() & recipe.keys())}
    encodings = recipe.get("encodings")
    computes = {"subgraphs", "inductive"} & recipe.keys() or task == "link-prediction"
    if computes and isinstance(encodings, Mapping):
        modules |= modules_of_encodings(encodings)
    return modules


def run_versions(model: str | None, task: str, recipe: Mapping[str, object] | None = None) -> dict[str, int]:
    """Returns the version of each component, which is part of the digest of a run.

    Arguments and errors are those of `modules_of_run`.
    """
    return {component: version_of(module) for component, module in modules_of_run(model, task, recipe).items()}


@cache
def code_of(model: str | None, task: str) -> str:
    """Returns the hash of the code that computes runs of `model` on a dataset with `task`.

    It is noted in records and is not part of any digest. If it changes, golden values are compared again. Arguments and
    errors are those of `modules_of_run`. A process computes it once: it takes 10 ms, and a leaderboard needs it for 90
    cells of 20 models.
    """
    return code_digest(["gt_bench.experiment.run", "gt_bench.encodings.compute", *modules_of_run(model, task).values()])
