"""Rows as readable text."""

import pytest

from gt_bench.leaderboard.collect import judged
from gt_bench.leaderboard.columns import SHOWN, cells, table_lines
from gt_bench.leaderboard.printed_rows import print_rows
from tests.gt_bench.cells import changed, make_record, make_result, without_data


@pytest.mark.parametrize(("width", "costs"), [(60, False), (80, False), (180, False), (330, True)])
def test_a_table_leaves_columns_out_and_never_breaks_a_word(width, costs, monkeypatch, capsys):
    """Mean, runs, difference with interval, verdict and status are always shown."""
    monkeypatch.setenv("COLUMNS", str(width))
    cell = "hot/chains/hot-sparse-kernel-no-global"
    runs = [make_record(cell, seed) for seed in range(2)]
    row = judged(make_result(cell, runs, method=None), runs)[0]
    print_rows("hot", [row], notes=False)
    body, _, left_out = capsys.readouterr().out.partition("columns that do not fit")
    assert max(map(len, body.splitlines())) <= width
    assert cell in body
    whole = {word for text in (*SHOWN, *cells(row), cell, "hot cell from") for word in text.split()}
    assert {word for word in body.replace("─", " ").split()} <= whole
    assert ("401" in body) == costs
    assert bool(left_out) == (not costs)
    texts = dict(zip(SHOWN, cells(row), strict=True))
    for name in ("mean ± std", "published", "runs", "difference [95 %]", "verdict", "status"):
        assert all(word in body for word in (*name.split(), *texts[name].split()))


def test_foreign_text_in_a_reason_is_text_in_the_report():
    result = changed(without_data("s/texas/gcn"), reason="403 <img src=x onerror=alert(1)> \x1b[31m & more")
    lines = table_lines(judged(result, []))
    (remark,) = [line for line in lines if "403" in line]
    assert "403 &lt;img src=x onerror=alert(1)&gt; [31m &amp; more" in remark
