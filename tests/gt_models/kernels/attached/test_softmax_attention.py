"""Attention without a tensor of all weights replaces the plain equations."""

import pytest
import torch

from gt_models.kernels import forms_taken, use
from gt_models.layers.packing import Packing
from gt_models.layers.softmax_attention import SoftmaxAttention

pytestmark = pytest.mark.slow  # compiles kernels of several widths


@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_it_is_the_plain_attention_with_the_same_draws(rate):
    attention, packing = SoftmaxAttention(2, rate).double(), Packing.of(torch.tensor([3, 1, 4]))
    tokens, results = torch.randn(8, 12, dtype=torch.float64, requires_grad=True), []
    for form in ("reference", None):
        torch.manual_seed(1)
        with use(form), forms_taken() as taken:
            out = attention(None, tokens, packing)
        results.append([out, *torch.autograd.grad(out.sin().sum(), tokens)])
    assert taken == {"softmax_attention": {"no weights": 1}, "packed_attention": {"numba": 1}}
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def test_a_hook_sees_the_weights():
    attention, seen = SoftmaxAttention(2), []
    attention.dropout.register_forward_hook(lambda module, given, out: seen.append(out))
    attention(None, torch.randn(8, 12), Packing.of(torch.tensor([3, 1, 4])))
    assert [tuple(weights.shape) for weights in seen] == [(1, 2, 4, 4), (1, 2, 3, 3), (1, 2, 1, 1)]
    torch.testing.assert_close(seen[0].sum(-1), torch.ones(1, 2, 4))
