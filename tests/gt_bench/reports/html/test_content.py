"""The rows of leaderboards on the page."""

from dataclasses import replace

from gt_bench.leaderboard.collect import judged
from gt_bench.leaderboard.expectations import Agreement
from gt_bench.records.cell import EnsembleSummary, SearchSummary
from gt_bench.reports.html import content
from tests.gt_bench.cells import make_record, make_result


def test_a_limit_of_theory_is_where_nothing_is_printed():
    cell = "embedded/rook-shrikhande/ppgt"
    records = [make_record(cell, seed, test=0.5) for seed in range(3)]
    (row,) = [replace(row, source="own") for row in judged(make_result(cell, records, None), records)]
    (line,) = content.board([row], [])
    assert (line["texts"]["published"], line["texts"]["verdict"], line["sign"]) == (
        "theory: at most 50.00",
        "as expected",
        "✓",
    )
    other = replace(row, outlook=replace(row.outlook, agreement=Agreement.NOT_AS_EXPECTED))
    (line,) = content.board([other], [])
    assert (line["texts"]["verdict"], line["kind"]) == ("not as expected", "worse")


def test_a_searched_model_has_three_columns_with_their_budgets():
    cell = "embedded/chains/gcn"
    records = [make_record(cell, seed, test=0.75) for seed in range(2)]
    (row,) = [replace(row, source="own") for row in judged(make_result(cell, records, None), records)]
    summary = {"mean": 0.8, "std": 0.01, "runs": 2, "hours": 3.0, "tuned_hours": 2.0, "trials": 5}
    summary |= {"default_mean": 0.7, "default_std": 0.02, "default_hours": 1.0}

    def searched(ensemble):
        search = SearchSummary(trials=5, states={"COMPLETE": 5}, ensemble=EnsembleSummary(**ensemble))
        return replace(row, search=search)

    assert content.tuned([row]) == []
    (line,) = content.tuned([searched(summary)])
    assert (line["default"], line["default_budget"]) == ("70.00 ± 2.00", "1 h")
    assert (line["tuned"], line["tuned_budget"]) == ("75.00 ± 0.00", "5 trials, 2 h")
    assert (line["ensembled"], line["ensembled_budget"]) == ("80.00 ± 1.00", "5 trials, 3 h")
    del summary["trials"]  # as in older results
    (line,) = content.tuned([searched(summary)])
    assert line["tuned_budget"] == "2 h"
