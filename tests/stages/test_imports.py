"""Who imports whom: rooms never their entry points, the library nothing of the pipeline, and one room knows MLflow; tests mirror the rooms."""

import re
from pathlib import Path

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


def test_the_library_knows_nothing_of_the_pipeline():
    imports = re.compile(r"^\s*(import|from) (stages|gt_bench|mlflow|dvc)\b", re.M)
    assert not [path for path in (ROOT / "gt_models").rglob("*.py") if imports.search(path.read_text())]


def test_tests_have_the_folders_of_what_they_test():
    def folders(root: Path) -> set[str]:
        return {str(path.parent.relative_to(root)) for path in root.rglob("__init__.py")}

    assert folders(ROOT / "stages") - folders(ROOT / "tests/stages") == {
        "report/page"
    }  # tests/stages/report/test_page.py: one page, one file
    assert not folders(ROOT / "tests/stages") - folders(ROOT / "stages")
