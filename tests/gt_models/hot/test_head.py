"""The head compared with loops, and invalid hyperedges."""

import pytest
import torch

from gt_models.hot.head import PredictionHead, hyperedge_index
from tests.gt_models import checks
from tests.gt_models.hot.cases import _float64, build  # noqa: F401
from tests.gt_models.reference import hot as reference


def test_head_by_loops():
    """LN, Linear, then an MLP; each of its layers adds a second one on the diagonal of pairs."""
    batch = checks.collate(checks.random_graphs(sizes=(3, 2)))
    head, values = PredictionHead(4, 2, [5], diagonal=True), torch.randn(13, 4)
    hidden = reference.layer_norm(values, head.norm) @ head.project.weight.T + head.project.bias
    for depth in range(2):
        own, extra, rows = head.mlp[depth], head.on_diagonal[depth], []
        for row, (i, j) in enumerate(zip(*batch.pair_nodes, strict=True)):
            out = own.weight @ hidden[row] + own.bias
            out = out + extra.weight @ hidden[row] + extra.bias if i == j else out
            rows.append(out.clamp(min=0) if depth == 0 else out)
        hidden = torch.stack(rows)
    torch.testing.assert_close(head(values, batch), hidden, rtol=1e-10, atol=1e-10)


def test_a_hyperedge_has_distinct_nodes():
    graph = checks.random_graphs((4,))[0]
    graph.extras["hyperedge_index"] = torch.tensor([[0, 1, 1]])
    with pytest.raises(ValueError, match="twice"):
        hyperedge_index(graph, 3)
