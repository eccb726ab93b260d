"""`make reproduce`: cells in parallel, and after a failure the partial leaderboard and a description of the failure."""

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from gt_bench.cli import app
from gt_bench.config.grid import load_grid
from gt_bench.config.params import Limits
from gt_bench.config.schema import RecipeError
from gt_bench.forecasting.counted import announcement
from gt_bench.pipeline.reproduce import reproduce, without_git
from gt_bench.pipeline.train import train_cell
from gt_bench.runtime.worker_pool import Lost
from gt_bench.utils.dvc import without_git_user
from gt_bench.utils.errors import DatasetError
from tests.conftest import ROOT
from tests.refusals import refused

CELL = "small/web/mlp"


@pytest.fixture
def one_seed(project):
    """A cell with two seeds, one of them stored; its result is missing, as DVC leaves it before a stage runs."""
    project.recipe(seeds=[0])
    grid = load_grid()
    train_cell(grid.find(CELL), grid)
    Path("results", f"{CELL}.json").unlink()
    project.recipe()
    return project


@pytest.fixture(autouse=True)
def dvc_speaks_to_nobody(monkeypatch):
    """Remove DVC's log handlers, which keep the stdout of the first test that ran it."""
    monkeypatch.setattr(logging.getLogger("dvc"), "handlers", [])


def chain(cells: list[str], train: str, encode: str = "true") -> None:
    """Create a repository whose train stages run the command `train`."""
    results = [{"results/${item.cell}.json": {"cache": False}}]
    reports = [{"reports/${item}.json": {"cache": False}}]
    stages = {
        "encode": {"foreach": ["web"], "do": {"cmd": encode}},
        "train": {
            "foreach": {cell.replace("/", "-"): {"cell": cell} for cell in cells},
            "do": {"cmd": train, "outs": results},
        },
        "leaderboard": {
            "foreach": ["small"],
            "do": {
                "cmd": "python -m stages.leaderboard ${item} --no-mlflow",
                "deps": ["results/${item}"],
                "outs": reports,
            },
        },
    }
    Path("dvc.yaml").write_text(yaml.safe_dump({"stages": stages}))
    subprocess.run(["git", "init", "-q"], check=True)
    Path(".dvc").mkdir()
    Path(".dvc/config").write_text("[core]\n    analytics = false\n")


@pytest.mark.slow
def test_a_copy_without_git_runs(one_seed, capsys, monkeypatch):
    """Make the folder a downloaded archive, or a copy without .git."""
    monkeypatch.setattr("gt_bench.pipeline.leaderboard.track", lambda *_: None)
    grid = load_grid()
    train_cell(grid.find(CELL), grid)
    Path("results", f"{CELL}.json").rename("kept.json")
    chain([CELL], train="cp kept.json results/${item.cell}.json")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    shutil.rmtree(".git")
    assert reproduce("small") == 0, capsys.readouterr()
    assert f"{Path.cwd()} is not a git repository: DVC runs without git" in capsys.readouterr().out
    assert "no_scm = True" in Path(".dvc/config.local").read_text()
    assert list(without_git()) == []


def test_a_repository_keeps_git(one_seed):
    chain([CELL], train="true")
    assert list(without_git()) == []
    assert not Path(".dvc/config.local").exists()


def test_an_archive_of_a_commit_runs_without_git(tmp_path, monkeypatch):
    """GitHub and Zenodo create their archives with `git archive`."""
    from dvc.config import Config

    monkeypatch.chdir(tmp_path)
    for name in (".gitattributes", ".dvc/config"):
        Path("tree", name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, Path("tree", name))
    assert not Config(Path("tree/.dvc").resolve())["core"].get("no_scm")
    author = ["-c", "user.name=a", "-c", "user.email=a@b"]
    archive = ["archive", "-o", "../release.tar", "HEAD"]
    for command in (["init", "-q"], ["add", "-A"], [*author, "commit", "-qm", "first"], archive):
        subprocess.run(["git", *command], cwd="tree", check=True)
    shutil.unpack_archive("release.tar", "release")
    assert Config(Path("release/.dvc").resolve())["core"]["no_scm"] is True


