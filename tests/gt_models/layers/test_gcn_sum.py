"""Sums with the weights of GCN, compared with the dense matrix."""

import pytest
import torch

from gt_models.batch import GraphBatch
from gt_models.layers.csr import csr_edges
from gt_models.layers.gcn_sum import gcn_sum


def test_powers_of_the_normalised_matrix():
    """A graph with an isolated node, a stored self-loop, which counts once, and parallel edges, which all count."""
    edge_index = torch.tensor([[0, 1, 1, 2, 2, 2, 3], [1, 0, 2, 1, 2, 1, 0]])
    batch = GraphBatch(torch.zeros(5, 1), edge_index, torch.tensor([0, 5]))
    matrix = torch.eye(5, dtype=torch.float64)
    for source, target in edge_index.T.tolist():
        matrix[target, source] += source != target
    scale = matrix.sum(1).rsqrt()
    matrix = scale[:, None] * matrix * scale
    x = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    powers = gcn_sum(x, csr_edges(batch), 3)
    for power, expected in zip(powers, (matrix @ x, matrix @ matrix @ x, matrix @ matrix @ matrix @ x), strict=True):
        torch.testing.assert_close(power, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_sums_are_in_float32_under_autocast(dtype):
    batch = GraphBatch(torch.zeros(2, 1), torch.tensor([[0, 1], [1, 0]]), torch.tensor([0, 2]))
    with torch.autocast("cpu", torch.bfloat16):
        (power,) = gcn_sum(torch.tensor([[1.0], [1 + 2**-7]], dtype=dtype), csr_edges(batch))
    assert power.dtype == torch.float32
    torch.testing.assert_close(power, torch.full((2, 1), 1 + 2**-8))  # bfloat16 has no such number
