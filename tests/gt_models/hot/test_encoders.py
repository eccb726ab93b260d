"""Encoders of order 1 and 2 compared with loops, and invalid features."""

import pytest
import torch

from gt_models import GraphBatch
from gt_models.hot.encoders import TensorEncoder
from gt_models.hot.support import Support
from tests.gt_models.hot.cases import _float64  # noqa: F401


@pytest.mark.parametrize("edge_columns", ["sum", "mean"])
def test_categorical_input_by_loops(edge_columns):
    """Sums or means of embeddings, and two tables of in-degrees whose last row is for all larger degrees."""
    part = TensorEncoder(2, [5, 3], [4, 2], 6, edge_columns, degree_embeddings=3)
    edges = torch.tensor([[0, 1, 2, 3, 4], [1, 0, 1, 1, 1]])
    x, attr = (
        torch.tensor([[0, 1], [4, 2], [3, 0], [0, 0], [1, 1]]),
        torch.tensor([[3, 1], [0, 0], [2, 1], [1, 0], [0, 1]]),
    )
    graph = GraphBatch(x, edges, torch.tensor([0, 5]), attr)
    support = Support.sparse(graph)
    out, node, edge = part(graph, support, torch.float64), part.node.embedding.weight, part.edge.embedding.weight
    for i in range(5):
        degree = min(2, sum(int(t == i) for t in edges[1]))
        expected = node[x[i, 0]] + node[5 + x[i, 1]] + part.degree[0].weight[degree] + part.degree[1].weight[degree]
        torch.testing.assert_close(out[i], torch.cat([expected, torch.zeros(6)]))
    for e, (s, t) in enumerate(edges.T.tolist()):
        expected = (edge[attr[e, 0]] + edge[4 + attr[e, 1]]) / (2 if edge_columns == "mean" else 1)
        torch.testing.assert_close(
            out[support.sets[2].index.tolist().index([s, t])], torch.cat([torch.zeros(6), expected])
        )
