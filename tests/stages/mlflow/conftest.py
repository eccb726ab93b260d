"""A fresh tracking store, and results with their records to put into it."""

import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest

from tests.conftest import ROOT
from tests.stages.cells import make_record, make_result, without_data

ET = "edge-transformer/cornell/edge-transformer"
GCN = "edge-transformer/cornell/gcn"
OPEN = f"""
import sys; sys.path.insert(0, {str(ROOT)!r})
from stages.mlflow.experiment import Mirror
Mirror(sys.argv[1], "first")
"""


@pytest.fixture(scope="session")
def empty(tmp_path_factory):
    """A database with its schema, created by two processes at once, which is how it breaks where nobody takes care."""
    path = tmp_path_factory.mktemp("mlruns") / "mlflow.db"
    both = [subprocess.Popen([sys.executable, "-c", OPEN, f"sqlite:///{path}"]) for _ in range(2)]
    assert [p.wait(120) for p in both] == [0, 0]
    return path


@pytest.fixture
def store(empty, tmp_path, monkeypatch):
    """`store("name")` -> URI of a fresh tracking store, and MLFLOW_TRACKING_URI set to it."""

    def fresh(name: str) -> str:
        path = tmp_path / name / "mlflow.db"
        path.parent.mkdir()
        shutil.copy(empty, path)
        uri = f"sqlite:///{path}"
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        return uri

    return fresh


@pytest.fixture(scope="module")
def world():
    """A cell that went well, one with a NaN loss and no memory, one without data."""
    et = [make_record(ET, 0, test=0.6), make_record(ET, 1, test=0.7)]
    gcn = [make_record(GCN, 0, "diverged"), make_record(GCN, 1, "oom", epochs=0)]
    results = [make_result(ET, et), make_result(GCN, gcn, method="GCN"), without_data("edge-transformer/texas/gcn")]
    return SimpleNamespace(results=results, by_cell={ET: et, GCN: gcn}, records={r["digest"]: r for r in et + gcn})
