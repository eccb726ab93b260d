"""A miniature project, from raw file to leaderboard; each stage runs in a forked process in a fraction of a second.

A stage writes the same bits on every run: measured values (seconds, memory, times) are constant, so that two folders
can be compared file by file.
"""

import contextlib
import csv
import hashlib
import importlib
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from gt_bench.config.grid import load_grid
from gt_bench.data import pins
from gt_bench.data.packed_writer import pack
from gt_bench.data.prepare import prepare
from gt_bench.data.registry import catalog
from gt_bench.data.spec import DatasetSpec, RemoteFile
from gt_bench.experiment import compute, record
from gt_bench.forecasting import cache
from gt_bench.pipeline.encode import encode_dataset
from gt_bench.pipeline.leaderboard import leaderboard
from gt_bench.pipeline.page import write_page
from gt_bench.pipeline.state import write_state
from gt_bench.pipeline.train import train_cell
from gt_bench.pipeline.tune import tune_cell
from gt_bench.provenance.transfer import export_cells, import_records
from gt_bench.records.run import Session
from gt_bench.runtime import checkout, environment
from gt_bench.scheduling import job
from gt_bench.search import artifacts
from gt_bench.store.shipped_files import read
from gt_bench.tracking.mirror import QUIET
from gt_bench.tracking.sqlite import OWN
from gt_bench.utils.code_digest import code_digest
from gt_bench.utils.io import write_bytes
from gt_bench.utils.paths import recipe_file
from tests.forked import Forked
from tests.gt_bench.conftest import COMMIT
from tests.gt_bench.tracking.conftest import snapshot

SEARCHED, PLAIN = "small/mini/mlp", "small/mini/gcn"
MODEL = {"hidden_dim": 8, "num_layers": 2, "dropout": 0.2}
COMMON = {"optimizer": {"name": "adam", "lr": 0.01}, "epochs": 6, "seeds": [0, 1]}
RECIPES = {
    SEARCHED: {
        "model": {"name": "mlp", **MODEL}, **COMMON,
        "search": {
            "trials": 7, "seeds": [0], "warmup_epochs": 1,
            "space": {
                "model.dropout": {"choices": [0.0, 0.5]}, "optimizer.lr": {"low": 1e-3, "high": 1e-1, "log": True},
            },
        },
    },
    PLAIN: {"model": {"name": "gcn", **MODEL, "laplacian_dim": 2}, "encodings": {"laplacian": {"k": 2}}, **COMMON},
}  # fmt: skip


