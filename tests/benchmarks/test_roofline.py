"""docs/roofline.md and docs/speed.md have a row for each cell that their commands measure by default."""

import re

import pytest

from benchmarks import cells, roofline


@pytest.mark.parametrize("script", [cells, roofline], ids=lambda script: script.PAGE.name)
def test_the_page_has_a_row_for_each_cell(script):
    written = script.PAGE.read_text().split(script.BEGIN)[1].split(script.END)[0]
    tables = [re.findall(r"^\| ([\w-]+/[\w-]+/[\w-]+) \|", table, re.M) for table in re.split(r"\n\n", written)]
    rows = [set(table) for table in tables if table]
    assert rows
    assert all(table == set(script.CELLS) for table in rows)


def test_each_paper_is_among_them():
    papers = {"tokengt", "hot", "ppgt", "edge-transformer", "polynormer"}
    assert papers <= {cell.split("/")[0] for cell in roofline.CELLS}
