"""`gt-bench doctor` and `list`: what is wrong with a grid is said in one line each, with the file and what to do."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stages import state
from stages.cli import GROUPS, app
from stages.datasets.catalog import catalog, get_spec
from stages.files import WriteError
from stages.grid import main as write_grid
from stages.store import StoreError
from tests.conftest import ROOT

RECIPE = Path("recipes/embedded/chains/mlp.yaml")


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """One real cell in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    RECIPE.parent.mkdir(parents=True)
    shutil.copy(ROOT / RECIPE, RECIPE)
    Path("params.yaml").write_text("limits: {}\n")
    assert write_grid([]) == 0


def run(*arguments):
    return CliRunner().invoke(app, arguments)


def test_a_sound_grid(repository):
    shown = run("doctor")
    assert (shown.exit_code, shown.output) == (0, "1 cells, 0 records, 0 problems\n")
    assert "embedded/chains/mlp" in run("list", "embedded").output


def test_json_for_programs(repository):
    assert json.loads(run("list", "embedded", "--json").output) == {
        "cells": [{"cell": "embedded/chains/mlp", "settings": str(RECIPE), "seeds": "0/3", "state": "not run"}],
        "problems": [],
    }
    assert json.loads(run("show", "embedded/chains/mlp", "--json").output)["model"]["name"] == "mlp"
    Path("records").mkdir()
    rows = json.loads(run("board", "embedded", "--json").output)
    assert [(row["cell"], row["status"]) for row in rows] == [("embedded/chains/mlp", "no shipped record")]
    assert json.loads(run("board", "--dataset", "chains", "--json").output) == []


def test_help_is_in_groups_and_the_version_names_the_commit():
    shown = run("--help").output
    assert "a stale row says what" in " ".join(shown.replace("│", " ").split()), "lines of a docstring are joined"
    assert not [line for line in shown.splitlines() if line.rstrip(" │").endswith("Exits 1 where")]
    places = [shown.index(group) for group in GROUPS]
    assert places == sorted(places)
    commands = {command.name or command.callback.__name__ for command in (*app.registered_commands, *app.registered_groups)}
    assert all(f" {name} " in shown for name in commands)
    assert {"list", "train", "compare", "doctor", "history", "diff", "score"} <= commands & {
        name for names in GROUPS.values() for name in names
    }
    assert re.fullmatch(r"gt-bench \d+\.\d+\.\d+ \(commit ([0-9a-f]{40}(-dirty)?|unknown)\)\n", run("--version").output)


@pytest.mark.parametrize(
    ("addition", "says"),
    [
        ("published: {paper: hott, table: Table 1, method: GCN}", "published: results.yaml has no paper 'hott'; nearest: 'hot'"),
        ("published: {paper: hot, table: Table 1, method: GNC}", "published: results.yaml has no method 'GNC'"),
        ("encodings: {rrwp: {steps: 3}}", "encodings.rrwp: model 'mlp' does not use it"),
        ("search: {trials: 1, space: {model.dropout: {choices: [0.1]}}}", "`settings: tuned` goes with a `search:` section"),
        ("search: {trials: 1, space: {model.droput: {choices: [0.1]}}}", "search.space.model.droput: 0.1 cannot stand there"),
        ("epocs: 3", "unknown key 'epocs' (did you mean 'epochs'?)"),
    ],
)
def test_what_is_wrong_with_a_recipe(repository, addition, says):
    RECIPE.write_text(f"{RECIPE.read_text()}{addition}\n")
    shown = run("doctor")
    assert shown.exit_code == 1
    assert says in shown.output
    assert str(RECIPE) in shown.output
    assert "1 problems" in shown.output


def test_several_processes_for_one_graph(repository):
    path = Path("recipes/edge-transformer/texas/edge-transformer.yaml")
    path.parent.mkdir(parents=True)
    path.write_text(f"{(ROOT / path).read_text()}processes: 2\n")
    assert write_grid([]) == 0
    shown = run("doctor")
    assert shown.exit_code == 1
    assert f"{path}: processes: 2 share the graphs of a step, and 'texas' is one graph, which a step takes whole" in shown.output


def test_a_dataset_that_does_not_exist(repository):
    RECIPE.parent.rename("recipes/embedded/chians")
    assert write_grid([]) == 0
    shown = run("doctor")
    assert shown.exit_code == 1
    assert "no dataset named 'chians'; did you mean 'chains'?" in shown.output


def test_a_task_that_does_not_exist_stops_the_first_stage_by_its_names(repository, monkeypatch, capsys):
    monkeypatch.setitem(catalog(), "chains", replace(get_spec("chains"), task="graph-regresion"))
    assert state.main() == 1
    said = capsys.readouterr().err
    assert f"error: {RECIPE}, dataset 'chains': no task named 'graph-regresion'" in said


def test_a_full_disk_stops_the_first_stage_in_one_line(repository, monkeypatch, capsys):
    def full(path, content):
        raise WriteError(f"{path}: the disk is full")

    monkeypatch.setattr(state, "write_bytes", full)
    assert state.main() == 1
    assert capsys.readouterr().err.endswith(": the disk is full\n")


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


def test_a_damaged_record(repository):
    path = Path("store/ab/ab12/record.json")
    path.parent.mkdir(parents=True)
    path.write_text('{"digest": ')
    shown = run("doctor")
    assert shown.exit_code == 1
    assert f"{path}: not a record" in shown.output
    assert "delete the file" in shown.output
