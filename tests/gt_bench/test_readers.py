"""Commands that show results compute nothing and write nothing but their output, also after a change of the code."""

import subprocess
from pathlib import Path

import pytest

import gt_bench
from gt_bench.experiment import modified_code
from gt_bench.experiment.run import Experiment
from tests.gt_bench.shipping import export, rewrite, run

COMMANDS = (
    "list", "board small", "board web", "board small/web/mlp --recipe", "board", "compare mlp small/mlp", "claims",
    "history small/web/mlp",
)  # fmt: skip


@pytest.fixture
def edited(trained, monkeypatch):
    """A project with an own and a shipped cell, whose shipped records were computed by other code than the current."""

    def refused(*_, **__):
        raise AssertionError("a reader started a computation")

    def as_other_code(content):
        for record in content["records"]:
            record["measured"]["code"] = "0" * 64

    rewrite(export(), as_other_code)
    monkeypatch.setattr(modified_code, "known_differences", lambda wanted: {})
    monkeypatch.setattr(modified_code, "_compute", refused)
    monkeypatch.setattr(Experiment, "run", refused)
    monkeypatch.setattr(subprocess, "Popen", refused)
    return trained


def files() -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}


@pytest.mark.parametrize("command", COMMANDS)
def test_readers_compute_and_write_nothing(edited, command):
    before = files()
    shown = run(*command.split())
    assert shown.exit_code == 0, shown.output or shown.exception
    assert files() == before


def test_the_page_computes_nothing_and_writes_reports_only(edited):
    before = files()
    shown = run("page")
    assert shown.exit_code == 0, shown.output or shown.exception
    assert {path for path, content in files().items() if before.get(path) != content} <= set(Path("reports").rglob("*"))


def test_results_are_loaded_without_a_computation(edited):
    assert set(gt_bench.load_results()["cell"]) >= {"small/web/mlp"}


def test_code_that_was_not_checked_is_named(edited):
    assert "gt-bench check" in run("board", "web").output
