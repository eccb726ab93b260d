"""Who imports whom: rooms never their entry points, and one room knows MLflow."""

import re

import pytest

from stages.fingerprint import closure
from tests.conftest import ROOT


@pytest.mark.parametrize(
    "room", ["stages.cells", "stages.search", "stages.forecast", "stages.records.kept", "stages.records.attest", "stages.records.staleness"]
)
def test_rooms_know_no_entry_point(room):
    assert not closure([room]) & {"stages.train", "stages.tune", "stages.cli"}


def test_train_and_tune_do_not_know_each_other():
    assert "stages.tune" not in closure(["stages.train"])
    assert "stages.train" not in closure(["stages.tune"])


def test_one_room_knows_mlflow():
    imports = re.compile(r"^\s*(import mlflow|from mlflow)\b", re.M)
    found = {path.parent for path in (ROOT / "stages").rglob("*.py") if imports.search(path.read_text())}
    assert found == {ROOT / "stages" / "mlflow"}
