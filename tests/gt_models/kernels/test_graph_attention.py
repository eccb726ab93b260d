"""Attention over neighbours: the reference equals loops, each form equals the reference."""

import math

import pytest
import torch

from gt_models.kernels import use
from gt_models.kernels.graph_attention import graph_attention
from gt_models.layers.csr import csr_of
from tests.gt_models.checks import assert_threads_change_no_bit
from tests.gt_models.kernels.cases import graph_attention_case as case

pytestmark = pytest.mark.slow


def test_the_reference_against_loops():
    arguments, edges = case(6, 14, 2, 3)
    value, source, target = arguments[:3]
    v = value.view(6, 2, 3)
    expected = torch.zeros_like(v)
    for i in range(6):
        for h in range(2):
            scores = [float(source[h] @ v[j, h] + target[h] @ v[i, h]) for j, t in edges if t == i]
            powers = [math.exp(s if s > 0 else 0.2 * s) for s in scores]
            for (j, _), power in zip([e for e in edges if e[1] == i], powers, strict=True):
                expected[i, h] += power / sum(powers) * v[j, h]
    with use("reference"):
        torch.testing.assert_close(graph_attention(*arguments), expected.view(6, 6), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("num_nodes", "num_edges", "heads", "width"), [(1, 1, 1, 5), (40, 150, 3, 5), (9, 0, 2, 4), (2500, 6000, 3, 5)]
)
@pytest.mark.parametrize("form", [f.name for f in graph_attention.forms if "cpu" in f.devices])
def test_forms_agree_with_the_reference(form, num_nodes, num_edges, heads, width):
    arguments, _ = case(num_nodes, num_edges, heads, width)
    results = []
    for name in ("reference", form):
        with use(graph_attention=name):
            out = graph_attention(*arguments)
        results.append([out, *torch.autograd.grad((out * out.detach().cos()).sum(), arguments[:3])])
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("heads", [1, 3])
def test_gradients_are_those_of_differences(heads):
    arguments, _ = case(9, 30, heads, 5)
    assert torch.autograd.gradcheck(lambda *leaves: graph_attention(*leaves, *arguments[3:]), arguments[:3])


def test_large_scores_do_not_overflow():
    (value, *others), _ = case(9, 30, 3, 5)
    out = graph_attention(value * 1e5, *others)
    assert out.isfinite().all()
    assert all(grad.isfinite().all() for grad in torch.autograd.grad(out.sum(), (value, *others[:2])))


@pytest.mark.parametrize("form", ["reference", "numba"])
def test_wide_indices_and_edges_without_a_node_change_nothing(form):
    arguments, edges = case(40, 150, 3, 5)
    source, target = torch.tensor(edges).T
    dropped = torch.tensor([0, 70, 151])  # with edges that belong to no node among the others
    keep = torch.ones(153, dtype=torch.bool).index_fill(0, dropped, False)
    more_source, more_target = torch.full((153,), 7), torch.full((153,), 40)
    more_source[keep], more_target[keep] = source, target
    wide = tuple(t.long() for t in csr_of(more_source, more_target, 40))
    with use(graph_attention=form):
        outs = [graph_attention(*arguments[:3], *e, 0.2) for e in (arguments[3:8], wide)]
    assert torch.equal(*outs)
    assert all(
        torch.equal(*g) for g in zip(*(torch.autograd.grad(o.sin().sum(), arguments[:3]) for o in outs), strict=True)
    )


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_comes_out_where_the_reference_lets_it_out(bad):
    arguments, _ = case(40, 150, 3, 5)
    arguments[0].data[3, 2] = bad
    outs = []
    for form in ("reference", "numba"):
        with use(graph_attention=form):
            outs.append(graph_attention(*arguments).detach())
    assert not outs[0].isfinite().all()
    assert torch.equal(outs[0].isnan(), outs[1].isnan())
    assert torch.equal(outs[0].isinf(), outs[1].isinf())


def test_threads_do_not_change_a_bit():
    arguments, _ = case(3000, 9000, 2, 4, torch.float32)

    def step() -> list[torch.Tensor]:
        out = graph_attention(*arguments)
        return [out, *torch.autograd.grad(out.square().sum(), arguments[:3])]

    assert_threads_change_no_bit(step)
