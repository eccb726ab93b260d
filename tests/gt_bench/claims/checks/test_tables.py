"""Checks of published numbers, on a small table."""

import pytest
from scipy.stats import ttest_ind_from_stats

from gt_bench.claims.checks.figures import _welch
from gt_bench.claims.checks.registry import find_check
from gt_bench.papers.published import Numbers, published_entry

# two datasets where more is better (percentages), one where less is; "ours" is the paper's own
TABLE = {
    "large": {"ours": 90.0, "gcn": 80.0, "gat": 85.0, "gt": 70.0},
    "small": {"ours": 60.0, "gcn": 65.0, "gat": 50.0, "gt": 40.0},
    "energy": {"ours": 0.25, "gcn": 0.5, "gat": 0.3, "gt": 0.2},
}
MAE, ACCURACY = ("mae", "min", "none"), ("accuracy", "max", "percent")


@pytest.fixture(autouse=True)
def _printed(monkeypatch):
    monkeypatch.setattr(
        "gt_bench.papers.published.numbers_of",
        lambda paper: Numbers.of([published_entry(one, [], ()) for one in entries()]),
    )
    monkeypatch.setattr("gt_bench.claims.checks.figures.read_entries", lambda path: entries())


def entries():
    return [
        {"paper": "p", "table": "t", "method": method, "canonical_method": method, "dataset": dataset, "split": "test",
         "printed": f"{value:.2f}" if dataset == "energy" else f"{value:g}", "mean": value, "std": 2.0, "runs": 4,
         "own": method == "ours", "oom": False, "params": 200 if method == "ours" else 800}
        | dict(zip(("metric", "direction", "unit"), MAE if dataset == "energy" else ACCURACY, strict=True))
        for dataset, row in TABLE.items()
        for method, value in row.items()
    ]  # fmt: skip


def found(kind, **arguments):
    return find_check(kind)(paper="p", **arguments)


def at(method, dataset):
    return {"table": "t", "method": method, "dataset": dataset}


@pytest.mark.parametrize(
    ("arguments", "true", "why"),
    [
        ({}, False, "1 of 3 columns (not: small accuracy: 60 against 65 of gcn; energy mae: 0.25 against 0.20 of gt)"),
        ({"datasets": ["large"]}, True, "1 of 1 columns"),
        ({"metrics": ["accuracy"], "rank": 2}, True, "among the first 2 in 2 of 2 columns"),
        ({"count": 1}, True, "1 of 3"),
        ({"count": 2}, False, "1 of 3"),
        ({"count": 1, "only": True}, True, "1 of 3"),
        ({"against": ["gat"]}, True, "3 of 3 columns"),
    ],
)
def test_best_of_its_columns(arguments, true, why):
    said = found("best", table="t", method="ours", **arguments)
    assert (said.holds, why in said.reason) == (true, True)


def test_runs_may_decide_every_column_of_a_claim():
    said = found("best", table="t", method="ours", count=1)
    assert [(comparison.ours[3], len(comparison.rivals)) for comparison in said.comparisons] == [
        ("large", 3),
        ("small", 3),
        ("energy", 3),
    ]
    assert said.min_wins == 1
    against = found("best", table="t", method="ours", against=["gat"], rank=2)
    assert [(len(comparison.rivals), comparison.rank) for comparison in against.comparisons] == [(1, 2)] * 3


def test_numbers_that_are_equal_after_rounding_are_tied(monkeypatch):
    # large: ours 90 and gat 85 become 90 and 90; both are rounded to whole numbers
    monkeypatch.setitem(TABLE["large"], "gat", 90.0)
    tied = found("best", table="t", method="ours", datasets=["large"])
    assert tied.holds is None
    assert "best in 0 of 1 columns (equal after rounding: large accuracy: 90 against 90 of gat)" in tied.reason
    assert found("best", table="t", method="ours", datasets=["large"], rank=2).holds
    assert found("best", table="t", method="ours", count=1).holds is None
    assert found("best", table="t", method="ours", count=2).holds is False
    assert found("order", table="t", better=["ours"], worse=["gat"], datasets=["large"]).holds is None
    assert found("order", table="t", better=["ours"], worse=["gcn"], datasets=["large"]).holds
    assert found("best_groups", table="t", below=["gat"], above=["ours"]).holds is None
    assert found("not_better", table="t", method="ours", than="gat").holds is False  # ahead in two of three


