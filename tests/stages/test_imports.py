"""Who imports whom: nobody in a circle, rooms never their entry points, the library nothing of the pipeline, and one room knows MLflow; tests mirror
the rooms."""

import re
from pathlib import Path

import networkx as nx
import pytest

from stages.fingerprint import PACKAGES, _imports, closure
from tests.conftest import ROOT


@pytest.mark.parametrize("room", ["stages.cells", "stages.search", "stages.forecast", "stages.records.kept", "stages.records.staleness"])
def test_rooms_know_no_entry_point(room):
    assert not closure([room]) & {"stages.train", "stages.tune", "stages.cli"}


def test_train_and_tune_do_not_know_each_other():
    assert "stages.tune" not in closure(["stages.train"])
    assert "stages.train" not in closure(["stages.tune"])


def circles(root: Path) -> list[list[str]]:
    """Modules of gt_models and stages below `root` that import each other, at the top, in a function or for types alone; a list for each circle."""
    names = {
        ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        for package in PACKAGES
        for path in (root / package).rglob("*.py")
    }
    graph = nx.DiGraph((name, other) for name in names for other in _imports(name, root) if other != name)
    return sorted(sorted(found) for found in nx.strongly_connected_components(graph) if len(found) > 1)


def test_no_modules_import_each_other_in_a_circle():
    assert circles(ROOT) == [], "move what both need into a module of its own: an import within a function only hides a circle"


def test_an_import_within_a_function_closes_a_circle_too(tmp_path):
    (tmp_path / "stages/room").mkdir(parents=True)
    (tmp_path / "stages/one.py").write_text("from stages.room import two\n")
    (tmp_path / "stages/room/__init__.py").write_text("")
    (tmp_path / "stages/room/two.py").write_text("import json\n")
    assert circles(tmp_path) == []
    (tmp_path / "stages/room/two.py").write_text("def f():\n    from stages.one import two\n")
    assert circles(tmp_path) == [["stages.one", "stages.room.two"]]


def test_no_module_takes_a_private_name_of_another():
    private = re.compile(r"^\s*from (?:stages|gt_bench)[\w.]* import (.*\b_[a-z]\w*.*)$", re.M)
    found = {
        str(path.relative_to(ROOT)): private.findall(path.read_text())
        for room in ("stages", "gt_bench")
        for path in (ROOT / room).rglob("*.py")
    }
    assert {name: taken for name, taken in found.items() if taken} == {}


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

    assert folders(ROOT / "tests/stages") == folders(ROOT / "stages")
