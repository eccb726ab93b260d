"""Rows as readable text."""

import io
import re

import pytest

from gt_bench.leaderboard.columns import SHOWN, cells, table_lines, terminal_table
from gt_bench.leaderboard.rows import rows_of
from tests.gt_bench.cells import make_record, make_result, without_data


@pytest.mark.parametrize(("width", "costs"), [(60, False), (80, False), (180, False), (330, True)])
def test_a_table_leaves_columns_out_and_never_breaks_a_word(width, costs):
    """Mean, runs, difference with interval, verdict and status are always shown."""
    from rich.console import Console

    cell = "hot/chains/hot-sparse-kernel-no-global"
    runs = [make_record(cell, seed) for seed in range(2)]
    row = rows_of(make_result(cell, runs, method=None), runs)[0]
    console = Console(width=width, file=io.StringIO())
    console.print(terminal_table("hot", [row], width))
    shown = console.file.getvalue()
    assert "…" not in shown
    assert max(map(len, shown.splitlines())) <= width
    assert "hot-sparse-kernel-no-global" in shown
    body = shown.partition("columns that do not fit")[0]
    whole = {word for text in (*SHOWN, *cells(row)) for word in text.split()}
    assert {word for line in body.splitlines()[1:] for word in re.sub("[┃│┏┓┡┩└┘┳━╇┴─]", " ", line).split()} <= whole
    assert ("401" in shown) == costs
    assert ("columns that do not fit" in shown) == (not costs)
    texts = dict(zip(SHOWN, cells(row), strict=True))
    for name in ("mean ± std", "published", "runs", "difference [95 %]", "verdict", "status"):
        assert all(word in body for word in (*name.split(), *texts[name].split()))


def test_foreign_text_in_a_reason_is_text_in_the_report():
    result = without_data("s/texas/gcn") | {"reason": "403 <img src=x onerror=alert(1)> \x1b[31m & more"}
    lines = table_lines(rows_of(result, []))
    (remark,) = [line for line in lines if "403" in line]
    assert "403 &lt;img src=x onerror=alert(1)&gt; [31m &amp; more" in remark
