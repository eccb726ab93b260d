"""docs/own_data.md, followed in an empty folder: its files and commands print what the page shows."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gt_bench.cli.app import app
from tests.conftest import ROOT

PAGE = (ROOT / "docs/own_data.md").read_text()


def run(folder: Path, line: str) -> str:
    """Output of a command of the page: a program in a process, `gt-bench` in this one."""
    words = shlex.split(line)
    if words[0] == "gt-bench":
        done = CliRunner().invoke(app, words[1:])
        assert done.exit_code == 0, f"{done.output} {done.exception!r}"
        return done.output
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    script = subprocess.run(
        [sys.executable, *words[1:]], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert script.returncode == 0, script.stdout + script.stderr
    return script.stdout


@pytest.mark.usefixtures("forks")
@pytest.mark.slow
def test_the_page_prints_what_its_commands_print(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "params.yaml").write_text("run: {tracking: false}\n")
    (tmp_path / "grid.yaml").write_text("datasets: []\nsuites: []\ncells: {}\n")
    followed = 0
    for path, text, console in re.findall(
        r"^`([\w/.-]+)`:\n\n```\w+\n(.*?)```|^```console\n(.*?)```", PAGE, re.M | re.S
    ):
        if path:
            (tmp_path / path).write_text(text)
        for line, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", console, re.M):
            printed = run(tmp_path, line).splitlines()
            followed += 1
            for wanted in expected.splitlines():  # in this order; `...` matches other lines
                if wanted != "...":
                    assert wanted in printed, f"{line} does not print (after what is above it on the page): {wanted}"
                    printed = printed[printed.index(wanted) + 1 :]
    assert followed == 5


def test_the_entry_of_datasets_yaml_is_valid():
    import yaml

    from gt_bench.config.schema import validated
    from gt_bench.data.declared import Entry

    (block,) = re.findall(r"^```yaml\n(.*?)```", PAGE, re.M | re.S)
    entry = validated(Entry, yaml.safe_load(block)["shop"], "docs/own_data.md")
    assert entry.inductive
    assert entry.split.cuts == (8, 10)
