"""Layouts of the papers' tables: every published number has its place."""

import pytest

from gt_bench.config.schema import RecipeError
from gt_bench.papers.published import everything
from gt_bench.papers.table_layout import find, layouts, of_paper
from tests.refusals import refused


def test_every_published_number_has_its_place_in_a_table():
    numbers = everything()
    assert (
        sum(len(layout.printed) for layout in layouts()) == len(numbers) == 907 + 27 + 20
    )  # and those of Luo et al. 2024 and Platonov et al. 2023
    assert {n.place for n in numbers} == {n.place for layout in layouts() for n in layout.printed.values()}


def test_the_layout_is_that_of_the_data():
    layout = find("edge-transformer", "3")
    assert layout.methods == ("GCN", "GIN(E)", "(2,1)-SpeqNet", "(2,2)-SpeqNet", "(3,1)-SpeqNet", "ET")
    assert [column.dataset for column in layout.columns] == ["cornell", "texas", "wisconsin"]
    assert find("tokengt", "pcqm4mv2").table == "table:pcqm4mv2"
    assert len({layout.name for layout in layouts()}) == len(layouts())


@pytest.mark.parametrize(
    ("paper", "name", "value"), [("edge_transfomer", "3", "edge_transfomer"), ("hot", "Table 2", "Table 2")]
)
def test_a_table_that_is_not_printed_is_named(paper, name, value):
    with refused(RecipeError, value=value):
        find(paper, name)


def test_all_papers_are_listed():
    assert [len(of_paper(paper)) for paper in ("tokengt", "hot", "ppgt", "edge-transformer", "polynormer")] == [
        3,
        3,
        9,
        3,
        7,
    ]
