"""Start of a process: garbage collection is rare while code is imported, normal afterwards; errors of the device."""

import subprocess
import sys

import pytest

from gt_bench.config.params import RunSettings
from gt_bench.config.schema import RecipeError
from gt_bench.runtime.startup import prepare_process
from tests.conftest import ROOT
from tests.refusals import refused

pytestmark = pytest.mark.slow

BEGIN = "import gc; usual = gc.get_threshold(); from gt_bench.runtime import startup as module; "
START = BEGIN + "module.collect_garbage_rarely(); "


def printed(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_stage_imports_its_code_with_rare_collections(tmp_path):
    (tmp_path / "shown.py").write_text(
        "import gc\nTHRESHOLD = gc.get_threshold()\ndef main():\n    print(THRESHOLD[0])\n"
    )
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from gt_bench.runtime.startup import run_module; "
        "run_module('shown')"
    )
    assert printed(code) == "50000"


def test_loaded_objects_are_frozen_once_and_collections_are_normal_afterwards():
    code = (
        "module.freeze_loaded_objects(); first = gc.get_freeze_count(); more = [[] for _ in range(1000)]; "
        "module.freeze_loaded_objects(); print(first > 1000, gc.get_freeze_count() <= first, gc.get_threshold() == "
        "usual)"
    )
    assert printed(START + code) == "True True True"
    assert printed(BEGIN + code) == "False True True"


def test_garbage_of_a_run_is_found_after_it():
    code = (
        "import weakref; module.freeze_loaded_objects(); Node = type('Node', (), {}); node = Node(); node.me = node; "
        "gone = weakref.ref(node); del node; gc.collect(); print(gone() is None)"
    )
    assert printed(START + code) == "True"


def test_a_run_freezes_what_is_loaded(project, monkeypatch):
    from gt_bench.config.grid import load_grid
    from gt_bench.pipeline.train import train_cell
    from tests.gt_bench.conftest import pack_web

    called = []
    monkeypatch.setattr("gt_bench.experiment.compute.freeze_loaded_objects", lambda: called.append(True))
    pack_web(project.root / "data")
    project.recipe(seeds=[0], epochs=1, model={"name": "mlp", "hidden_dim": 8, "num_layers": 2})
    grid = load_grid()
    train_cell(grid.find("small/web/mlp"), grid)
    assert called


def test_an_unknown_device_is_an_error_in_params():
    with refused(RecipeError, file="params.yaml", place="run.device", value="cuda:99"):
        prepare_process(RunSettings(device="cuda:99"))
