"""The rows of leaderboards on the page."""

from gt_bench.leaderboard.rows import rows_of
from gt_bench.reports.html import content
from tests.gt_bench.cells import make_record, make_result


def test_a_limit_of_theory_is_where_nothing_is_printed():
    cell = "embedded/rook-shrikhande/ppgt"
    records = [make_record(cell, seed, test=0.5) for seed in range(3)]
    (row,) = [row | {"source": "own"} for row in rows_of(make_result(cell, records, None), records)]
    (line,) = content.board([row], [])
    assert (line["texts"]["published"], line["texts"]["verdict"], line["sign"]) == (
        "theory: at most 50.00",
        "as expected",
        "✓",
    )
    (line,) = content.board([row | {"as_expected": "not as expected"}], [])
    assert (line["texts"]["verdict"], line["kind"]) == ("not as expected", "worse")
