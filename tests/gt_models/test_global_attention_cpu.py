"""The compiled global layer of Polynormer: equal to its parts with their gradients, what runs on the CPU, the same on any number of threads."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from gt_models import polynormer
from gt_models.batch import GraphBatch
from gt_models.nn.global_attention_cpu import global_attention
from gt_models.nn.linear_attention import linear_attention
from gt_models.polynormer import Beta, GlobalLayer
from tests.gt_models import checks


def tensors(rows: int, width: int, dtype=torch.float64) -> list[Tensor]:
    """h, v, k, q [N, d]; gate, biases of v, k and q, weight and bias of the norm [d]."""
    shapes = [(rows, width)] * 4 + [(width,)] * 6
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]


def in_parts(h, v, k, q, gate, v_bias, k_bias, q_bias, weight, bias, heads: int, eps: float) -> Tensor:
    graph = GraphBatch(torch.zeros(len(h), 1), torch.empty(2, 0, dtype=torch.long), torch.tensor([0, len(h)]))
    k = torch.sigmoid(k + k_bias)
    q = k if q is None else torch.sigmoid(q + q_bias)
    q, k, v = (t.unflatten(1, (heads, -1)).transpose(1, 2) for t in (q, k, v + v_bias))
    y = linear_attention(q, k, v, graph).transpose(1, 2).flatten(1)
    return F.layer_norm(y, y.shape[1:], weight, bias, eps) * (h + gate)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(
    ("rows", "heads", "width"), [(1, 1, 8), (600, 3, 7), (9, 2, 16), (300, 3, 16), (5, 1, 21)]
)  # more rows than a block
def test_equals_its_parts_with_their_gradients(rows, heads, width, shared):
    leaves, results = tensors(rows, heads * width), []
    given = [None if shared and i in (3, 7) else t for i, t in enumerate(leaves)]
    wanted = [t for t in given if t is not None]
    for form in (lambda *a: global_attention(*a)[0], in_parts):
        out = form(*given, heads, 1e-5)
        results.append([out, *torch.autograd.grad(out.sin().sum(), wanted)])
    for mine, expected in zip(*results, strict=True):
        # with one row the attention is that row: gradients of query and key are zero, up to the last bits of larger terms
        torch.testing.assert_close(mine, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("shared", [False, True])
def test_gradients_are_those_of_differences(shared):
    leaves = tensors(5, 6)

    def form(*given):
        given = [None if shared and i in (3, 7) else t for i, t in enumerate(given)]
        return global_attention(*given, 2, 1e-5)[0]

    assert torch.autograd.gradcheck(form, leaves)


def test_extreme_keys_are_neither_infinite_nor_nan():
    leaves = tensors(6, 8)
    leaves[2] = (1e4 * leaves[2]).detach().requires_grad_()
    out, expected = (form(*leaves[:3], None, *leaves[4:7], None, *leaves[8:], 2, 1e-5) for form in (global_attention, in_parts))
    torch.testing.assert_close(out[0], expected, rtol=1e-10, atol=1e-10)
    assert all(g.isfinite().all() for g in torch.autograd.grad(out[0].sum(), leaves[:3]))


def test_sums_over_nodes_are_the_same_for_any_number_of_threads():
    leaves, found, threads = tensors(1500, 24, torch.float32), [], torch.get_num_threads()
    for count in (1, 3):
        torch.set_num_threads(count)
        *_, total = global_attention(*leaves[:3], None, *leaves[4:7], None, *leaves[8:], 4, 1e-5)
        found.append(total)
    torch.set_num_threads(threads)
    assert torch.equal(*found)


@pytest.mark.parametrize("heads", [1, 2])
def test_it_is_what_runs_on_the_cpu_for_one_graph(heads, monkeypatch):
    calls, real = [], polynormer.global_attention
    monkeypatch.setattr(polynormer, "global_attention", lambda *a: calls.append(1) or real(*a))
    layer = GlobalLayer(8, heads, Beta(8, 2, "sigmoid", None), False, False, True, 0.0).double()
    one, two = (checks.collate(checks.random_graphs(sizes)) for sizes in ((6,), (6, 4)))
    alone = layer(torch.randn(6, 8, dtype=torch.float64), one, None, None)
    assert len(calls) == 1
    layer(torch.randn(10, 8, dtype=torch.float64), two, None, None)
    assert len(calls) == 1  # several graphs are padded
    assert alone.shape == (6, 8)