@pytest.mark.slow
def test_a_killed_cell_leaves_its_row_and_a_board(one_seed, capsys, monkeypatch):
    monkeypatch.setattr("gt_bench.pipeline.leaderboard.track", lambda *_: None)
    chain([CELL], train="sh -c 'kill -9 $$' python -m stages.train ${item.cell}")
    Path(".dvc/tmp").mkdir()
    Path(".dvc/tmp/rwlock").touch()
    Path("dvc.lock").touch()
    assert reproduce("small") == 1
    said = capsys.readouterr()
    assert ".dvc/tmp/rwlock: a killed process left it incomplete; removed" in said.out
    assert "dvc.lock: invalid, renamed to dvc.lock.damaged" in said.out
    words = "killed by signal 9: probably out of memory; 1 of 2 seeds is saved, run the same command again to resume"
    assert f"{CELL}: {words}" in said.err
    row = json.loads(Path("reports/small.json").read_text())["rows"][0]
    assert (row["status"], row["runs"], row["reason"], row["verdict"]) == ("ok 1/2", 1, words, "no published number")
    assert row["mean"] is not None
    assert words in Path("reports/small.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["encode", "train"])
def test_an_interrupt_of_this_process_alone_stops_its_stages(project, stage):
    project.recipe()
    if stage == "encode":  # DVC is another process before cells train side by side
        project.recipe(row="other", run={"parallel": 2})
    waits = "touch begun; sleep 100"
    chain([CELL], **{"train": "true", "encode": "true"} | {stage: waits})
    command = [sys.executable, "-m", "gt_bench.pipeline.reproduce", "small"]
    with subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(ROOT)}) as process:
        while not Path("begun").exists():
            assert process.poll() is None
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
    assert not Path("reports").exists()


@pytest.fixture
def two_cells(project, monkeypatch):
    project.recipe()
    project.recipe(row="other", epochs=3, run={"parallel": 2})
    monkeypatch.setattr("gt_bench.pipeline.reproduce.settle_environment", lambda: None)  # of this process
    monkeypatch.setattr("gt_bench.pipeline.leaderboard.track", lambda *_: None)
    return [CELL, "small/web/other"]


@pytest.mark.slow
def test_cells_without_a_result_train_side_by_side_and_dvc_runs_none_of_them_again(two_cells):
    chain(two_cells, train="touch by_dvc && false")
    assert reproduce("small") == 0
    assert not Path("by_dvc").exists()
    rows = json.loads(Path("reports/small.json").read_text())["rows"]
    assert [(row["status"], row["runs"]) for row in rows] == [("ok", 2), ("ok", 2)]


@pytest.mark.slow
@pytest.mark.parametrize("broken", ["encode", "train"])
def test_cells_that_fail_side_by_side_are_run_again_by_dvc(two_cells, broken, monkeypatch, capsys):
    chain(two_cells, train="touch by_dvc && false", encode="false" if broken == "encode" else "true")

    def lost(*_, **__):
        raise Lost("its memory was too small")

    monkeypatch.setattr("gt_bench.pipeline.train_cells.train_cell", lost)
    assert reproduce("small") == 1
    assert Path("by_dvc").exists()
    said = capsys.readouterr()
    assert (f"error: {CELL}: its memory was too small" in said.err) == (broken == "train")
    assert "the leaderboard above is partial" in said.err


def test_the_first_lines_say_what_will_run_how_long_and_how_to_limit_it(project, monkeypatch):
    project.recipe(seeds=[0, 1])
    grid = load_grid()
    cells = grid.suite("small")
    first, second = announcement("small", cells, grid)
    assert first.startswith("small: 1 of 1 cells have no result")
    assert "`limits: {small: {seeds: 1, epochs: 10}}`" in second
    counted = {"seeds": 2, "search_runs": 3, "cpu": 600.0, "h100": {"unfused": 60.0}}
    Path("scale.json").write_text(json.dumps({"cells": {CELL: counted}}))
    first = announcement("small", cells, grid, path=Path("scale.json"))[0]
    assert first.endswith("; about 50.0 min on one CPU thread or 5.0 min on an H100, counted")
    limited = grid.model_copy(update={"limits": {"small": Limits(seeds=1)}})
    assert "about 40.0 min" in announcement("small", cells, limited, path=Path("scale.json"))[0]
    Path("results/small/web").mkdir(parents=True)
    Path("results", f"{CELL}.json").write_text("{}")
    assert announcement("small", cells, grid) == []


def test_a_git_without_user_is_reported(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("GIT_AUTHOR_EMAIL", "EMAIL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", "/dev/null")
    assert list(without_git_user()) == [], "no repository"
    Path(".git").mkdir()
    assert ["git config user.name NAME" in line for line in without_git_user()] == [True]
    monkeypatch.setenv("GIT_AUTHOR_EMAIL", "a@b.c")
    assert list(without_git_user()) == []


def test_a_folder_without_dvc_is_refused_and_stays_empty(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with refused(RecipeError, file="dvc.yaml"):
        reproduce("embedded")
    with refused(DatasetError, file="data/packed", value=["chains"]):
        raise CliRunner().invoke(app.app, ["train", "embedded/chains/gcn"]).exception
    assert not list(tmp_path.iterdir())
