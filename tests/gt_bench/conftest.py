"""A small project in a temporary folder, with two datasets and a function that writes recipes and the grid.

The dataset `web` is one graph with node splits; `many` has many graphs.
"""

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml

from gt_bench.config.tasks import METRICS
from gt_bench.data.packed import PackedHeader
from gt_bench.data.packed_writer import pack
from gt_bench.data.registry import catalog
from gt_bench.data.spec import DatasetSpec
from gt_bench.pipeline.grid import main as write_grid
from gt_bench.records.run import RunRecord
from gt_bench.store.run_store import Store
from gt_bench.utils.paths import recipe_file
from tests.conftest import ROOT
from tests.gt_bench.custom_data import ours  # noqa: F401 (a fixture)
from tests.gt_bench.trained_cell import trained, trained_files  # noqa: F401 (fixtures)

COMMIT = "0123456789abcdef" * 2 + "01234567"
RECIPE = {
    "model": {"name": "mlp", "hidden_dim": 8, "num_layers": 2, "dropout": 0.2},
    "optimizer": {"name": "adam", "lr": 0.01},
    "epochs": 6,
    "seeds": [0, 1],
}


def header_of(name: str, task: str, **given: Any) -> PackedHeader:
    """The header of a packed dataset: level and kind of split are in the name of the task."""
    level = given.get("level", task.partition("-")[0])
    usual = {"level": level, "split_kind": level, "num_splits": 1, "in_dim": 1, "out_dim": 1}
    usual |= {"metric": METRICS[task][0]} if task in METRICS else {}
    return PackedHeader(name=name, task=task, **usual | given)


def pack_web(folder: Path, name: str = "web", nodes: int = 60, seed: int = 0) -> PackedHeader:
    """One graph with two splits and three classes that the features determine."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, nodes)
    x = rng.normal(size=(nodes, 5)).astype(np.float32)
    x[np.arange(nodes), y] += 1.5
    edges = rng.integers(0, nodes, (2, 3 * nodes))
    split = np.stack([rng.permutation(np.arange(nodes) % 3 + 1) for _ in range(2)])
    header = header_of(name, "node-classification", in_dim=5, out_dim=3, num_splits=2)
    arrays = {"num_nodes": [nodes], "num_edges": [edges.shape[1]], "edge_index": edges, "x": x, "y": y, "split": split}
    return pack(folder / "packed" / name, header, arrays)


def pack_many(folder: Path, name: str = "many", graphs: int = 30, seed: int = 0) -> PackedHeader:
    """Graphs of 3 to 8 nodes; the target is the mean of the first feature."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(3, 9, graphs)
    x = rng.normal(size=(sizes.sum(), 4)).astype(np.float32)
    starts = np.concatenate([[0], sizes.cumsum()])
    y = np.array([x[a:b, 0].mean() for a, b in zip(starts, starts[1:], strict=False)], np.float32)
    edges = np.concatenate([np.stack([np.arange(n), (np.arange(n) + 1) % n]) for n in sizes], 1)
    header = header_of(name, "graph-regression", in_dim=4)
    split = (np.arange(graphs) % 3 + 1)[None]
    arrays = {"num_nodes": sizes, "num_edges": sizes, "edge_index": edges, "x": x, "y": y, "split": split}
    return pack(folder / "packed" / name, header, arrays)


def write_yaml(tmp_path: Path, content, name: str = "recipe.yaml") -> Path:
    """Write a file with this content: text, or any other value as YAML."""
    path = tmp_path / name
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


@pytest.fixture
def project(tmp_path, monkeypatch):
    """`project.recipe(dataset, row, **changes)` writes a recipe and the grid; the working directory is the project."""
    monkeypatch.chdir(tmp_path)
    # the working tree of the tests may be dirty
    monkeypatch.setattr("gt_bench.runtime.checkout.commit", lambda: COMMIT)
    pack_web(tmp_path / "data")
    pack_many(tmp_path / "data")
    cells: dict[str, dict] = {}

    def recipe(
        dataset: str = "web",
        row: str = "mlp",
        suite: str = "small",
        run: dict | None = None,
        limits: dict | None = None,
        **changes,
    ):
        content = {**RECIPE, **changes}
        path = recipe_file(f"{suite}/{dataset}/{row}", tmp_path / "suites")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump({k: v for k, v in content.items() if v is not None}, sort_keys=False))
        cell = {"cell": f"{suite}/{dataset}/{row}", "dataset": dataset, "model": row}
        cell["settings"] = "tuned" if "search" in changes else "recipes"
        cell |= {"after": changes["start"]["cell"]} if "start" in changes else {}
        cells[f"{suite}-{dataset}-{row}"] = cell
        grid = {
            "run": {"parallel": 1, "checkpoint_seconds": 0, "tracking": False, **(run or {})},
            "limits": limits or {},
            "datasets": ["web", "many"],
            "suites": ["small"],
            "cells": {k: v for k, v in cells.items() if "after" not in v},
            "finetunes": {k: v for k, v in cells.items() if "after" in v},
            "searches": {k: v for k, v in cells.items() if v["settings"] == "tuned"},
        }
        (tmp_path / "params.yaml").write_text(yaml.safe_dump(grid))
        return path

    def records() -> list[RunRecord]:
        return list(Store(tmp_path / "store").records())

    return SimpleNamespace(root=tmp_path, recipe=recipe, records=records)


@pytest.fixture
def grid(project, monkeypatch):
    """The small project, whose datasets are in the catalog and packed."""
    for name, task, metric, level, kind in (
        ("web", "node-classification", "accuracy", "node", "node"),
        ("many", "graph-regression", "mae", "graph", "graph"),
    ):
        spec = DatasetSpec(name=name, task=task, metric=metric, prepare=print, level=level, split_kind=kind)
        monkeypatch.setitem(catalog(), name, spec)
    return project


@pytest.fixture
def repository(tmp_path, monkeypatch) -> Path:
    """One real cell, embedded/chains/mlp, in a temporary folder, which is the working directory."""
    monkeypatch.chdir(tmp_path)
    recipe = Path("suites/embedded/recipes/chains/mlp.yaml")
    recipe.parent.mkdir(parents=True)
    shutil.copy(ROOT / recipe, recipe)
    Path("params.yaml").write_text("limits: {}\n")
    assert write_grid([]) == 0
    return tmp_path


@pytest.fixture(autouse=True)
def lock_file(tmp_path, monkeypatch) -> Path:
    """Each test has its own data.lock.json: none is written into the checkout."""
    monkeypatch.setattr("gt_bench.data.pins.PATH", tmp_path / "data.lock.json")
    return tmp_path / "data.lock.json"


@pytest.fixture
def pictures():
    """Searches draw their pictures, which take longer than their trials."""


@pytest.fixture(autouse=True)
def _no_pictures(request, monkeypatch):
    if "pictures" not in request.fixturenames:
        monkeypatch.setattr("gt_bench.search.artifacts._plots", lambda *_: None)
