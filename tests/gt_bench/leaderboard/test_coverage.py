"""How many published numbers have a verdict, and each paper in five sentences."""

import re
from dataclasses import replace

import pytest

from gt_bench.config.cell_recipe import recipes_of
from gt_bench.config.grid import load_grid
from gt_bench.config.recipe import load_recipe
from gt_bench.config.schema import RecipeError
from gt_bench.config.suite import Suite
from gt_bench.leaderboard.collect import every_row
from gt_bench.leaderboard.coverage import Coverage, coverage, has_own_number, published_numbers
from gt_bench.papers.results_file import papers, read_entries
from gt_bench.reports.paper_summary import every_in_short
from tests.conftest import ROOT
from tests.gt_bench.cells import with_summary
from tests.refusals import refused

SECONDS = {"hot/chains/hot-sparse": {"cpu": 3600.0}, "hot/chains/gcn": {"cpu": 1e6}}


@pytest.fixture(scope="module")
def rows():
    return every_row(load_grid(), ROOT / "suites")


def counted(rows, seconds):
    grid = load_grid()
    return coverage(grid, rows, seconds, recipes_of(grid.cells.values()))


@pytest.fixture(scope="module")
def covered(rows):
    return counted(rows, SECONDS)


@pytest.mark.slow
def test_coverage_is_of_the_papers_own_numbers_alone(covered, rows):
    entries = [entry for paper in papers() for entry in read_entries(paper)]
    for one in covered:
        own = [e for e in entries if e["own"] and e["paper"] == one.paper and e["mean"] is not None]
        own = [e for e in own if e["metric"] != "seconds-per-epoch"]
        assert 0 <= one.provisional <= one.judged <= one.numbers <= len(own)
        assert one.cells_judged <= one.cells
    some = [row for row in rows if row.dataset in ("chains", "gps")]  # records of other datasets are not shipped yet
    hot = {one.paper: one for one in counted(some, SECONDS)}["hot"]
    # four rows of chains in two metrics, and one of gps in two; baselines have no paper here
    assert (hot.judged, hot.provisional, hot.cells_judged, hot.seconds) == (10, 0, 5, {"cpu": 3600.0})
    grid, names = load_grid(), ("hot-sparse", "ppgt-basic", "polynormer-v2")
    judged = {row.cell for row in rows if row.interval is not None and row.cell.endswith(names)}
    assert all(any(number.own for number in published_numbers(grid.find(cell))) for cell in judged)


@pytest.mark.slow
def test_a_number_with_a_verdict_by_two_recipes_counts_once_and_is_provisional_where_no_recipe_is_complete(rows):
    name = "edge-transformer/texas/edge-transformer"
    et = [with_summary(row, full=row.summary.runs + 1) for row in rows if row.cell.startswith(name)]
    assert len(et) == 2

    def counts(some):
        (one,) = [c for c in counted(some, {}) if c.paper == "edge-transformer"]
        return one.judged, one.provisional, one.cells_judged

    assert counts(et) == (1, 1, 2)
    assert counts([et[0], with_summary(et[1], full=et[1].summary.runs)]) == (1, 0, 2)
    assert counts([replace(row, verdict=None) for row in et]) == (0, 0, 0)


@pytest.mark.slow
def test_a_number_that_no_run_can_judge_is_counted_as_such(covered):
    by_paper = {one.paper: one for one in covered}
    # Table 3 of HOT has one seed and no spread; a row of Table 4 has ten seeds
    assert by_paper["hot"].impossible == 34
    assert "34 can have none: " in by_paper["hot"].sentence
    # BREC publishes no spread either, but counts of pairs get verdicts; shares of pairs do not
    assert by_paper["ppgt"].impossible == 5
    assert by_paper["edge-transformer"].impossible == 0
    assert "can have none" not in by_paper["edge-transformer"].sentence
    assert all(one.impossible + one.judged <= one.numbers for one in covered)


@pytest.mark.slow
def test_a_number_that_two_tables_publish_counts_once(covered, rows):
    polynormer = next(one for one in covered if one.paper == "polynormer")
    # Table 7 repeats six numbers of Tables 1 and 2 as Polynormer-v1
    assert polynormer.numbers == 42
    cells = {"polynormer/photo/polynormer", "polynormer/photo/polynormer-v2"}
    some = [row for row in rows if row.cell in cells]
    assert len(some) == 3
    assert next(one for one in counted(some, {}) if one.paper == "polynormer").judged == 2


def test_a_recipe_whose_reference_is_wrong_has_no_numbers(monkeypatch):
    cell = load_grid().find("edge-transformer/texas/gcn")
    assert len(published_numbers(cell)) == 1
    recipe = load_recipe(cell.recipe_path)
    wrong = recipe.model_copy(update={"published": recipe.published.model_copy(update={"table": "Table 77"})})
    monkeypatch.setattr("gt_bench.leaderboard.coverage.load_recipe", lambda path: wrong)
    assert published_numbers(cell) == []


ONE = Coverage("hot", 4, 0, 0, 0, 2, 0, {})


@pytest.fixture
def told(rows, monkeypatch):
    """Return the summary of a paper whose suite.yaml has this text."""

    def tell(summary: str | None) -> dict[str, str]:
        suite = Suite(title="HOT", summary=summary)
        monkeypatch.setattr("gt_bench.reports.paper_summary.load_suite", lambda name: suite)
        return {paper: str(summary) for paper, summary in every_in_short([ONE], [], rows).items()}

    return tell


@pytest.mark.slow
def test_a_published_number_is_not_typed_again(told):
    text = told("It has {hot/gps/s2g-plus aupr} for {hot/gps/s2g-plus aupr printed}.")["hot"]
    # our values change with the records
    assert re.search(r" It has 0\.\d{3} ± 0\.\d{3} for 0\.726\.$", text), text


@pytest.mark.parametrize("number", ["hot/chains/hot-spare", "hot/chains/hot-sparse auc"])
def test_a_summary_of_what_is_not_there_is_an_error_that_names_it(told, number):
    with refused(RecipeError, file="suites/hot/suite.yaml", place="summary", value=number):
        told(f"It has {{{number}}}.")


def test_without_a_summary_nothing_is_told(told):
    assert told(None) == {}


@pytest.mark.parametrize(
    ("cell", "own"),
    [
        ("edge-transformer/texas/edge-transformer", True),
        ("edge-transformer/texas/gcn", False),
        ("embedded/chains/mlp", False),
        ("ppgt/brec/ppgt", True),
    ],
)
def test_only_cells_of_the_paper_s_method_have_an_own_number(cell, own, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert has_own_number(load_grid().find(cell)) is own