def _raw() -> dict[str, bytes]:
    """The raw files: sixty nodes of three classes, and two splits of them."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 60)
    x = rng.normal(size=(60, 5)).astype(np.float32)
    x[np.arange(60), y] += 1.5
    graph = {"x": x.tolist(), "y": y.tolist(), "edges": rng.integers(0, 60, (2, 180)).tolist()}
    split = [rng.permutation(np.arange(60) % 3 + 1).tolist() for _ in range(2)]
    return {"mini/graph.json": json.dumps(graph).encode(), "mini/split.json": json.dumps(split).encode()}


RAW = _raw()


def _prepare(spec: DatasetSpec, paths: Any, folder: Path) -> None:
    graph, split = (json.loads(paths[name].read_text()) for name in RAW)
    header = spec.header(in_dim=5, out_dim=3, num_splits=2)
    arrays = {"num_nodes": [60], "num_edges": [180], "edge_index": np.array(graph["edges"]), "split": np.array(split)}
    pack(folder, header, arrays | {"x": np.array(graph["x"], np.float32), "y": np.array(graph["y"])})


# the digest of the second file is not published: it is pinned on first use
FILES = tuple(
    RemoteFile(name, (), hashlib.sha256(content).hexdigest() if "graph" in name else None, len(content))
    for name, content in RAW.items()
)
SPEC = DatasetSpec(
    "mini",
    "node-classification",
    "accuracy",
    _prepare,
    FILES,
    {"nodes": 60, "classes": 3},
    level="node",
    split_kind="node",
)


class Still(environment.Clock):
    """A clock that does not move, and forgets the sessions of before."""

    @property
    def sessions(self) -> list[Session]:
        return [Session(started=environment.now(), commit="unknown", device="cpu")]

    @sessions.setter
    def sessions(self, value: list[Session]) -> None:
        pass

    @contextlib.contextmanager
    def timing(self, what: str) -> Iterator[None]:
        yield


def install() -> None:
    """Make this forked process one of the miniature."""
    catalog()["mini"] = SPEC
    pins.PATH = Path("data.lock.json")
    checkout.commit = lambda: COMMIT
    environment.now = record.now = lambda: "2026-01-01T00:00:00+00:00"
    compute.Clock = Still
    record.memory_limit_mib = lambda device: 1000.0
    cache._measured = lambda *_: cache.ForecastCost(1.0, 100.0)
    environment.PeakMemory.read = lambda self: 100.0
    environment.Usage.read = lambda self: {"epoch": [], "memory_mib": [], "cpu_percent": []}
    # pictures, and a forest that weighs the searched keys, take seconds per search
    artifacts._plots = lambda base, study: [
        write_bytes(base.with_name(f"{base.name}.{name}.png"), b"a picture") for name in artifacts.PLOTS
    ]
    artifacts.importance_of = lambda study: {}
    # a job of `work` is a process of the miniature too
    job.COMMAND = (sys.executable, "-m", "tests.faults.stage", "job")
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    os.environ.pop("GT_DATA_MIRROR", None)


def cell(stage: Callable[..., Any], *names: str) -> Callable[[], None]:
    def work() -> None:
        grid = load_grid()
        for name in names:
            stage(grid.find(name), grid)

    return work


@dataclass(frozen=True)
class Stage:
    """`work`: the stage in the current folder; `outs`: files that DVC deletes before it runs a stage again."""

    work: Callable[[], Any]
    outs: tuple[str, ...] = ()


def import_elsewhere() -> None:
    """Import the exported records into the store of another workspace."""
    shipped = [read(path) for path in sorted(Path("suites").glob("*/records/*/*.json.gz"))]
    Path("other").mkdir(exist_ok=True)
    with contextlib.chdir("other"):
        import_records(shipped)


REPORTS = ("reports/small.*", "reports/metrics/small", "reports/curves/small", "reports/published/small.csv")
# in order; the last is the leaderboard again, with MLflow, which takes seconds
STAGES = {
    "state": Stage(lambda: write_state(load_grid())),
    "download": Stage(lambda: print(prepare("mini", "data", ["mirror"]).reason)),
    "encode": Stage(lambda: encode_dataset("mini", load_grid())),
    "tune": Stage(cell(tune_cell, SEARCHED), ("tuned/small/mini/*",)),
    "train": Stage(cell(train_cell, SEARCHED, PLAIN), ("results/small/mini/*.json",)),
    "export": Stage(lambda: export_cells(load_grid().suite("small"), Path("suites"), replace=True)),
    "import": Stage(import_elsewhere),
    "leaderboard": Stage(lambda: leaderboard("small", print_=False, mlflow=False), REPORTS),
    "tracking": Stage(lambda: leaderboard("small", print_=False), REPORTS),
}


def build(folder: Path) -> Path:
    """Create the project before its first stage, and return its folder."""
    for name, content in RAW.items():
        path = folder / "mirror" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    cells = {}
    for name, recipe in RECIPES.items():
        path = recipe_file(name, folder / "suites")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(recipe, sort_keys=False))
        _, dataset, model = name.split("/")
        settings = "tuned" if "search" in recipe else "recipes"
        recipe_path = recipe_file(name).as_posix()
        values = f"tuned/{name}.yaml" if settings == "tuned" else recipe_path
        cell = {"cell": name, "dataset": dataset, "model": model, "settings": settings}
        cells[name.replace("/", "-")] = cell | {"recipe": recipe_path, "values": values}
    searches = {key: entry for key, entry in cells.items() if entry["settings"] == "tuned"}
    run = {"parallel": 1, "checkpoint_seconds": 0, "tracking": False, "device": "cpu", "mirrors": ["mirror"]}
    grid = {"run": run, "datasets": ["mini"], "suites": ["small"], "cells": cells, "searches": searches}
    (folder / "params.yaml").write_text(yaml.safe_dump(grid))
    (folder / "mlruns").mkdir()
    (folder / "mlruns/id").write_text("the same in every tree\n")
    return folder


def started(work: Callable[[], Any], folder: Path) -> Forked:
    """Do `work` in a process of the miniature."""

    def installed() -> None:
        install()
        work()

    return Forked(installed, folder, folder.with_name(f"{folder.name}.log"))


def do(stage: str | Callable[[], Any], folder: Path) -> Forked:
    """Run a stage in a process, and wait for its end."""
    return started(STAGES[stage].work if isinstance(stage, str) else stage, folder).end()


def do_well(stage: str, folder: Path) -> Forked:
    child = do(stage, folder)
    assert child.status == 0, f"{stage}: status {child.status}: {child.said}"
    return child


def again(stage: str, folder: Path, to: str | None = None) -> str:
    """Run a stage and the following ones up to `to`, as `dvc repro` would; return the last one."""
    order = list(STAGES)
    last = max(order.index(stage), order.index(to or stage))
    for name in order[order.index(stage) : last + 1]:
        remove_outs(folder, name)
        do_well(name, folder)
    return order[last]


def remove_outs(folder: Path, stage: str) -> None:
    """Do what DVC does before it runs a stage."""
    for pattern in STAGES[stage].outs:
        for path in folder.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


# Modules that stages import: a fork has what its parent imported.
IMPORTED = (
    "gt_bench.pipeline.download", "gt_bench.encodings.compute", "concurrent.futures.process", "optuna",
    "optuna.storages.journal", "torch_geometric.nn", "torch.autograd.profiler", "scipy.optimize", "scipy.stats",
    "scipy.ndimage", "scipy.sparse.linalg", "gt_models.baselines.gcn", "gt_models.baselines.mlp",
    "gt_bench.tasks.standard", "gt_bench.reports.html.build", "gt_bench.claims.evaluate",
    "gt_bench.claims.checks.brec", "gt_bench.claims.checks.growth",
    "gt_bench.claims.checks.registry", "gt_bench.claims.experiments.registry",
    "gt_bench.provenance.staleness", "mlflow", "mlflow.store.tracking.sqlalchemy_store", "alembic.command",
    "matplotlib.pyplot",
    "matplotlib.backends.backend_agg", "alembic.config", "sqlalchemy.dialects.sqlite", "torch.profiler",
    "gt_models.kernels.sparse_linear", "gt_bench.cli.app", "gt_bench.api.evaluate",
    "gt_bench.api.sweep", "gt_bench.scheduling.local_queue", "gt_bench.pipeline.reproduce",
    "gt_bench.pipeline.train_cells", "dvc.cli", "dvc.commands.repro",
)  # fmt: skip


class World:
    """The project before each stage, and `after`: its files after each stage."""

    def __init__(self, folder: Path):
        os.environ.update(QUIET)
        for name in IMPORTED:
            importlib.import_module(name)
        code_digest(
            ["gt_bench.pipeline.leaderboard", "gt_models.baselines.gcn", *IMPORTED[:2]]
        )  # compute the digests of code once
        self.folder, self.seconds, self.after, self.work = folder, {}, {}, build(folder / "work")
        with contextlib.chdir(self.work):  # read the published numbers and the claims once
            write_page(load_grid(), out=folder / "page.html")
        for name in STAGES:
            shutil.copytree(self.work, folder / "before" / name)
            if name == "tracking":
                break
            start = time.monotonic()
            do_well(name, self.work)
            self.seconds[name] = time.monotonic() - start
            self.after[name] = tree(self.work)
        self.after["tracking"] = self.after["leaderboard"]

    @cached_property
    def tracked(self) -> dict[str, str]:
        """The content of MLflow at the end."""
        folder, start = self.fresh("tracking", "tracked"), time.monotonic()
        do_well("tracking", folder)
        self.seconds["tracking"] = time.monotonic() - start
        return tracked(folder)

    def wrong(self, stage: str, folder: Path) -> list[str]:
        """Return the files that differ from those after an undisturbed stage."""
        found, expected = tree(folder), self.after[stage]
        differ = sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))
        if stage == "tracking":
            held = tracked(folder)
            differ += sorted(
                f"tracked: {key}" for key in held.keys() | self.tracked.keys() if held.get(key) != self.tracked.get(key)
            )
        return differ

    def fresh(self, stage: str, name: str) -> Path:
        """Return a copy of the project before a stage."""
        return Path(shutil.copytree(self.folder / "before" / stage, self.folder / name))


# locks, what is known of a file by its inode, what depends on the kill, and temporary files of killed processes
IGNORED = re.compile(
    r"(^|/)(lock|.*\.lock|\.[^/]*\.checked\.json|\.[^/]*\.[a-z0-9_]{8}(/.*)?)$|^(studies|mlruns|mirror)/"
)


def tree(folder: Path) -> dict[str, str]:
    """Return every file of a stage with its digest; searches without trials whose process was killed."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if not path.is_file() or IGNORED.search(name) or ".locks/" in name or ".checked/" in name:
            continue
        if name.startswith("tuned/") and name.endswith(".csv"):
            with path.open(newline="") as file:
                rows = [{k: v for k, v in row.items() if k != "number"} for row in csv.DictReader(file)]
            found[name] = json.dumps([row for row in rows if not row["status"].startswith("killed")])
        else:
            found[name] = hashlib.sha256(_sorted_header(path)).hexdigest()
    return found


def _sorted_header(path: Path) -> bytes:
    """Return the content; of weights with sorted notes in the header, which safetensors writes in any order."""
    content = path.read_bytes()
    if path.name != "weights.safetensors":
        return content
    size = 8 + int.from_bytes(content[:8], "little")
    return json.dumps(json.loads(content[8:size]), sort_keys=True).encode() + content[size:]


def tracked(folder: Path) -> dict[str, str]:
    """Return everything in the project's tracking store except ids and times, by run and kind."""
    note = folder.with_name(f"{folder.name}.tracked")

    def read() -> None:
        found = {
            f"{kind} {cell} {digest} {part}": repr(value)
            for (kind, cell, digest), run in snapshot(OWN, "small").items()
            for part, value in run.items()
        }
        note.write_text(json.dumps(found))

    child = do(read, folder)
    assert child.status == 0, child.said
    return json.loads(note.read_text())
