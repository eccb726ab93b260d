"""No storage of studies and no MLflow server of the environment."""

import pytest

from gt_bench.search.storage import STORAGE


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch):
    for name in (STORAGE, "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
