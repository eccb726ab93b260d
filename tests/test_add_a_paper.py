"""docs/add_a_paper.md, followed outside of the repository: its files and commands, in an empty folder."""

import re
import shlex

import pytest
from typer.testing import CliRunner

from gt_bench.cli.app import app
from gt_bench.forecasting import cache
from gt_bench.scheduling import local_queue
from tests.conftest import ROOT
from tests.forked import do_in_fork
from tests.gt_bench.user_models import forgotten  # noqa: F401 (a fixture)

pytestmark = pytest.mark.slow

PAGE = (ROOT / "docs/add_a_paper.md").read_text()


@pytest.fixture
def bare(tmp_path_factory, monkeypatch):
    """An installation without suites, whose page and tables have only what the stranger adds."""
    folder = tmp_path_factory.mktemp("installed")
    (folder / "params.yaml").write_text((ROOT / "params.yaml").read_text())
    (folder / "grid.yaml").write_text("{suites: [], datasets: [], cells: {}, searches: {}}\n")
    for module in ("config.grid", "utils.paths", "store.shipped_files"):
        monkeypatch.setattr(f"gt_bench.{module}.INSTALLED", folder)


@pytest.fixture
def forked(monkeypatch):
    """Do jobs in forks, which need not import everything again. The model of the page still gets a new process."""
    monkeypatch.setattr(local_queue, "_launch", do_in_fork)


def gt_bench(*words: str) -> str:
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, f"{done.output} {done.exception!r}"
    return done.stdout


def test_a_stranger_comes_from_a_table_to_a_verdict(bare, forked, tmp_path, monkeypatch):
    """With one seed per recipe, and without forecasts."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cache, "_measured", lambda *_: cache.ForecastCost(1.0, 100.0))
    monkeypatch.setenv("COLUMNS", "200")
    said = {}
    # files and commands in the order of the page
    for path, text, console in re.findall(
        r"^`([\w/.-]+)`:\n\n```\w+\n(.*?)```|^```console\n(.*?)```", PAGE, re.M | re.S
    ):
        if path:
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text.replace("seeds: [0, 1]", "seeds: [0]"))
        for line in re.findall(r"^\$ gt-bench (.*)$", console, re.M):
            said[line] = gt_bench(*shlex.split(line))
    assert said["suite check toy"] == "toy: 2 cells, 0 problems\n"
    assert "2 runs computed; 0 of 2 are missing" in said["work toy --jobs 1"]
    assert "2 of 2 numbers have a run of ours" in said["board toy --table 1"]
    assert "ToyGCN outperforms GCN" in " ".join(said["claims toy"].split())
    assert "A toy paper" in (tmp_path / "reports/index.html").read_text()
    gt_bench("store", "export", "toy", "--dirty")
    assert len(list(tmp_path.glob("suites/toy/records/chains/*.json.gz"))) == 2
    assert "2 shipped cells, 0 stale, 0 problems" in gt_bench("store", "verify", "toy")
