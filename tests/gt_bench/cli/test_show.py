"""`gt-bench list`, `show` and `board`: output for people and programs; one line for each damaged file."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gt_bench import load_results
from gt_bench.claims.evaluate import Claim
from gt_bench.cli.app import app
from gt_bench.config.schema import RecipeError
from gt_bench.leaderboard.collect import Gathered
from gt_bench.schemas import COLUMNS
from gt_bench.store.run_store import StoreError
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
    assert json.loads(run("show", "embedded/chains/mlp", "--json").output)["model"]["name"] == "mlp"
    Path("suites").mkdir(exist_ok=True)
    rows = json.loads(run("board", "embedded", "--json").output)
    assert [(row["cell"], row["status"]) for row in rows] == [("embedded/chains/mlp", "not run")]
    assert rows[0].keys() == {*COLUMNS, "state"}
    assert json.loads(run("board", "--dataset", "chains", "--json").output) == []


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


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"rows": [{}]}', '{"rows": 3}'])
def test_a_damaged_leaderboard_is_named(repository, content):
    path = Path("reports/embedded.json")
    path.parent.mkdir()
    path.write_text(content)
    shown = run("show", "embedded")
    assert isinstance(shown.exception, StoreError)
    assert str(shown.exception).startswith(f"{path}: not a leaderboard")
    assert "write it again: python -m stages.leaderboard embedded" in str(shown.exception)


def test_a_form_is_of_one_table(repository):
    with pytest.raises(RecipeError, match="--format csv: of which table"):
        raise run("table", "hot", "--format", "csv").exception


@pytest.mark.slow
@pytest.mark.parametrize("command", ["list", "claims", "show", "suite check"])
def test_both_spellings_of_a_suite_print_the_same(command, monkeypatch):
    monkeypatch.chdir(ROOT)
    claims = [Claim(id="one", paper="edge-transformer", place="Section 1", sentence="It is so.", needs="runs")]
    monkeypatch.setattr("gt_bench.claims.show.load_claims", lambda: claims)
    monkeypatch.setattr("gt_bench.claims.show.show", lambda claims, verdicts: print(claims[0].paper))
    monkeypatch.setattr("gt_bench.claims.show.evaluate_claims", lambda *_: {})
    monkeypatch.setattr("gt_bench.claims.show.every_row", lambda *_: [])
    shown = [run(*command.split(), name) for name in ("edge-transformer", "edge_transformer")]
    assert shown[0].output == shown[1].output
    assert str(shown[0].exception) == str(shown[1].exception)
    assert "edge_transformer" not in shown[1].output + str(shown[1].exception)


def test_results_of_either_spelling_of_a_suite(monkeypatch):
    monkeypatch.chdir(ROOT)
    asked = []
    monkeypatch.setattr(
        "gt_bench.reports.all_results.gather",
        lambda grid: asked.append((grid.suites, len(grid.cells))) or Gathered(),
    )
    for name in ("edge-transformer", "edge_transformer"):
        load_results(name)
    assert asked[0] == asked[1]
    assert asked[0][1] > 10


@pytest.mark.slow
def test_a_list_without_stored_runs_loads_no_torch(repository):
    """Without torch the command takes one second instead of three."""
    code = (
        "import sys; from gt_bench.cli.app import app; app(['list'], standalone_mode=False); "
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
