"""Models of two suites: pairs of our runs, published means, and what follows over datasets."""

import numpy as np
import pytest
from scipy import stats

from gt_bench.config.grid import load_grid
from gt_bench.config.suite import load_suite
from gt_bench.leaderboard.collect import SHIPPED, Version
from gt_bench.reports.suite_comparison import COLUMNS, comparisons, markdown, sentence
from tests.gt_bench.cells import changed, make_record, make_result

TUNED, RIVAL = "luo2024/photo/tuned-gcn", "polynormer/photo/polynormer-r"


def version(cell, values, reduced=()):
    records = [changed(make_record(cell, seed, test=value), run={"split": 0}) for seed, value in enumerate(values)]
    return Version.of(SHIPPED, make_result(cell, records, None, tuple(reduced)), records)


def photo(first, second, **more):
    versions = {TUNED: version(TUNED, first, **more), RIVAL: version(RIVAL, second)}
    (found,) = comparisons(load_grid(), versions)
    return next(line for line in found.lines if (line.dataset, line.row) == ("photo", "tuned-gcn")), found


def test_runs_are_paired_at_the_level_of_one_of_nine_datasets():
    first, second = [0.961, 0.964, 0.959, 0.966], [0.951, 0.957, 0.950, 0.953]
    line, found = photo(first, second)
    wanted = stats.ttest_rel(first, second).confidence_interval(1 - 0.05 / 9)
    assert line.ours.interval == pytest.approx((wanted.low, wanted.high))
    assert line.our_word == "better"
    assert len(line.texts) == len(COLUMNS)
    assert found.sentences[0].endswith("Our runs on 1 of 9 datasets: better.")
    assert any(text.startswith("| photo | tuned-gcn | 96.25 ± 0.27 (4) | 96.10 ± 0.46 |") for text in markdown([found]))


@pytest.mark.parametrize(
    ("first", "second", "word"),
    [
        ([0.96, 0.97, 0.95], [0.95], "too few runs"),
        ([0.96, 0.97, 0.95], [0.955, 0.975, 0.94], "undecided"),
        ([0.93, 0.931, 0.932, 0.933], [0.951, 0.9511, 0.9525, 0.953], "worse"),
        ([], [0.95], "no run of both"),
    ],
)
def test_the_word_says_what_the_runs_show(first, second, word):
    assert photo(first, second)[0].our_word == word


def test_runs_of_fewer_epochs_do_not_count():
    assert photo([0.96] * 3, [0.95] * 3, reduced=["10 of 100 epochs"])[0].our_word == "no run of both"
    assert photo([0.96] * 3, [0.95] * 3, reduced=["3 of 10 seeds"])[0].our_word == "too few runs"


def test_published_means_are_compared_by_welch_and_over_datasets_by_ranks():
    line, found = photo([], [])
    first, second = line.numbers
    half = np.ptp(line.published.interval) / 2
    error = (first.std**2 / first.runs + second.std**2 / second.runs) ** 0.5
    df = error**4 / ((first.std**2 / first.runs) ** 2 / 2 + (second.std**2 / second.runs) ** 2 / (second.runs - 1))
    assert half == pytest.approx(stats.t.ppf(1 - 0.05 / 18, df) * error + first.rounding + second.rounding)
    gaps = [one.gap for one in found.lines if one.row == "tuned-gcn"]
    p = stats.wilcoxon(np.round(gaps, 9), method="exact").pvalue
    assert f"p = {p:.2g}." in sentence([one for one in found.lines if one.row == "tuned-gcn"])


def test_published_means_count_on_datasets_without_our_runs():
    both = [TUNED, RIVAL, TUNED.replace("photo", "cs"), RIVAL.replace("photo", "cs")]
    both += [cell.replace("polynormer-r", "polynormer") for cell in both if cell.endswith("polynormer-r")]
    (found,) = comparisons(load_grid(), {cell: version(cell, [0.96, 0.97, 0.95]) for cell in both})
    (said,) = (one for one in found.sentences if one.startswith("tuned-gcn against polynormer,"))
    assert {one.dataset for one in found.lines if one.rival == "polynormer"} == {"photo", "cs"}
    assert "of 9 datasets" in said.partition(".")[0]
    assert "Our runs on 2 of 9 datasets" in said


def test_declared_models_exist():
    grid = load_grid()
    known = {tuple(cell.cell.split("/")[::2]) for cell in grid.cells.values()}
    for suite in grid.suites:
        for declared in load_suite(suite).compare:
            assert {(suite, row) for row in declared.rows} <= known
            assert {(declared.suite, row) for row in declared.against} <= known
            assert set(declared.datasets) <= {cell.dataset for cell in grid.suite(suite)}
