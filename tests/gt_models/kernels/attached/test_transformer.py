"""The encoder's maps in the form `linear maps` give the numbers and gradients of the plain layer."""

import pytest
import torch

from gt_models.kernels import forms_taken, use
from gt_models.layers.packing import Packing
from gt_models.layers.transformer import EncoderLayer, SelfAttention


@pytest.mark.parametrize("first_only", [False, True])
def test_they_are_the_plain_layer(first_only):
    torch.manual_seed(0)
    layer, packing = EncoderLayer(16, 4, 32, 0.3, 0.0, 0.2).double(), Packing.of(torch.tensor([4, 3, 5]), 12, None)
    x = torch.randn(12, 16, dtype=torch.float64, requires_grad=True)
    results = []
    for form in ("reference", None):
        torch.manual_seed(1)
        with use(form), forms_taken() as taken:
            out = layer(x, packing, first_only)
        results.append([out, *torch.autograd.grad(out.sin().sum(), [x, *layer.parameters()])])
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    for name in ("encoder_feed_forward", "attention_projection", "attention_output"):
        assert taken[name] == {"linear maps": 1}


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_part_is_a_third_of_the_maps(which):
    attention, x = SelfAttention(6, 2).double(), torch.randn(5, 6, dtype=torch.float64)
    with forms_taken() as taken:
        found = attention.project_one(x, which)
    assert taken["attention_projection_of_one"] == {"linear maps": 1}
    torch.testing.assert_close(found, attention.qkv(x)[:, 6 * which : 6 * which + 6], rtol=1e-12, atol=1e-12)
