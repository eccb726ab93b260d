"""Gated attention: the reference equals loops, each form equals the reference."""

import math

import pytest
import torch

from gt_models.kernels import forms_taken, use
from gt_models.kernels.gated_attention import gated_attention
from gt_models.layers.pair_dropout import kept_pairs
from tests.gt_models.checks import assert_threads_change_no_bit
from tests.gt_models.kernels.cases import gated_attention_case as case

SIZES = (6, 1, 0, 40)  # few nodes, one, none, many


@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_the_reference_against_loops(dropout):
    qkv, pairs, _, _, scale, key_scale, *_ = arguments = case((3, 2), 2, 3, dropout)
    bias, gate = pairs.t().unflatten(0, (2, 2))  # [H, P] each
    q, k, v = qkv.view(5, 3, 2, 3).unbind(1)
    expected, pair = torch.zeros(5, 2, 3, dtype=torch.float64), 0
    stays = kept_pairs(torch.tensor([11]), 13, 2, dropout)  # [P, H]
    for graph in (range(3), range(3, 5)):
        for i in graph:
            for h in range(2):
                logits = [scale * float(q[i, h] @ k[j, h]) + key_scale * float(k[j, h] @ k[j, h]) for j in graph]
                powers = [math.exp(logit + float(bias[h, pair + place])) for place, logit in enumerate(logits)]
                for place, j in enumerate(graph):
                    keep = float(stays[pair + place, h]) / (1 - dropout)
                    expected[i, h] += keep * gate[h, pair + place] * powers[place] / sum(powers) * v[j, h]
            pair += len(graph)
    with use("reference"):
        torch.testing.assert_close(gated_attention(*arguments), expected.view(5, 6), rtol=1e-12, atol=1e-12)


def results(form: str, arguments: tuple) -> list[torch.Tensor]:
    with use(gated_attention=form):
        out = gated_attention(*arguments)
    return [out.detach(), *torch.autograd.grad((out * out.detach().cos()).sum(), arguments[:2])]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "heads", "width", "dropout", "gated"),
    [
        (SIZES, 3, 5, 0.0, True),
        (SIZES, 3, 5, 0.4, True),
        (SIZES, 2, 12, 0.4, True),
        (SIZES, 3, 5, 0.4, False),
        ((), 3, 5, 0.0, True),
    ],
)
def test_the_kernel_agrees_with_the_reference(sizes, heads, width, dropout, gated):
    arguments = case(sizes, heads, width, dropout, gated)
    for expected, found in zip(results("reference", arguments), results("numba", arguments), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.slow
def test_columns_of_a_wider_matrix_are_read_where_they_are():
    """As in PPGT's layers, where biases and gates are columns of one product."""
    qkv, pairs, *rest = case(SIZES, 3, 5, 0.4)
    wide = torch.randn(len(pairs), 11, dtype=torch.float64)
    wide[:, 3:9] = pairs.detach()
    columns = wide[:, 3:9].requires_grad_()
    for expected, found in zip(
        results("numba", (qkv, pairs, *rest)), results("numba", (qkv, columns, *rest)), strict=True
    ):
        assert torch.equal(expected, found)


@pytest.mark.slow
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("place", [0, 1, 2])  # queries, keys and values; bias; gate
def test_what_is_not_finite_comes_out_where_the_reference_lets_it_out(place, bad):
    arguments = case((6, 40), 3, 5)
    arguments[min(place, 1)].data[3, max(place - 1, 0) * 3 + 1] = bad
    outs = [results(form, arguments) for form in ("reference", "numba")]
    if (place, bad) != (1, -float("inf")):  # a bias of -inf is a weight of 0
        assert not outs[0][0].isfinite().all()
    for expected, found in zip(outs[0][:1], outs[1][:1], strict=True):
        assert torch.equal(expected.isnan(), found.isnan())
        assert torch.equal(expected.isinf(), found.isinf())


@pytest.mark.slow
def test_threads_do_not_change_a_bit():
    arguments = case((5, 30, 1, 17, 22), 3, 5, 0.2)
    assert_threads_change_no_bit(lambda: results("numba", arguments))


def test_half_precision_takes_the_reference():
    arguments = case((4, 3), 2, 3, dtype=torch.bfloat16)
    with forms_taken() as taken:
        gated_attention(*arguments)
    assert dict(taken["gated_attention"]) == {"reference": 1}
