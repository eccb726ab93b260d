"""`gt-bench --help`: groups with all commands, and no import of heavy modules."""

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


def test_help_is_in_groups_and_the_version_names_the_commit():
    shown = CliRunner().invoke(app, ["--help"]).output
    joined = " ".join(shown.replace("│", " ").split())
    assert "Show the leaderboard of a suite from shipped records, or of a dataset from own and shipped" in joined
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


def test_every_help_ends_with_an_example_that_can_be_parsed():
    commands = {name for names in GROUPS.values() for name in names} | {f"store {name}" for name in STORE}
    commands |= {f"suite {name}" for name in SUITE}
    assert commands == EXAMPLES.keys()
    for name, example in EXAMPLES.items():
        shown = " ".join(CliRunner().invoke(app, [*name.split(), "--help"]).output.split())
        assert f"Example: {example}" in shown
        words = shlex.split(example)[1:]
        assert words[: len(name.split())] == name.split()
        command = typer.main.get_command(app)
        for word in name.split():
            command = command.commands[word]
        command.make_context(name, words[len(name.split()) :])


def test_completion_is_offered():
    assert "--install-completion" in CliRunner().invoke(app, ["--help"]).output


def test_the_help_states_when_to_use_which_command():
    shown = " ".join(CliRunner().invoke(app, ["--help"]).output.split())
    assert "When to use which: `reproduce SUITE` (or `dvc repro`) runs a suite from download to leaderboard" in shown


def test_metavars_are_words_in_capitals(monkeypatch):
    """No option that needs a value is shown with the name of a Python type."""
    monkeypatch.setenv("COLUMNS", "120")
    typed = {}
    for name in EXAMPLES:
        shown = CliRunner().invoke(app, [*name.split(), "--help"]).output
        if found := re.findall(r"(--[a-z-]+) .*<(?:str|int|float|path|list)", shown):
            typed[name] = found
        assert "[[" not in shown
    assert not typed
