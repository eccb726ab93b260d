"""Imports that import-linter's contracts in pyproject.toml do not check."""

import re
import subprocess
import sys
from pathlib import Path

import networkx as nx
import pytest

from gt_bench.utils.code_digest import PACKAGES, _imports
from tests.conftest import ROOT


def cycles(root: Path) -> list[list[str]]:
    """Import cycles below `root`, one list of modules each; imports in functions and for types only count too."""
    names = {
        ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        for package in PACKAGES
        for path in (root / package).rglob("*.py")
    }
    # a list: networkx takes a TypeError of a generator for a graph without edges
    graph = nx.DiGraph([(name, other) for name in names for other in _imports(name, root) if other != name])
    return sorted(sorted(found) for found in nx.strongly_connected_components(graph) if len(found) > 1)


@pytest.mark.slow
def test_no_modules_import_each_other():
    assert cycles(ROOT) == [], (
        "move what both need into a module of its own: an import within a function only hides a cycle"
    )


def test_an_import_within_a_function_closes_a_cycle_too(tmp_path):
    (tmp_path / "gt_bench/package").mkdir(parents=True)
    (tmp_path / "gt_bench/one.py").write_text("from gt_bench.package import two\n")
    (tmp_path / "gt_bench/package/__init__.py").write_text("")
    (tmp_path / "gt_bench/package/two.py").write_text("import json\n")
    assert cycles(tmp_path) == []
    (tmp_path / "gt_bench/package/two.py").write_text("def f():\n    from gt_bench.one import two\n")
    assert cycles(tmp_path) == [["gt_bench.one", "gt_bench.package.two"]]


def test_no_module_imports_a_private_name():
    private = re.compile(r"^\s*from gt_bench[\w.]* import (.*\b_[a-z]\w*.*)$", re.M)
    found = {
        str(path.relative_to(ROOT)): private.findall(path.read_text()) for path in (ROOT / "gt_bench").rglob("*.py")
    }
    assert {name: taken for name, taken in found.items() if taken} == {}


def test_only_tracking_imports_mlflow():
    imports = re.compile(r"^\s*(import mlflow|from mlflow)\b", re.M)
    found = {path.parent for path in (ROOT / "gt_bench").rglob("*.py") if imports.search(path.read_text())}
    assert found == {ROOT / "gt_bench" / "tracking"}


@pytest.mark.parametrize("package", ["gt_bench", "stages", "gt_models"])
def test_importing_a_package_has_no_side_effects(package):
    code = (
        "import gc, signal, sys; "
        "state = lambda: (gc.get_threshold(), signal.getsignal(signal.SIGINT), "
        "signal.pthread_sigmask(signal.SIG_BLOCK, ())); "
        f"before = state(); import {package}; print(before == state(), 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "True False\n"


def test_a_stage_is_an_entry_point_of_at_most_forty_lines():
    stages = {path.stem: len(path.read_text().splitlines()) for path in (ROOT / "stages").glob("*.py")}
    assert stages.keys() == {"__init__", "state", "download", "encode", "tune", "train", "leaderboard"}
    assert max(stages.values()) <= 40


def test_no_test_imports_another_test():
    found = re.compile(r"^\s*(?:from|import) tests\.(?:\w+\.)*test_\w+", re.M)
    wrong = [str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("*.py") if found.search(path.read_text())]
    assert wrong == [], "move what both need into a module that is no test, such as cases.py"
