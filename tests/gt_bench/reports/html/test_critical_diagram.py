"""The drawing of ranks: names do not overlap, and bars span their groups."""

from itertools import pairwise

import pytest

from gt_bench.reports.html.critical_diagram import draw
from gt_bench.reports.over_datasets import diagram


@pytest.mark.parametrize("paper", ["edge-transformer", "polynormer", "ppgt", "tokengt"])
def test_names_do_not_overlap_and_bars_span_their_groups(paper):
    found = diagram(paper, [])
    drawing = draw(found)
    for side in ("end", "start"):
        heights = [mark.y for mark in drawing.marks if mark.anchor == side]
        assert min(abs(a - b) for a, b in pairwise(sorted(heights))) >= 15
        assert max(heights) <= drawing.height
    marks = drawing.marks
    assert [mark.x for mark in marks] == sorted(mark.x for mark in marks)
    for (first, last), (start, end, y) in zip(found.groups, drawing.bars, strict=True):
        assert start < marks[first].x <= marks[last].x < end
        assert drawing.axis < y < min(mark.y for mark in marks)
