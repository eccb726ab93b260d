"""`gt-bench --help`: groups with all commands, and no import of heavy modules."""

import os
import re
import shlex
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from gt_bench.cli.app import EXAMPLES, GROUPS, STORE, app
from gt_bench.cli.suite import SUITE
from tests.conftest import ROOT

ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT)}


def test_help_is_in_groups_and_the_version_names_the_commit():
    shown = CliRunner().invoke(app, ["--help"]).output
    places = [shown.index(group) for group in GROUPS]
    assert places == sorted(places)
    commands = {
        command.name or command.callback.__name__ for command in (*app.registered_commands, *app.registered_groups)
    }
    assert all(f" {name} " in shown for name in commands)
    assert {"list", "train", "compare", "doctor", "history", "diff", "score"} <= commands & {
        name for names in GROUPS.values() for name in names
    }
    assert re.fullmatch(
        r"gt-bench \d+\.\d+\.\d+ \(commit ([0-9a-f]{40}(-dirty)?|unknown)\)\n",
        CliRunner().invoke(app, ["--version"]).output,
    )


@pytest.mark.slow
def test_the_command_line_alone_loads_no_schema_and_no_library():
    slow = {"pydantic", "yaml", "torch", "numpy", "gt_bench.config.grid", "gt_bench.config.recipe"}
    code = f"import sys, gt_bench.cli; print({slow} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n", (
        "what a command needs is imported when it runs: `gt-bench --help` waits for nothing else"
    )


@pytest.fixture(scope="module")
def looked_at(tmp_path_factory):
    """A folder without own runs, whose digests would need torch, after a first command has filled the cache."""
    folder = tmp_path_factory.mktemp("looked")
    subprocess.run([sys.executable, "-m", "gt_bench.cli", "board"], cwd=folder, env=ENVIRONMENT, capture_output=True)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        "list",
        "board hot",
        "compare gcn gin",
        "compare gcn gni",
        "history embedded/chains/gcn",
        "page",
        "claims",
        "rank polynormer",
        "ablate model.relu",
        "suite list",
        "score edge-transformer/cornell/gni",
        "train edge-transformer/cornell/gnc",
        "try gnc cornell",
        "try gcn cornel",
        "match gnc cornell --parameters 10k",
        "store verify edge-transfomer",
    ],
)
def test_a_command_that_computes_nothing_does_not_import_torch(command, looked_at):
    code = """
import sys
from gt_bench.cli.app import main
try:
    main()
finally:
    print({"torch", "pandas", "mlflow"} & sys.modules.keys())
"""
    started = [sys.executable, "-c", code, *command.split()]
    done = subprocess.run(started, cwd=looked_at, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "set()"


def test_every_help_ends_with_an_example_that_can_be_copied_and_parsed(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    commands = {name for names in GROUPS.values() for name in names} | {f"store {name}" for name in STORE}
    commands |= {f"suite {name}" for name in SUITE}
    assert commands == EXAMPLES.keys()
    for name, example in EXAMPLES.items():
        shown = CliRunner().invoke(app, [*name.split(), "--help"]).output
        assert f"Example: {example}" in shown
        assert "…" not in shown, "a word that is longer than its column is cut"
        words = shlex.split(example)[1:]
        assert words[: len(name.split())] == name.split()
        command = typer.main.get_command(app)
        for word in name.split():
            command = command.commands[word]
        command.make_context(name, words[len(name.split()) :])
