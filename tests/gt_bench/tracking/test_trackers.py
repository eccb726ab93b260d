"""Loggers by name; a logger that fails loses no run."""

import json
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from gt_bench.config.grid import load_grid
from gt_bench.config.params import RunSettings
from gt_bench.config.schema import RecipeError
from gt_bench.pipeline.train import train_cell
from gt_bench.tracking import trackers
from gt_bench.tracking.tensorboard import TensorBoard
from tests.refusals import refused

CELL = "small/web/mlp"


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    pytest.importorskip("tensorboard", reason="no tensorboard: pip install tensorboard")
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("fails", ["start_seed", "log_epoch", "finish_seed", "close", "folder"])
def test_a_logger_that_fails_loses_no_run(project, monkeypatch, capfd, fails):
    def fail(*_):
        raise OSError("no space left")

    if fails == "folder":
        Path("tensorboard").write_text("a file")
    else:
        monkeypatch.setattr(TensorBoard, fails, fail)
    project.recipe(run={"tracking": ["tensorboard"], "parallel": 1})
    grid = load_grid()
    assert train_cell(grid.find(CELL), grid).status == "ok"
    assert len(project.records()) == 2
    err = capfd.readouterr().err
    assert err.count("warning: tensorboard cannot be used") == 1
    assert "Traceback" not in err


@pytest.mark.parametrize("found", [None, ModuleSpec("tensorboard", None)], ids=["nothing", "folder of event files"])
def test_a_logger_that_is_not_installed_is_an_error_before_training(project, monkeypatch, found):
    project.recipe(run={"tracking": ["mlflow", "tensorboard"]})
    grid = load_grid()
    monkeypatch.setattr(trackers, "find_spec", lambda _: found)
    with refused(RecipeError, place="run.tracking", remedy="run `pip install tensorboard`"):
        train_cell(grid.find(CELL), grid)
    assert project.records() == []


@pytest.mark.parametrize("tracking", [["mlflow", "tensorbord"], "tensorboard", 1, [["mlflow"]]])
def test_an_unknown_logger_names_the_known_ones(project, tracking):
    project.recipe(run={"tracking": tracking})
    with refused(RecipeError, place="run.tracking", value=tracking):
        load_grid()


def test_true_means_mlflow_and_false_none():
    assert RunSettings().trackers == RunSettings(tracking=True).trackers == ["mlflow"]
    assert RunSettings(tracking=False).trackers == []
    assert trackers.open_trackers(None, RunSettings(tracking=False), {}, {}) is None
    assert RunSettings(tracking=["tensorboard", "mlflow"]).trackers == ["tensorboard", "mlflow"]
    assert json.loads(RunSettings(tracking=["mlflow"]).model_dump_json())["tracking"] == ["mlflow"]
