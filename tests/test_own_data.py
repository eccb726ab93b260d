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


@pytest.mark.slow
def test_the_page_prints_what_its_commands_print(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
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
    assert followed == 4


def test_descriptions_of_the_page_are_valid():
    import yaml

    from gt_bench.data.custom.description import Description

    blocks = re.findall(r"^```yaml\n(.*?)```", PAGE, re.M | re.S)
    found = [Description.parsed(yaml.safe_load(block), "docs/own_data.md") for block in blocks]
    assert [one.id for one in found] == ["gene", None]
    assert found[1].split.cuts == (8, 10)


def test_every_key_is_in_the_table_of_options():
    from gt_bench.data.custom.description import Description

    assert set(Description.model_fields) <= set(re.findall(r"`(\w+)`", PAGE))
