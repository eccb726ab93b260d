"""Training runs on generated data: complete, or killed and resumed."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from gt_bench.config.params import RunSettings
from gt_bench.config.recipe import Recipe
from gt_bench.data.packed import PackedDataset
from gt_bench.encodings.compute import encode
from gt_bench.encodings.requests import requests
from gt_bench.experiment.run import Experiment
from gt_bench.records.run import RunResult
from gt_bench.store.run_store import Store
from gt_bench.training.trainer import Run
from tests.gt_bench.conftest import RECIPE


class Killed(BaseException):
    pass


def kill_at(last: int) -> Callable[[int, dict], None]:
    """A callback that kills a run in this epoch, before its checkpoint is written."""

    def kill(epoch: int, values: dict) -> None:
        if epoch == last:
            raise Killed

    return kill


def experiment(
    root: Path, dataset: str, store: str = "store", settings: dict[str, Any] | None = None, **changes: Any
) -> Experiment:
    """Creates an Experiment on root/packed/DATASET with the small recipe and `changes`, and computes its encodings."""
    recipe = Recipe(**{k: v for k, v in {**RECIPE, "seeds": [0], **changes}.items() if v is not None})
    for name, arguments in requests(recipe):
        encode(PackedDataset.open(root / "packed" / dataset), root / "encodings" / dataset, name, arguments)
    run = RunSettings(**{"device": "cpu", "checkpoint_seconds": 0, "tracking": False} | (settings or {}))
    return Experiment(recipe, "recipe.yaml", dataset, run, Store(root / store), root)


def assert_resumes(
    root: Path, dataset: str, killed_at: int = 2, seed: int = 0, **changes: Any
) -> tuple[RunResult, Run]:
    """Checks that a run that is killed after epoch `killed_at` and resumed has a bit-identical record.

    Returns the deterministic part of the record, and the finished run with the tested weights.
    """
    runs: list[Run] = []

    def kept(kind: type) -> type:
        class Kept(kind):
            def __init__(self, *arguments, **named):
                super().__init__(*arguments, **named)
                runs.append(self)

        return Kept

    whole = experiment(root, dataset, "whole", **changes)
    whole.task.runner = kept(whole.task.runner or Run)
    record, computed = whole.run(seed)
    assert computed
    assert record.run.status == "ok", record.run.error
    broken = experiment(root, dataset, "broken", **changes)
    with suppress(Killed):
        broken.run(seed, on_epoch=kill_at(killed_at + 1))
    assert list((root / "broken").rglob("checkpoint.safetensors"))
    torch.manual_seed(999)  # the state of the generator must not matter
    resumed, _ = experiment(root, dataset, "broken", **changes).run(seed)
    assert resumed.run == record.run
    return record.run, runs[0]
