"""`gt-bench list` and `board`: output for people and programs; one line for each damaged file."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gt_bench.cli.app import app
from gt_bench.config.grid import load_grid
from gt_bench.config.option_text import OptionError
from gt_bench.config.schema import RecipeError
from gt_bench.leaderboard.collect import Gathered
from gt_bench.leaderboard.export import COLUMNS
from gt_bench.reports.board import board
from gt_bench.utils.errors import UserError
from tests.conftest import ROOT

RECIPE = Path("suites/embedded/recipes/chains/mlp.yaml")


def run(*arguments):
    return CliRunner().invoke(app, arguments)


@pytest.mark.slow
def test_json_for_programs(repository):
    assert json.loads(run("list", "embedded", "--json").output) == {
        "cells": [{"cell": "embedded/chains/mlp", "settings": str(RECIPE), "seeds": "0/3", "state": "not run"}],
        "problems": [],
    }
    assert json.loads(run("board", "embedded/chains/mlp", "--recipe", "--json").output)["model"]["name"] == "mlp"
    Path("suites").mkdir(exist_ok=True)
    rows = json.loads(run("board", "embedded", "--json").output)
    assert [(row["cell"], row["status"]) for row in rows] == [("embedded/chains/mlp", "not run")]
    assert rows[0].keys() == {*COLUMNS, "state"}
    assert json.loads(run("board", "chains", "--json").output) == rows


@pytest.mark.parametrize("content", ["{", "[]", '{"status": "ok"}', "[" * 100_000])
def test_a_damaged_result_is_listed_and_named(repository, content):
    path = Path("results/embedded/chains/mlp.json")
    path.parent.mkdir(parents=True)
    path.write_text(content)
    shown = run("list")
    assert shown.exit_code == 1
    assert "unreadable" in shown.output
    assert f"{path}: not a result" in shown.output
    assert "delete it and run: python -m stages.train embedded/chains/mlp" in shown.output


@pytest.mark.parametrize(
    "arguments",
    ["hot --format csv", "hot polynormer --table 1", "--recipe", "hot --recipe", "texas --write out", "nowhere"],
)
def test_an_option_without_its_suite_or_cell_is_refused(repository, arguments):
    assert isinstance(run("board", *arguments.split()).exception, UserError)
    assert not Path("out").exists()


@pytest.mark.slow
def test_a_list_without_stored_runs_loads_no_torch(repository):
    """Without torch the command takes one second instead of three."""
    code = (
        "import sys; from gt_bench.cli.app import app; app(['list'], standalone_mode=False); "
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


def test_a_published_part_of_a_dataset_has_the_cells_of_the_dataset(monkeypatch):
    monkeypatch.chdir(ROOT)
    grid = load_grid()
    found = board("jets-c", grid, lambda part: Gathered())
    assert {cell.dataset for cell in found.cells} == {"jets"}
    assert {number.dataset for number in found.published} == {"jets-c"}


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (("board", "suites/hot"), "gt-bench board hot"),
        (("try", "texas", "gcn"), "name the model before the dataset"),
        (("try", "MyModel", "texas"), "path/to/file.py:MyModel"),
        (("list", "chains/mlp"), "embedded/chains/mlp"),
        (("list", "chians/mlp"), "embedded/chains/mlp"),
        (("list", "embedded/chians"), "embedded/chains"),
    ],
)
def test_a_refusal_names_the_command_that_was_meant(arguments, remedy, repository):
    with pytest.raises(RecipeError, match=remedy):
        CliRunner().invoke(app, arguments, catch_exceptions=False)


def test_a_list_of_cells_and_datasets(repository):
    for name in ("embedded", "embedded/chains", "embedded/chains/mlp"):
        assert [cell["cell"] for cell in json.loads(run("list", name, "--json").output)["cells"]] == [
            "embedded/chains/mlp"
        ]


def test_a_board_names_cells_without_a_result_and_explains_marks(monkeypatch):
    monkeypatch.chdir(ROOT)
    short, full = (run("board", "edge-transformer", *notes).output for notes in ((), ("--notes",)))
    assert "--notes names them" in short
    assert "\npublished !: " in short
    (averages,) = [line for line in short.splitlines() if "average of 10 runs" in line]
    assert "edge-transformer/cornell/gin" in averages
    assert "edge-transformer/cornell/gcn" not in averages
    missing = full.partition(" cells have no result:\n")[2].split()
    assert {*missing} <= {cell.cell for cell in load_grid().suite("edge-transformer")}
    assert missing


def test_a_cell_with_shipped_records_and_no_run_is_listed_as_shipped(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cells = {
        cell["cell"]: cell["state"] for cell in json.loads(run("list", "hot", "embedded", "--json").output)["cells"]
    }
    assert cells["hot/chains/gcn"] == "shipped"
    assert cells["embedded/chains/gcn"] == "not run"


def test_the_board_of_a_cell_ends_with_the_command_that_computes_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run("board", "hot/chains/gcn").output.splitlines()[-1].endswith("gt-bench work hot/chains/gcn")
    assert "gt-bench work" not in run("board", "hot").output


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        ("try gcn chains --epochs 3 --set epochs=5", "--epochs"),
        ("try gcn chains --set epochs=3 --set epochs=5", "--set"),
        ("try gcn chains --members 3", "--members"),
        ("sweep hot --measure", "--measure"),
        ("compare gcn gin --rope 0.1", "--rope"),
        ("score hot/chains/gcn --resamples 200", "--resamples"),
        ("match gcn cornell --parameters 10k --set model.hidden_dim=3", "--set"),
        ("claims hot --recompute same_label", "SUITE"),
    ],
)
def test_an_option_that_would_have_no_effect_is_refused(tmp_path, monkeypatch, arguments, place):
    monkeypatch.chdir(tmp_path)
    error = run(*arguments.split()).exception
    assert isinstance(error, OptionError)
    assert error.place == place
