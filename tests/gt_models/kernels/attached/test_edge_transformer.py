"""The Edge Transformer's fast paths equal its equations in values and gradients, and are used as documented."""

import pytest
import torch
from torch import nn

from gt_models.edge_transformer import EdgeTransformerLayer
from gt_models.kernels import forms_taken, use
from tests.gt_models import checks
from tests.gt_models.edge_transformer.cases import graphs


def layer(dropout: float = 0.0, act: str = "gelu") -> EdgeTransformerLayer:
    torch.manual_seed(0)
    return EdgeTransformerLayer(64, 16, dropout, dropout, act)


@pytest.mark.slow
@pytest.mark.parametrize(("dropout", "act"), [(0.0, "gelu"), (0.3, "gelu"), (0.0, "relu")])
def test_they_are_the_equations(dropout, act):
    model, batch = layer(dropout, act), checks.collate(graphs((18, 20)))
    x = torch.randn(batch.num_pairs, 64, requires_grad=True)
    results = []
    for form in ("reference", None):
        torch.manual_seed(1)
        with use(form), forms_taken() as taken:
            out = model(x, batch)
        gradients = torch.autograd.grad(out.square().mean(), [x, *model.parameters()])
        results.append([out, *gradients])
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)
    assert taken["triangular_attention_maps"] == {"oneDNN": 1}
    assert taken["pair_feed_forward"] == {"oneDNN": 1}
    assert taken["triangular_attention"] == {"numba": 1}
    assert taken["row_linear"] == ({"numba": 2} if act == "gelu" and not dropout else {"numba": 4})
    assert taken.get("gelu_mlp") == ({"numba": 1} if act == "gelu" and not dropout else None)


@pytest.mark.slow
def test_small_maps_are_torch_s():
    model, batch = layer(), checks.collate(graphs((3,)))
    with forms_taken() as taken:
        model(torch.randn(9, 64), batch)
    assert taken["triangular_attention_maps"] == taken["pair_feed_forward"] == {"reference": 1}


@pytest.mark.slow
def test_a_hook_on_the_activation_fires():
    model, batch, seen = layer(), checks.collate(graphs((18, 20))), []
    model.ffn.activation.register_forward_hook(lambda *_: seen.append(1))
    x = torch.randn(batch.num_pairs, 64)
    torch.testing.assert_close(model(x, batch), layer()(x, batch), rtol=1e-4, atol=1e-4)
    assert seen == [1]


@pytest.mark.slow
def test_another_form_of_gelu_is_used():
    model, batch = layer(), checks.collate(graphs((18, 20)))
    x = 3 * torch.randn(batch.num_pairs, 64)
    with torch.no_grad():
        model.ffn.hidden.weight.mul_(4)  # the two forms differ most at 2
        exact = model.ffn(x)
        model.ffn.activation = nn.GELU("tanh")
        found = model.ffn(x)
        with use("reference"):
            expected = model.ffn(x)
    assert (expected - exact).abs().max() > 1e-4
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_a_layer_in_place_of_a_linear_is_called():
    model, batch = layer(), checks.collate(graphs((18, 20)))
    x = torch.randn(batch.num_pairs, 64)
    before = model(x, batch)
    model.attention.projections = nn.Sequential(model.attention.projections, nn.Tanh())
    with forms_taken() as taken:
        assert not torch.allclose(model(x, batch), before, rtol=1e-4, atol=1e-4)
    assert taken["triangular_attention_maps"] == {"reference": 1}
    assert taken["triangles"] == {"no triples": 1}  # this part is unchanged
