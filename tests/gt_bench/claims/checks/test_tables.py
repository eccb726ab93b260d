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


@pytest.fixture(autouse=True)
def _printed(monkeypatch):
    monkeypatch.setattr(
        "gt_bench.papers.published.numbers_of",
        lambda paper: Numbers.of([published_entry(one, [], ()) for one in entries()]),
    )
    monkeypatch.setattr("gt_bench.claims.checks.figures.read_entries", lambda path: entries())


def entries():
    return [
        {
            **{
                "paper": "p",
                "table": "t",
                "method": method,
                "canonical_method": method,
                "dataset": dataset,
                "split": "test",
                "printed": f"{value:.2f}" if dataset == "energy" else f"{value:g}",
                "oom": False,
            },
            **(
                {"metric": "mae", "direction": "min", "unit": "none"}
                if dataset == "energy"
                else {"metric": "accuracy", "direction": "max", "unit": "percent"}
            ),
            **{
                "mean": value,
                "std": 2.0,
                "runs": 4,
                "own": method == "ours",
                "params": 200 if method == "ours" else 800,
            },
        }
        for dataset, row in TABLE.items()
        for method, value in row.items()
    ]


def found(kind, **arguments):
    return find_check(kind)(paper="p", **arguments)


def at(method, dataset):
    return {"table": "t", "method": method, "dataset": dataset}


@pytest.mark.parametrize(
    ("arguments", "true", "why"),
    [
        (
            {},
            False,
            "best in 1 of 3 columns (not: small accuracy: 60 against 65 of gcn; energy mae: 0.25 against 0.20 of gt)",
        ),
        ({"datasets": ["large"]}, True, "best in 1 of 1 columns"),
        ({"metrics": ["accuracy"], "rank": 2}, True, "among the first 2 in 2 of 2 columns"),
        ({"count": 1}, True, "best in 1 of 3"),
        ({"count": 2}, False, "best in 1 of 3"),
        ({"count": 1, "only": True}, True, "best in 1 of 3"),
        ({"against": ["gat"]}, True, "best in 3 of 3 columns"),
    ],
)
def test_best_of_its_columns(arguments, true, why):
    said = found("best", table="t", method="ours", **arguments)
    assert said.holds is true
    assert why in said.reason


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


def test_text_that_contradicts_its_table_is_no_failed_sentence():
    assert found("equals", printed=89, of=at("ours", "large")).internal
    assert found("gain", printed=1.0, of=at("ours", "large")).internal
    assert not found("best", table="t", method="ours").internal


@pytest.mark.parametrize(
    ("arguments", "true"),
    [
        ({"printed": 5.0, "of": at("ours", "large")}, True),  # over gat, the best other
        ({"printed": 10.0, "of": at("ours", "large"), "over": at("gcn", "large")}, True),
        ({"printed": 10.0, "of": at("ours", "large")}, False),
        ({"printed": 0.05, "of": at("ours", "energy"), "over": at("gat", "energy")}, True),  # less is better
        ({"printed": -0.05, "of": at("ours", "energy"), "over": at("gat", "energy")}, False),
        ({"printed": 5.0, "of": {"table": "t", "method": "ours"}}, True),  # the largest of the table
    ],
)
def test_gain(arguments, true):
    assert found("gain", **arguments).holds is true


@pytest.mark.parametrize(
    ("arguments", "true"),
    [
        ({"printed": 50.0, "of": at("gat", "small"), "over": at("ours", "large")}, False),
        ({"printed": 55.6, "of": at("gat", "small"), "over": at("ours", "large")}, True),  # 100 * 50 / 90
        ({"printed": 44.4, "of": at("gat", "small"), "over": at("ours", "large"), "saving": True}, True),
        ({"printed": 25.0, "of": at("ours", "large"), "over": at("gcn", "large"), "what": "params"}, True),
        (
            {"printed": 75.0, "of": at("ours", "large"), "over": at("gcn", "large"), "what": "params", "saving": True},
            True,
        ),
    ],
)
def test_share(arguments, true):
    assert found("share", **arguments).holds is true


def test_order_is_of_every_pair_in_every_column():
    assert found("order", table="t", better=["ours", "gat"], worse=["gt"], datasets=["large", "small"]).holds
    said = found("order", table="t", better=["ours", "gat"], worse=["gt"])
    assert not said.holds
    assert (
        said.reason
        == "4 of 6 comparisons (not: energy mae: 0.25 of ours, 0.20 of gt; energy mae: 0.30 of gat, 0.20 of gt)"
    )


def test_best_of_groups():
    assert (
        found("best_groups", table="t", below=["gt"], above=["gcn", "gat"]).reason
        == "2 of 3 columns (not: energy: 0.20 of gt, 0.30 of gat)"
    )


def test_methods_always_among_the_first_are_named():
    assert found("nobody_in_front", table="t", rank=1).holds
    said = found("nobody_in_front", table="t", rank=3)
    assert not said.holds
    assert said.reason == "always among the first 3: gat, gcn, gt"


def test_a_difference_is_compared_with_the_spread_of_its_runs():
    assert not found("not_significant", first=at("ours", "large"), second=at("gt", "large")).holds
    assert found("not_significant", first=at("ours", "large"), second=at("ours", "large")).holds
    assert found("not_significant", first=at("gat", "energy"), second=at("ours", "energy")).holds


def test_equal_and_added_up():
    assert found("equals", printed=90, of=at("ours", "large")).holds
    assert not found("equals", printed=89, of=at("ours", "large")).holds
    assert not found("adds_up", total=at("ours", "large"), parts=["small", "energy"]).holds
    assert found("adds_up", total=at("ours", "small"), parts=["small"]).holds


@pytest.mark.parametrize(
    "sides", [(0.8, 0.1, 10, 0.7, 0.3, 5), (0.1, 0.1, 2, 0.7, 0.01, 100), (1.0, 0.0, 5, 1.0, 0.2, 5)]
)
def test_welchs_test_is_that_of_scipy(sides):
    found = ttest_ind_from_stats(*sides, equal_var=False, alternative="greater")
    assert _welch(*sides) == pytest.approx((found.statistic, found.pvalue))
