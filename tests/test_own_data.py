"""docs/own_data.md, followed in an empty folder: its files and commands print what the page shows."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

PAGE = (ROOT / "docs/own_data.md").read_text()


def run(folder: Path, line: str) -> str:
    words = shlex.split(line)
    program = [] if words[0] == "python" else ["-c", "from gt_bench.cli import main; main()"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, *program, *words[1:]], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_page_prints_what_its_commands_print(tmp_path):
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
