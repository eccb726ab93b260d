"""Numbers of nodes."""

from gt_models.encodings import compute
from tests.gt_models.checks import collate, random_graphs


def test_numbers_are_within_the_graph():
    assert compute("number", collate(random_graphs((3, 1, 2))))["number"].tolist() == [[0], [1], [2], [0], [0], [1]]
