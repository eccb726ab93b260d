"""Helpers of tests that write, register and train models of users."""

import multiprocessing
import pickle
import sys
import textwrap
from pathlib import Path

import pytest

from gt_bench.plugins import models
from gt_bench.runtime.worker_pool import TaskResult, portable
from gt_models import registry


@pytest.fixture(autouse=True)
def forgotten():
    """Forget after each test the models that it registered, and the package of `install`."""
    before = {name: registry.model_info(name) for name in registry.list_models()}
    yield
    registry._INFOS.clear()
    registry._INFOS.update(before)
    models._SOURCES.clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "acme"]:
        del sys.modules[name]


def write(name: str, text: str) -> str:
    """Write a Python file, without the common indentation of its text, and return its name."""
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(textwrap.dedent(text).lstrip())
    return name


def install(root: Path, group: str, entries: dict[str, str], monkeypatch) -> None:
    """Install in root/site a package `acme`, whose modules are written there, with these entry points."""
    write(f"{root}/site/acme-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    lines = (f"{name} = {value}\n" for name, value in entries.items())
    write(f"{root}/site/acme-1.0.dist-info/entry_points.txt", f"[{group}]\n" + "".join(lines))
    monkeypatch.syspath_prepend(f"{root}/site")


def _work(compute: bytes, pipe) -> None:
    try:
        result = TaskResult(pickle.loads(compute)(lambda *values: pipe.send(("epoch", values))))
    except Exception as error:
        result = TaskResult(error=portable(error))
    pipe.send(("ended", result))


def _compute_in_a_fork(compute, run, on_epoch):
    """The interface of `compute_in_new_process`."""
    fork = multiprocessing.get_context("fork")
    pipe, other = fork.Pipe(duplex=False)
    process = fork.Process(target=_work, args=(pickle.dumps(compute), other))
    process.start()
    other.close()
    while (message := pipe.recv())[0] == "epoch":
        if on_epoch:
            on_epoch(*message[1])
    process.join()
    if message[1].error is not None:
        raise message[1].error
    return message[1].value


@pytest.fixture
def forked(monkeypatch):
    """Runs are computed in forks, without the seconds that a new interpreter needs for its imports.

    The other tests of such models and tests/gt_bench/runtime/test_fresh_process.py use new interpreters. So must a test
    whose model computes in several threads: those of OpenMP do not survive a fork.
    """
    import torch._dynamo  # noqa: F401 (slow to import: once, before the forks)

    monkeypatch.setattr("gt_bench.experiment.run.compute_in_new_process", _compute_in_a_fork)
