"""Boards and docs/results.md, made from shipped records without computing."""

import re
import shutil
from pathlib import Path

import pytest

from gt_bench.config.grid import load_grid
from gt_bench.leaderboard.collect import every_row
from gt_bench.leaderboard.columns import cells
from gt_bench.leaderboard.words import status_of, verdict_of
from gt_bench.pipeline.gather import gather
from gt_bench.reports.board import board
from gt_bench.reports.paper_table import our_number
from gt_bench.reports.results_markdown import page
from gt_bench.store.shipped_files import problems_of, read
from tests.conftest import ROOT
from tests.gt_bench.shipping import CELL, export, in_first, resealed, rewrite, run


def test_a_file_under_the_name_of_another_cell_is_a_problem(trained):
    path = export()
    trained.recipe(row="another")
    shutil.copy(path, path.with_name("another.json.gz"))
    (problem,) = board("small", load_grid(), gather).problems
    assert f"another.json.gz: is the file of {CELL}" in problem


def test_a_metric_that_is_undefined_on_a_split_is_shown_by_the_board(trained):
    path = export()
    undefined = {"test": float("nan"), "test_metrics": {"accuracy": float("nan")}}
    rewrite(path, in_first(lambda r: r.update(resealed(r | {"deterministic": r["deterministic"] | undefined}))))
    assert problems_of(read(path)) == []
    row = board("small", load_grid(), gather).others[0]
    assert (status_of(row.state), row.summary.mean, row.verdict.word) == ("no number", None, "no result")
    assert row.reason == "accuracy is not a number on this split: nan of seed 0"


def test_a_fresh_clone_shows_its_records_without_computing(trained, monkeypatch):
    export()
    for folder in ("store", "results", "data"):
        shutil.rmtree(folder)
    row = board("small", load_grid(), gather).rows[0]
    assert (status_of(row.state), row.summary.runs, row.cost.device, row.source) == ("ok", 2, "cpu", "shipped")
    trained.recipe(epochs=8)
    trained.recipe(row="other")
    shown = run("board", "small", "--write", "out")
    assert shown.exit_code == 0, shown.output
    assert "1 of 2 cells have no result" in shown.output
    assert "not run" in Path("out/small.md").read_text()
    assert "ok, stale: recipe" in Path("out/small.md").read_text()
    assert not Path("store").exists()


def test_without_results_the_board_says_what_to_run(project):
    project.recipe()
    assert "gt-bench work small" in run("board", "small").output


@pytest.fixture(scope="module")
def shipped():
    """The page and the rows of the records of this repository."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        return page(load_grid()), every_row(load_grid())


@pytest.mark.slow
def test_the_page_of_results_is_up_to_date(shipped):
    shown = (ROOT / "docs/results.md").read_text()
    assert shown == shipped[0], "run: python -m gt_bench.reports.results_markdown > docs/results.md"
    for row in shipped[1]:
        if row.published:
            text = our_number(row, row.published)
            ours = [line for line in shown.splitlines() if line.startswith("| ours: ")]
            assert any(row.model in line and text in line for line in ours), row.cell
        else:
            assert f"{row.model} {cells(row)[3]}" in shown, row.cell
    # only the text of the page itself; tables and what suites say of their differences grow with the runs
    own, _ = shown.split("## Differences that were investigated")
    assert sum(len(line.split()) for line in own.splitlines() if not line.lstrip().startswith("|")) < 2900


@pytest.mark.slow
def test_the_page_of_results_has_what_each_verdict_is_based_on(shipped):
    lines = shipped[0].splitlines()
    start = lines.index("## Every number judged") + 4
    shown = [line.split(" | ") for line in lines[start : lines.index("", start)]]
    rows = [row for row in shipped[1] if row.interval is not None]
    assert [line[5] for line in shown] == [verdict_of(row) for row in rows]
    for line, row in zip(shown, rows, strict=True):
        assert line[4].endswith("]")
        assert (line[7] == "–") == (row.verdict.margin is None)


@pytest.mark.slow
def test_the_page_of_results_shows_what_is_shipped(trained):
    folder = Path("suites/mine")
    folder.mkdir(parents=True)
    (folder / "suite.yaml").write_text("title: Mine\n")
    (folder / "differences.md").write_text("nothing yet\n")
    assert "## small" not in page(load_grid())
    export()
    shown = page(load_grid())
    assert re.search(r"## small\n\nRun, without a published number:\n\n- web \(accuracy ↑ %\): mlp \d", shown)
    assert "\n### mine\n\nnothing yet\n" in shown