LARGE, ENERGY = at("ours", "large"), at("ours", "energy")
GCN, GAT = at("gcn", "large"), at("gat", "small")


@pytest.mark.parametrize(
    ("kind", "arguments", "true"),
    [
        ("gain", {"printed": 5.0, "of": LARGE}, True),  # over gat, the best other
        ("gain", {"printed": 10.0, "of": LARGE, "over": GCN}, True),
        ("gain", {"printed": 10.0, "of": LARGE}, False),
        ("gain", {"printed": 0.05, "of": ENERGY, "over": at("gat", "energy")}, True),  # less is better
        ("gain", {"printed": -0.05, "of": ENERGY, "over": at("gat", "energy")}, False),
        ("gain", {"printed": 5.0, "of": {"table": "t", "method": "ours"}}, True),  # the largest of the table
        ("share", {"printed": 50.0, "of": GAT, "over": LARGE}, False),
        ("share", {"printed": 55.6, "of": GAT, "over": LARGE}, True),  # 100 * 50 / 90
        ("share", {"printed": 44.4, "of": GAT, "over": LARGE, "saving": True}, True),
        ("share", {"printed": 25.0, "of": LARGE, "over": GCN, "what": "params"}, True),
        ("share", {"printed": 75.0, "of": LARGE, "over": GCN, "what": "params", "saving": True}, True),
        ("equals", {"printed": 90, "of": LARGE}, True),
        ("equals", {"printed": 89, "of": LARGE}, False),
        ("adds_up", {"total": LARGE, "parts": ["small", "energy"]}, False),
        ("adds_up", {"total": at("ours", "small"), "parts": ["small"]}, True),
        # compared with the spread of the runs
        ("not_significant", {"first": LARGE, "second": at("gt", "large")}, False),
        ("not_significant", {"first": LARGE, "second": LARGE}, True),
        ("not_significant", {"first": at("gat", "energy"), "second": ENERGY}, True),
    ],
)
def test_statements_on_single_numbers(kind, arguments, true):
    said = found(kind, **arguments)
    assert said.holds is true
    # if the text contradicts its table, the paper contradicts itself
    assert said.internal == (kind in ("gain", "share", "equals", "adds_up"))


@pytest.mark.parametrize(
    ("kind", "arguments", "true", "why"),
    [
        ("order", {"better": ["ours", "gat"], "worse": ["gt"], "datasets": ["large", "small"]}, True, "4 of 4"),
        ("order", {"better": ["ours", "gat"], "worse": ["gt"]}, False,
         "4 of 6 comparisons (not: energy mae: 0.25 of ours, 0.20 of gt; energy mae: 0.30 of gat, 0.20 of gt)"),
        ("best_groups", {"below": ["gt"], "above": ["gcn", "gat"]}, False,
         "2 of 3 columns (not: energy: 0.20 of gt, 0.30 of gat)"),
        ("nobody_in_front", {"rank": 1}, True, ""),
        ("nobody_in_front", {"rank": 3}, False, "always among the first 3: gat, gcn, gt"),
    ],
)  # fmt: skip
def test_every_pair_in_every_column(kind, arguments, true, why):
    said = found(kind, table="t", **arguments)
    assert (said.holds, why in said.reason) == (true, True), said.reason


@pytest.mark.parametrize(
    "sides", [(0.8, 0.1, 10, 0.7, 0.3, 5), (0.1, 0.1, 2, 0.7, 0.01, 100), (1.0, 0.0, 5, 1.0, 0.2, 5)]
)
def test_welchs_test_is_that_of_scipy(sides):
    found = ttest_ind_from_stats(*sides, equal_var=False, alternative="greater")
    assert _welch(*sides) == pytest.approx((found.statistic, found.pvalue))
