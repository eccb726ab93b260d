"""A fixture of tests of records."""

import pytest

from gt_bench.data.registry import catalog
from gt_bench.data.spec import DatasetSpec
from tests.gt_bench.shipping import edit_header, train


@pytest.fixture
def trained(project, monkeypatch):
    """The project after training its cell; `web` is a dataset of the catalog, packed from its current spec."""
    spec = DatasetSpec(name="web", task="node-classification", metric="accuracy", prepare=print, level="node")
    monkeypatch.setitem(catalog(), "web", spec)
    edit_header(provenance={"spec": spec.digest})
    project.recipe()
    train()
    return project
