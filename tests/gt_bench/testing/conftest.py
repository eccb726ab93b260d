"""A small grid whose datasets are in the catalog."""

import pytest

from gt_bench.data.registry import catalog
from gt_bench.data.spec import DatasetSpec


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
