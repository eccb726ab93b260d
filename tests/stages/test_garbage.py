"""Searches for reference cycles: seldom in a process of ours until it trains, as ever in somebody else's."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOOK = "import gc, sys; usual = gc.get_threshold(); sys.argv[0] = {name!r}; import stages; from stages import garbage; "


def said(name: str, code: str) -> str:
    done = subprocess.run([sys.executable, "-c", LOOK.format(name=name) + code], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize(("name", "ours"), [("-m", True), ("/usr/bin/gt-bench", True), ("notebook.py", False)])
def test_only_a_process_of_ours_searches_seldom(name, ours):
    assert said(name, f"print(gc.get_threshold() == (garbage.SELDOM if {ours} else usual))") == "True"


def test_what_is_loaded_is_spared_once_and_then_searches_are_as_ever():
    code = (
        "garbage.spare_what_is_loaded(); first = gc.get_freeze_count(); more = [[] for _ in range(1000)]; "
        "garbage.spare_what_is_loaded(); print(first > 1000, gc.get_freeze_count() <= first, gc.get_threshold() == usual)"
    )
    assert said("-m", code) == "True True True"
    assert said("notebook.py", code) == "False True True"


def test_garbage_of_a_run_is_found_after_it():
    code = (
        "import weakref; garbage.spare_what_is_loaded(); Node = type('Node', (), {}); node = Node(); node.me = node; "
        "gone = weakref.ref(node); del node; gc.collect(); print(gone() is None)"
    )
    assert said("-m", code) == "True"


def test_a_run_spares_what_is_loaded(project, monkeypatch):
    from stages.params import load_grid
    from stages.train import train_cell
    from tests.stages.conftest import pack_web

    called = []
    monkeypatch.setattr("stages.runs.spare_what_is_loaded", lambda: called.append(True))
    pack_web(project.root / "data")
    project.recipe(seeds=[0], epochs=1, model={"name": "mlp", "hidden_dim": 8, "num_layers": 2})
    grid = load_grid()
    train_cell(grid.find("small/web/mlp"), grid)
    assert called
