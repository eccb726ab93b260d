"""Softmax attention in plain torch: its second derivative, dropout as a module, and torch's fused operator."""

import pytest
import torch

from gt_models.kernels import use
from gt_models.layers.packing import Packing
from gt_models.layers.softmax_attention import SoftmaxAttention, WeightDropout, drop_weights, fused_attention

COUNTS = torch.tensor([3, 1, 4])


@pytest.mark.slow
@pytest.mark.parametrize("max_padding", [0.0, 1.0])
@pytest.mark.parametrize("own_queries", [True, False])
def test_attention_has_a_second_derivative(own_queries, max_padding):
    torch.manual_seed(0)
    attention, packing = SoftmaxAttention(2).double(), Packing.of(COUNTS, max_padding=max_padding)
    tokens = torch.randn(8, 12 if own_queries else 8, dtype=torch.float64, requires_grad=True)
    given = [tokens] if own_queries else [torch.randn(3, 4, dtype=torch.float64, requires_grad=True), tokens]
    with use("reference"):
        assert torch.autograd.gradgradcheck(lambda *a: attention(*([None] if own_queries else []), *a, packing), given)


def test_torch_s_fused_operator_gives_the_same():
    tokens, packing = torch.randn(8, 12, dtype=torch.float64), Packing.of(COUNTS)
    with use("reference"):
        expected = SoftmaxAttention(2)(None, tokens, packing)
    torch.testing.assert_close(fused_attention(None, tokens, packing, 2, 0.0), expected, rtol=1e-12, atol=1e-12)


def test_dropped_weights_do_not_depend_on_padding():
    attention, tokens, outs = SoftmaxAttention(2, 0.5).double(), torch.randn(8, 12, dtype=torch.float64), []
    for max_padding in (0.0, 1.0):
        torch.manual_seed(1)
        with use("reference"):
            outs.append(attention(None, tokens, Packing.of(COUNTS, max_padding=max_padding)))
    torch.testing.assert_close(*outs, rtol=1e-12, atol=1e-12)
    assert not torch.equal(attention(None, tokens, Packing.of(COUNTS)), attention(None, tokens, Packing.of(COUNTS)))
    attention.eval()
    assert torch.equal(attention(None, tokens, Packing.of(COUNTS)), attention(None, tokens, Packing.of(COUNTS)))


def test_the_share_of_dropped_weights():
    weights, query = torch.ones(5, 4, 30, 100), torch.arange(150).view(5, 30)
    out = drop_weights(weights, query, torch.tensor([3]), 0.25)
    assert (out == 0).double().mean().item() == pytest.approx(0.25, abs=0.01)
    assert out.unique().tolist() == pytest.approx([0, 4 / 3])
    assert not torch.equal(out[0], out[1])
    assert torch.equal(drop_weights(weights[1:], query[1:], torch.tensor([3]), 0.25), out[1:])
    with pytest.raises(ValueError, match=r"dropout 1.0 is outside"):
        WeightDropout(1.0)
