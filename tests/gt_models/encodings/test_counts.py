"""Degrees and order."""

import networkx as nx

from gt_models.encodings import compute
from tests.gt_models.checks import collate
from tests.gt_models.encodings.graphs import of_networkx


def test_counts():
    graph = of_networkx(nx.star_graph(3, create_using=nx.DiGraph))
    batch = collate([graph, of_networkx(nx.path_graph(2))])
    assert compute("degree", batch)["degree"].tolist() == [[0, 3], [1, 0], [1, 0], [1, 0], [1, 1], [1, 1]]
    assert compute("order", batch)["order"].tolist() == [[4], [2]]
