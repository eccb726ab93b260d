"""Sums over neighbours: the reference equals loops, the sparse form equals the reference."""

import pytest
import torch

from gt_models.kernels import use
from gt_models.kernels.neighbour_sum import neighbour_sum
from gt_models.layers.csr import csr_of


def case(num_nodes: int, num_edges: int, width: int):
    torch.manual_seed(0)
    source, target = torch.randint(0, max(1, num_nodes - 1), (2, num_edges))
    order = target.argsort(stable=True)
    value, weight = (
        torch.randn(num_nodes, width, dtype=torch.float64, requires_grad=True),
        torch.randn(num_edges, dtype=torch.float64),
    )
    return (value, weight, *csr_of(source, target, num_nodes)), list(
        zip(source[order].tolist(), target[order].tolist(), strict=True)
    )


def test_the_reference_against_loops():
    arguments, edges = case(6, 14, 3)
    value, weight = arguments[:2]
    expected = torch.zeros_like(value)
    for w, (j, i) in zip(weight, edges, strict=True):
        expected[i] += w * value[j]
    with use("reference"):
        torch.testing.assert_close(neighbour_sum(*arguments), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("num_nodes", "num_edges", "width"), [(1, 1, 5), (40, 150, 3), (9, 0, 4), (0, 0, 4)])
def test_sparse_agrees_with_the_reference(num_nodes, num_edges, width):
    arguments, _ = case(num_nodes, num_edges, width)
    results = []
    for form in ("reference", "sparse"):
        with use(neighbour_sum=form):
            out = neighbour_sum(*arguments)
        results.append([out, *torch.autograd.grad(out.sin().sum(), arguments[0])])
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
