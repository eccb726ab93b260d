"""Sums of attention over all nodes in other orders, compared with loops."""

import pytest
import torch

from gt_models.kernels import linear_attention as module
from tests.gt_models.reference import polynormer as loops


def tensors(rows: int) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.rand(rows, 2, 3, dtype=torch.float64, requires_grad=True) for _ in range(3)]


def by_loops(query, key, value):
    """Heads of channels h, h + 2, h + 4."""
    out = loops.global_attention(2, *([row.mT.flatten() for row in t] for t in (query, key, value)))
    return torch.stack(out).unflatten(1, (3, 2)).mT


def test_graph_by_graph():
    sizes, given = [1, 0, 60, 2], tensors(63)
    out = module.by_graph(*given, sizes)
    parts = [part for part in zip(*(t.split(sizes) for t in given), strict=True) if len(part[0])]
    torch.testing.assert_close(out, torch.cat([by_loops(*part) for part in parts]), rtol=1e-10, atol=1e-10)
    assert all(g.isfinite().all() for g in torch.autograd.grad(out.sum(), given))


@pytest.mark.parametrize("num_nodes", [4, 8, 11])
def test_in_chunks(num_nodes, monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 4)
    given = tensors(num_nodes)
    expected, found = module.by_graph(*given, [num_nodes]), module.in_chunks(*given)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    gradients = (torch.autograd.grad(out.sin().sum(), given) for out in (expected, found))
    for mine, other in zip(*gradients, strict=True):
        torch.testing.assert_close(other, mine, rtol=1e-11, atol=1e-11)
