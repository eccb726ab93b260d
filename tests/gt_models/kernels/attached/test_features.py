"""Maps of sparse features."""

import pytest
import torch
from torch import nn

from gt_models.kernels import forms_taken, use
from gt_models.layers.features import FeatureEncoder


@pytest.mark.slow
def test_sparse_rows_are_not_filled():
    encoder, x = FeatureEncoder(300, 8), torch.zeros(5, 300)
    x[torch.arange(4), torch.tensor([0, 7, 299, 7])] = torch.randn(4)
    results = []
    for form in ("reference", None):
        encoder.zero_grad()
        with use(form), forms_taken() as taken:
            out = encoder(x.to_sparse_csr())
        out.sin().sum().backward()
        results.append([out, *(p.grad for p in encoder.parameters())])
    assert taken["feature_projection"] == {"sparse": 1}
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_a_layer_in_place_of_the_linear_is_called():
    encoder, x = FeatureEncoder(300, 8), torch.randn(5, 300)
    encoder.linear = nn.Sequential(encoder.linear, nn.ReLU())
    assert torch.equal(encoder(x.to_sparse_csr()), encoder.linear(x))


def test_dropout_is_on_the_features():
    encoder, x = FeatureEncoder(4, 3, bias=False, dropout=0.5), torch.ones(50, 4)
    encoder.linear.weight.data = torch.eye(4)[:3]
    assert set(encoder(x).unique().tolist()) == {0.0, 2.0}
    assert set(encoder.eval()(x).unique().tolist()) == {1.0}
