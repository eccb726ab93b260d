"""Softmax and sums over the edges of each node, compared with loops."""

import torch

from gt_models.layers.edge_softmax import edge_softmax, sum_over_edges


def test_by_loops():
    """Node 2 has no incoming edge; the last edge belongs to no node."""
    target = torch.tensor([0, 1, 0, 0, 1, 3])
    scores, values = torch.randn(6, 2, dtype=torch.float64), torch.randn(6, 2, 3, dtype=torch.float64)
    weight = edge_softmax(100 * scores, target, 3)
    out = sum_over_edges(weight[..., None] * values, target, 3)
    for node in range(3):
        edges = [e for e in range(6) if target[e] == node]
        share = (100 * scores[edges]).softmax(0)
        torch.testing.assert_close(weight[edges], share)
        expected = sum(
            (share[k][:, None] * values[e] for k, e in enumerate(edges)), torch.zeros(2, 3, dtype=torch.float64)
        )
        torch.testing.assert_close(out[node], expected)


def test_half_precision_is_summed_in_float32():
    weight = edge_softmax(torch.zeros(1000, dtype=torch.bfloat16), torch.zeros(1000, dtype=torch.long), 1)
    assert weight.dtype == torch.float32
    torch.testing.assert_close(sum_over_edges(weight, torch.zeros(1000, dtype=torch.long), 1), torch.ones(1))
