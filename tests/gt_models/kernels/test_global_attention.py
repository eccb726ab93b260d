"""Polynormer's global attention against loops."""

import math

import pytest
import torch
from torch import Tensor

from gt_models.batch import GraphBatch
from gt_models.kernels import global_attention as module
from gt_models.kernels.global_attention import global_attention, linear_attention
from tests.gt_models import checks
from tests.gt_models.reference import polynormer as loops


def graphs(*sizes: int) -> GraphBatch:
    ptr = torch.tensor([0, *sizes]).cumsum(0)
    return GraphBatch(torch.zeros(int(ptr[-1]), 1), torch.empty(2, 0, dtype=torch.long), ptr)


def tensors(rows: int, width: int, dtype: torch.dtype = torch.float64, shared: bool = False) -> list[Tensor | None]:
    """h, v, k, q [N, d]; gate, biases of v, k and q, weight and bias of the norm [d]."""
    torch.manual_seed(0)
    shapes = [(rows, width)] * 4 + [(width,)] * 6
    return [
        None if shared and i in (3, 7) else torch.randn(s, dtype=dtype, requires_grad=True)
        for i, s in enumerate(shapes)
    ]


def step(given: list[Tensor | None], heads: int) -> list[Tensor]:
    out = global_attention(*given, heads, 1e-5, graphs(len(given[0])))
    return [out, *torch.autograd.grad(out.sin().sum(), [t for t in given if t is not None])]


def test_it_against_loops():
    heads, width = 2, 3
    h, v, k, q, gate, v_bias, k_bias, q_bias, weight, bias = given = tensors(4, heads * width)
    keys, queries = (
        [[1 / (1 + math.exp(-x)) for x in row] for row in (t + b).tolist()] for t, b in ((k, k_bias), (q, q_bias))
    )
    expected = torch.zeros(4, heads * width, dtype=torch.float64)
    for i in range(4):
        y = []
        for head in range(heads):
            part = range(head * width, head * width + width)
            weights = [sum(queries[i][c] * keys[j][c] for c in part) for j in range(4)]
            y += [sum(w * float(v[j, c] + v_bias[c]) for j, w in enumerate(weights)) / sum(weights) for c in part]
        mean = sum(y) / len(y)
        deviation = math.sqrt(sum((x - mean) ** 2 for x in y) / len(y) + 1e-5)
        for c in range(heads * width):
            expected[i, c] = ((y[c] - mean) / deviation * weight[c] + bias[c]) * (h[i, c] + gate[c])
    torch.testing.assert_close(step(given, heads)[0], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shared", [False, True])
def test_gradients_are_those_of_differences(shared):
    given = tensors(5, 6, shared=shared)
    leaves = [t for t in given if t is not None]

    def form(*leaves):
        leaves = iter(leaves)
        return global_attention(*(None if t is None else next(leaves) for t in given), 2, 1e-5, graphs(5))

    assert torch.autograd.gradcheck(form, leaves)


def test_extreme_keys_are_neither_infinite_nor_nan():
    given = tensors(6, 8, shared=True)
    given[2] = (1e4 * given[2]).detach().requires_grad_()
    assert all(g.isfinite().all() for g in step(given, 2))


def test_linear_attention_is_the_same_padded_looped_and_alone():
    many = checks.collate(checks.random_graphs((1, 2, 60, 1, 1), in_dim=6))  # too unlike for padding
    few = checks.collate(checks.random_graphs((5, 4, 6), in_dim=6))
    for batch in (many, few, graphs(3, 0, 4)):
        q, k, v = (torch.rand(batch.num_nodes, 2, 3, dtype=torch.float64, requires_grad=True) for _ in range(3))
        out = linear_attention(q, k, v, batch)
        for b in range(batch.num_graphs):
            part = slice(int(batch.ptr[b]), int(batch.ptr[b + 1]))
            expected = loops.global_attention(
                2, *([row.mT.flatten() for row in t[part]] for t in (q, k, v))
            )  # head last
            if expected:
                torch.testing.assert_close(out[part].mT.flatten(1), torch.stack(expected), rtol=1e-10, atol=1e-10)
        assert all(g.isfinite().all() for g in torch.autograd.grad(out.sum(), (q, k, v)))


@pytest.mark.parametrize("num_nodes", [4, 8, 11])
def test_in_chunks_the_sums_over_nodes_are_the_same(num_nodes, monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 4)
    leaves = tuple(torch.rand(2, num_nodes, 3, 5, dtype=torch.float64, requires_grad=True) for _ in range(3))
    numerators = module._sums(*leaves)[0], module._numerator_in_chunks(*leaves)
    torch.testing.assert_close(*numerators, rtol=1e-12, atol=1e-12)
    gradients = (torch.autograd.grad(n.sin().sum(), leaves) for n in numerators)
    for expected, found in zip(*gradients, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-11)
