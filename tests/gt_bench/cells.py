"""Synthetic results and records in the format of the training stage, for tests of reports and tracking."""

import hashlib
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import yaml

from gt_bench.config.grid import Grid, load_grid
from gt_bench.records.base import FileModel
from gt_bench.records.cell import CellResult, Reduction
from gt_bench.records.run import Digests, RunRecord
from gt_bench.records.state import CellStatus
from gt_bench.store.run_store import SCHEMA, Store, run_digest, sealed
from gt_bench.utils.digest import digest_of
from gt_bench.utils.io import write_json

Model = TypeVar("Model", bound=FileModel)
ENVIRONMENT = {"python": "3.11.7", "torch": "2.13.0", "platform": "Linux", "commit": "0123abc" * 5 + "01234"}


def make_record(cell: str, seed: int, status: str = "ok", test: float = 0.65, epochs: int = 12) -> RunRecord:
    """A record with validation every second epoch; the loss of a diverged run ends in NaN."""
    _, dataset, model = cell.split("/")
    draw = random.Random(f"{cell} {seed}")
    val = [0.4 + 0.2 * draw.random() if e % 2 == 0 else None for e in range(1, epochs + 1)]
    val[3:4] = [0.61] if epochs > 3 else []  # the best one
    loss = [math.exp(-e / 5) + 0.1 * draw.random() for e in range(1, epochs + 1)]
    if status == "diverged":
        loss[-1] = math.nan
    good = status == "ok"
    recipe = {
        "model": {"name": model, "hidden_dim": 16},
        "optimizer": {"lr": 5e-4, "betas": [0.9, 0.999]},
        "epochs": epochs,
    }
    # a run with another result has another digest
    data, encodings = (hashlib.sha256(text.encode()).hexdigest() for text in (dataset, f"{status} {test}"))
    digests = Digests(recipe=digest_of(recipe), data=data, encodings=encodings)
    versions = {"model": 1, "task": 1, "trainer": 1}
    record = {
        "schema": SCHEMA,
        "digest": run_digest(recipe, seed, seed, digests, versions),
        "deterministic": {
            "status": status,
            "error": None if good else f"{status}: set by the test",
            "seed": seed,
            "split": seed,
            "recipe": recipe,
            "digests": digests.to_disk(),
            "versions": versions,
            "dataset": dataset,
            "metric": "accuracy",
            "direction": "max",
            "parameters": 1234,
            "epochs": {
                "epoch": list(range(1, epochs + 1)),
                "lr": [5e-4] * epochs,
                "train_loss": loss,
                "val_loss": [None if v is None else 1 - v for v in val],
                "val": val,
            },
            "best_epoch": 4 if good else None,
            "val": val[3] if good else None,
            "test": test if good else None,
            "test_metrics": {"accuracy": test} if good else {},
        },
        "measured": {
            "started": f"2026-11-20T10:{seed:02d}:00+00:00",
            "finished": f"2026-11-20T10:{seed:02d}:50+00:00",
            "seconds": 50.0,
            "train_seconds_per_epoch": 0.25 + seed,
            "eval_seconds_per_epoch": 0.1,
            "peak_memory_mib": 400.0 + seed,
            "device": "cpu",
            "threads": 2,
            "memory_limit_mib": 8000.0,
            "time_limit_seconds": None,
            "arguments": {"in_dim": 5, "hidden_dim": 16, "dropout": 0.1},
            "usage": {"epoch": [6, 12], "memory_mib": [300.5, 310.0], "cpu_percent": [99.0, 101.5]},
            "code": "c" * 64,
            "environment": ENVIRONMENT,
        },
    }
    return sealed(RunRecord.from_disk(record))


def changed(one: Model, **values: Any) -> Model:
    """A copy with other values, as a file has them; `run` and `measured` of a record are merged. Digests stay."""
    content = one.to_disk()
    for name, value in values.items():
        field = type(one).model_fields[name]
        key, merges = field.alias or name, name in ("run", "measured")
        content[key] = content[key] | value if merges else value
    return type(one).from_disk(content)


def reduction(text: str) -> Reduction | str:
    """`3 of 10 seeds` as a value; any other text as it is."""
    words = text.split()
    if len(words) != 4 or words[1] != "of":
        return text
    return Reduction(unit=words[3], have=int(words[0]), full=int(words[2]))


def make_result(
    cell: str, records: list[RunRecord], method: str | None = "ET", reduced: tuple[str, ...] = ()
) -> CellResult:
    suite, dataset, model = cell.split("/")
    failed = [r.run for r in records if r.run.status != "ok"]
    content = {
        "cell": cell,
        "suite": suite,
        "dataset": dataset,
        "model": model,
        "status": failed[0].status if failed else "ok",
        "reason": failed[0].error if failed else None,
        "metric": "accuracy",
        "direction": "max",
        "runs": [r.digest for r in records],
        "seeds": [r.run.seed for r in records],
        "recipe": {
            "model": {"name": model, "hidden_dim": 16},
            "optimizer": {"lr": 5e-4},
            "seeds": list(range(len(records))),
            "note": "x" * 900,
        },
        "reduced": [],
        "published": method
        and {"paper": "edge-transformer", "table": "Table 3", "method": method, "dataset": None, "metric": None},
        "search": None,
    }
    return CellResult.from_disk(content).model_copy(update={"reduced": [reduction(text) for text in reduced]})


def without_data(cell: str) -> CellResult:
    update = {"status": CellStatus.NO_DATA, "reason": "no source of texas answered", "metric": None}
    return make_result(cell, [], method="GCN").model_copy(update=update)


def write(root: Path, results: list[CellResult], records: list[RunRecord]) -> None:
    """Write results/ and store/ below `root`."""
    for result in results:
        write_json(root / "results" / f"{result.cell}.json", result.to_disk())
    for record in records:
        Store(root / "store").put(record)


def write_grid(root: Path, cells: list[str], **more: Any) -> Grid:
    """Write params.yaml with these cells below `root`."""
    keys = ("cell", "suite", "dataset", "model")
    named = [dict(zip(keys, (cell, *cell.split("/")), strict=True), settings="recipes") for cell in cells]
    grid = {f"{key}s": list(dict.fromkeys(cell[key] for cell in named)) for key in ("dataset", "suite")}
    listed = {cell["cell"].replace("/", "-"): {k: v for k, v in cell.items() if k != "suite"} for cell in named}
    (root / "params.yaml").write_text(yaml.safe_dump({**grid, "cells": listed, **more}, sort_keys=False))
    return load_grid(root / "params.yaml")


ET = "edge-transformer/cornell/edge-transformer"


def records(tests=(0.6, 0.65, 0.7), failed=()) -> list[RunRecord]:
    """Runs of ET: a successful one for each of `tests`, then one for each status in `failed`."""
    good = [make_record(ET, s, test=t) for s, t in enumerate(tests)]
    return good + [make_record(ET, len(good) + i, status=s) for i, s in enumerate(failed)]


def with_summary(row, **changes):
    """Returns a row of a leaderboard with other statistics."""
    return replace(row, summary=replace(row.summary, **changes))
