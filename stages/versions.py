"""Declared versions: what of the code takes part in the identity of a run.

A module whose code decides numbers may say `VERSION = 2` at its top level; a module that says nothing has version 1. A change that
alters a number raises the version of the module that it is in, so that runs of before and after have different keys; any other
change leaves it. Golden values (stages/golden.py) find a change whose version was forgotten.
"""

import ast
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from gt_models.registry import model_module
from stages.errors import UserError
from stages.fingerprint import code_digest, source_file
from stages.tasks import task_module

TRAINER = "stages.engine.loop"
# keys of a recipe that bring code of their own, and the module that has its version
PROTOCOLS = {
    "subgraphs": "stages.engine.subgraphs",
    "targets": "stages.engine.targets",
    "start": "stages.engine.weights",
    "processes": "stages.engine.data_parallel",
}


class VersionError(UserError, ValueError):
    """A version that is no whole number above 0; the message names file and line."""


def version_of(module: str) -> int:
    """The version that a module declares; read from its source, so that nothing is imported.

    Raises VersionError, and ModuleNotFoundError for a module that does not exist.
    """
    path = source_file(module)
    if path is None:
        raise ModuleNotFoundError(f"no module {module}")
    return _declared(path, path.stat().st_mtime_ns)


@cache
def _declared(path: Path, _mtime: int) -> int:
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if not any(isinstance(target, ast.Name) and target.id == "VERSION" for target in targets):
            continue
        value = node.value.value if isinstance(node.value, ast.Constant) else None
        if type(value) is not int or value < 1:
            raise VersionError(f"{path}, line {node.lineno}: VERSION must be a whole number above 0, written as such: VERSION = 2")
        return value
    return 1


def modules_of_run(model: str | None, task: str, protocol: Iterable[str] = ()) -> dict[str, str]:
    """By component (model, task, trainer, and each key of `PROTOCOLS` that the recipe has) the module that declares its version.

    Args:
        model: name in the registry; None for a user's own model, which has the digest of its files instead.
        task: name of the dataset's task.
        protocol: keys of the recipe.

    Raises KeyError for a model or task that does not exist.
    """
    modules = {"model": model_module(model)} if model is not None else {}
    modules |= {"task": task_module(task), "trainer": TRAINER}
    return modules | {key: PROTOCOLS[key] for key in sorted(PROTOCOLS.keys() & set(protocol))}


def run_versions(model: str | None, task: str, protocol: Iterable[str] = ()) -> dict[str, int]:
    """By component the version that takes part in the key of a run; arguments and errors as `modules_of_run`."""
    return {component: version_of(module) for component, module in modules_of_run(model, task, protocol).items()}


def code_of(model: str | None, task: str) -> str:
    """Hash of the code that computes runs of `model` on a dataset with `task`: information, and where golden values are compared again.

    Arguments and errors as `modules_of_run`.
    """
    return code_digest(["stages.runs", "stages.datasets.encoding", *modules_of_run(model, task).values()])


def version_text(versions: Mapping[str, int], modified: bool = False) -> str:
    """The versions of a run in words, for a person."""
    parts = [f"{component} version {version}" for component, version in versions.items()]
    return ", ".join([*parts, "modified"] if modified else parts)
