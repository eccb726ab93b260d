"""A fixture of tests of records."""

import shutil

import pytest

from gt_bench.data.registry import catalog
from gt_bench.data.spec import DatasetSpec
from tests.gt_bench.shipping import edit_header, train


@pytest.fixture(scope="session")
def trained_files(tmp_path_factory):
    """Folder of the files of `trained`, which its first use creates."""
    return tmp_path_factory.mktemp("trained") / "files"


@pytest.fixture
def trained(project, monkeypatch, trained_files):
    """The project after training its cell; `web` is a dataset of the catalog, packed from its current spec."""
    spec = DatasetSpec(name="web", task="node-classification", metric="accuracy", prepare=print, level="node")
    monkeypatch.setitem(catalog(), "web", spec)
    edit_header(provenance={"spec": spec.digest})
    project.recipe()
    if trained_files.exists():
        shutil.copytree(trained_files, project.root, dirs_exist_ok=True)
    else:
        train()
        shutil.copytree(project.root, trained_files)
    return project
