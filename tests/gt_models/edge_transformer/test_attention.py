"""Triangular attention as a module: its equations, the authors' numbers, precision, and dropout."""

import pytest
import torch

from gt_models.edge_transformer import Triangles, TriangularAttention
from gt_models.kernels import forms_taken, use
from tests.gt_models import checks
from tests.gt_models.edge_transformer.cases import graphs
from tests.gt_models.reference import edge_transformer as reference

FORMS = ("reference", "numba")


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


@pytest.mark.slow
def test_module_is_its_equations_and_counts():
    module = TriangularAttention(8, 2).double()
    assert sum(p.numel() for p in module.parameters()) == 5 * 64
    x = torch.randn(16, 8, dtype=torch.float64)
    expected = reference.attention(x.view(4, 4, 8), module.state_dict(), 2).flatten(0, 1)
    torch.testing.assert_close(module(x, checks.random_graphs((4,))[0]), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.slow
def test_parity(parity):
    case = parity("et_edge_attention")
    num_heads = int(case["meta.heads"])
    for masked in (False, True):
        real = case["in.node_mask"] if masked else torch.ones_like(case["in.node_mask"])
        batch = checks.collate(checks.random_graphs(real.sum(1).tolist()))
        pairs = real[:, :, None] & real[:, None, :]
        for form in FORMS:
            module = TriangularAttention(8, num_heads).double()
            weights = [case[f"w.linears.{i}.weight"] for i in range(5)]
            module.load_state_dict({"projections.weight": torch.cat(weights[:4]), "out.weight": weights[4]})
            with use(triangular_attention=form):
                out = module(case["in.x"][pairs], batch)
            torch.testing.assert_close(
                out, case["out.y_masked" if masked else "out.y_nomask"][pairs], rtol=1e-12, atol=1e-12
            )
        if masked:
            (out * case["in.loss_weight"][pairs]).sum().backward()
            expected = torch.cat([case[f"g.linears.{i}.weight"] for i in range(4)])
            torch.testing.assert_close(module.projections.weight.grad, expected, rtol=1e-12, atol=1e-12)
            torch.testing.assert_close(module.out.weight.grad, case["g.linears.4.weight"], rtol=1e-12, atol=1e-12)


def test_bad_arguments():
    with pytest.raises(ValueError, match="3 heads"):
        TriangularAttention(8, 3)
    with pytest.raises(ValueError, match="1.0"):
        TriangularAttention(8, 2, attn_dropout=1.0)
