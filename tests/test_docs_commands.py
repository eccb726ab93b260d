"""Commands in blocks of README and docs/ that show what is there are run here in a small project."""

import re
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from gt_bench.cli.app import app
from gt_bench.forecasting import estimate
from gt_bench.leaderboard import remembered
from gt_bench.store.attempts import remember
from gt_bench.store.run_store import Store
from gt_bench.utils import terminal
from tests.conftest import ROOT
from tests.gt_bench.cells import make_record, make_result, write
from tests.pages import PAGES, blocks

pytestmark = pytest.mark.slow

# they train, or need files that a page makes: tests of their packages run them, and those of the pages
COMPUTE = {
    "describe", "score", "submit", "suite", "sweep", "train", "try", "tune", "verify-submission", "work",
}  # fmt: skip
# results, designs and sessions of the reader
OF_THE_READER = re.compile(r"\btoy\b|tried/|--design|\bablation\b|gpu-session")


def commands(page: Path) -> list[str]:
    """The commands in the blocks of a page, as written, without comments and redirections."""
    found = []
    for kind, block in blocks(page.read_text()):
        if kind not in ("", "console", "bash", "sh") or block.startswith(">>>"):
            continue
        lines = [line.removeprefix("$ ") for line in block.splitlines() if kind != "console" or line.startswith("$ ")]
        for part in (part for line in lines for part in re.split(r";|&&", re.split(r"\s#|\s\||\s>|\s2>", line)[0])):
            part = re.sub(r"^((?:[A-Z_]+=\S+\s+)+)", "", part.strip())
            first, second = (*part.split(), "", "")[:2]
            if first == "gt-bench" and second not in COMPUTE and not OF_THE_READER.search(part):
                found.append(part)
    return found


SHOWN = sorted({command for page in PAGES for command in commands(page)})
# one that also occurs with options is run with them only
OF_GT_BENCH = [one for one in SHOWN if not any(other.startswith(f"{one} --") for other in SHOWN)]


def test_commands_are_found():
    assert len(OF_GT_BENCH) > 20


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """The repository's recipes, published numbers and records, and a store with two attempts at a cell."""
    root = tmp_path_factory.mktemp("project")
    shutil.copytree(ROOT / "suites", root / "suites", ignore=shutil.ignore_patterns("records"))
    for records in (ROOT / "suites").glob("*/records"):  # no command writes them, and rows of shipped files are cached
        (root / records.relative_to(ROOT)).symlink_to(records)
    for name in ("params.yaml", "grid.yaml", "dvc.yaml"):
        (root / name).symlink_to(ROOT / name)
    for cell in ("embedded/chains/gcn", "edge-transformer/cornell/gcn"):
        for test in (0.55, 0.57):
            records = [make_record(cell, seed, test=test + 0.01 * seed) for seed in range(3)]
            result = make_result(cell, records, None if cell.startswith("embedded") else "GCN")
            write(root, [result], records)
            remember(result, Store(root / "store"))
    return root


@pytest.mark.parametrize("command", OF_GT_BENCH)
def test_gt_bench(project, monkeypatch, command):
    """Steps take no time here: tests/gt_bench/forecasting/test_estimate.py tests what a forecast measures."""
    monkeypatch.setattr(estimate, "ProcessPoolExecutor", lambda *_, **__: ThreadPoolExecutor(1))
    one = estimate.Forecast("", estimate.REAL, seconds=1.5, seeds=10, memory_mib=400.0, disk={"data": 2**20})
    monkeypatch.setattr(estimate, "forecast_cell", lambda cell, *_: replace(one, cell=cell.cell))
    monkeypatch.chdir(project)
    monkeypatch.setattr(remembered, "FOLDER", project / ".golden")
    monkeypatch.setattr(terminal, "console", lambda: Console(width=80))
    words = shlex.split(command.replace("CELL", "edge-transformer/cornell/gcn"))
    done = CliRunner().invoke(app, words[1:])
    assert done.exit_code == 0, done.output
    assert done.output.strip()


def test_the_stage_lists_downloadable_datasets():
    done = subprocess.run(
        [sys.executable, "-m", "stages.download", "--list"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, "cornell" in done.stdout) == (0, True), done.stderr
