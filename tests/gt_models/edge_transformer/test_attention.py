"""Triangular attention as a module: precision, and equality with its fast path."""

import pytest
import torch

from gt_models.edge_transformer import Triangles, TriangularAttention
from gt_models.kernels import forms_taken, use
from tests.gt_models.edge_transformer.cases import graphs


@pytest.mark.slow
def test_half_precision_is_computed_in_single():
    graph, x = graphs((4,))[0], torch.randn(16, 8).bfloat16()
    layer = TriangularAttention(8, 2).bfloat16()
    projected = layer.projections(x).unflatten(1, (4, 2, -1))
    out = layer.triangles(projected, graph)
    assert out.dtype == torch.float32
    assert torch.equal(out, layer.triangles(projected.float(), graph))
    assert layer(x, graph).dtype == torch.bfloat16
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(layer.triangles(projected, graph), out)


@pytest.mark.slow
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_dropout_is_that_of_its_module(dropout):
    graph, module, x = graphs((4,))[0], Triangles(dropout), torch.randn(16, 4, 2, 4, dtype=torch.float64)
    results = []
    for form in ("reference", None):
        torch.manual_seed(0)
        with use(form), forms_taken() as taken:
            results.append(module(x, graph))
    torch.testing.assert_close(*results, rtol=1e-12, atol=1e-12)
    assert taken["triangles"] == {"no triples": 1}
