"""User-supplied data, and a user's folder: params.yaml and two datasets of the catalog.

`web` is one graph with node classes; `many` has several graphs with one number each.
"""

from pathlib import Path

import numpy as np
import pytest

from gt_bench.config.tasks import METRICS
from gt_bench.data.custom.dataset import custom_dataset
from gt_bench.data.packed import PackedDataset
from gt_bench.data.registry import catalog
from gt_bench.data.spec import DatasetSpec

COMMIT = "0123456789abcdef" * 2 + "01234567"


def mine(source: object, task: str = "node-classification", name: str = "mine", **options: object) -> DatasetSpec:
    """User-supplied data; the metric is by default the usual one of the task."""
    return custom_dataset(name, source, **{"task": task, "metric": METRICS[task][0]} | options)


def packed(source: object, folder: Path, task: str = "node-classification", **options: object) -> PackedDataset:
    """Pack user-supplied data."""
    spec = mine(source, task, **options)
    spec.prepare(spec, {}, folder)
    return PackedDataset.open(folder)


def write_web(folder: Path, nodes: int = 60) -> Path:
    """One graph with three classes that the features determine."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, nodes)
    x = rng.normal(size=(nodes, 4))
    x[np.arange(nodes), y] += 2.0
    folder.mkdir(parents=True)
    rows = [",".join([str(c), *(f"{v:.4f}" for v in features)]) for c, features in zip(y, x, strict=True)]
    (folder / "nodes.csv").write_text("\n".join(["y,a,b,c,d", *rows]) + "\n")
    edges = rng.integers(0, nodes, (3 * nodes, 2))
    (folder / "edges.csv").write_text("\n".join(["source,target", *(f"{a},{b}" for a, b in edges)]) + "\n")
    return folder


def write_many(folder: Path, graphs: int = 30) -> Path:
    """Rings of 3 to 7 nodes with atoms of four kinds; the target is the number of atoms of kind 0, and a half."""
    rng = np.random.default_rng(0)
    nodes, edges, targets = ["graph,atom"], ["graph,source,target"], ["y"]
    for graph in range(graphs):
        kinds = rng.integers(0, 4, rng.integers(3, 8))
        kinds[0] = 3
        nodes += [f"{graph},{kind}" for kind in kinds]
        for i in range(len(kinds)):
            j = (i + 1) % len(kinds)
            edges += [f"{graph},{i},{j}", f"{graph},{j},{i}"]
        targets.append(f"{(kinds == 0).sum() + 0.5}")
    folder.mkdir(parents=True)
    for name, lines in (("nodes", nodes), ("edges", edges), ("graphs", targets)):
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def ours(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("gt_bench.runtime.checkout.commit", lambda: COMMIT)
    web = custom_dataset(
        "web", write_web(tmp_path / "raw/web"), task="node-classification", metric="accuracy", num_splits=2
    )
    many = custom_dataset("many", write_many(tmp_path / "raw/many"), task="graph-regression", metric="mae")
    for spec in (web, many):
        monkeypatch.setitem(catalog(), spec.name, spec)
    Path("params.yaml").write_text("run: {tracking: false, parallel: 1}\n")
    Path("grid.yaml").write_text("datasets: [web, many]\nsuites: []\ncells: {}\n")
    return tmp_path
