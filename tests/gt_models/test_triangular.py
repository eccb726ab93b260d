"""Triangular attention: three forms, one set of numbers, with and without masks, dropout and autocast."""

import pytest
import torch
from torch import nn

from gt_models.nn import llvm, triangular, triangular_cpu
from gt_models.nn.triangular import TriangularAttention, triangular_attention
from tests.gt_models import checks
from tests.gt_models.reference import edge_transformer as reference

SIZES = (5, 1, 17, 0, 9)  # more than one tile, one node, an empty graph


def projected_and_batch(sizes=SIZES, num_heads=3, head_dim=4, dtype=torch.float64):
    batch = checks.collate(checks.random_graphs(sizes))
    return torch.randn(sum(n * n for n in sizes), 4, num_heads, head_dim, dtype=dtype, requires_grad=True), batch


def results(form, projected, batch, dropout=0.0, seed=3):
    torch.manual_seed(seed)
    out = triangular_attention(projected, batch, dropout=dropout, implementation=form)
    torch.manual_seed(5)
    (grad,) = torch.autograd.grad(out, projected, torch.randn(out.shape, dtype=torch.float64).to(out.dtype))
    return out.detach(), grad


@pytest.mark.parametrize("form", ["dense", "chunked", "fused"])
def test_equals_the_equations(form):
    sizes = (4, 2)
    projected, batch = projected_and_batch(sizes, 2, 3)
    out = triangular_attention(projected, batch, implementation=form)
    start = 0
    for n in sizes:
        q, k, v1, v2 = projected[start : start + n * n].detach().view(n, n, 4, 2, 3).unbind(2)
        for h in range(2):
            expected = reference.triangular_attention(q[:, :, h], k[:, :, h], v1[:, :, h], v2[:, :, h])
            torch.testing.assert_close(out[start : start + n * n, h].view(n, n, 3), expected, rtol=1e-10, atol=1e-10)
        start += n * n


@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("head_dim", [1, 4, 12])
def test_all_forms_agree(head_dim, dropout, monkeypatch):
    monkeypatch.setitem(triangular._CHUNK_VALUES, "cpu", 20000)  # several graphs a chunk, and several chunks a graph
    projected, batch = projected_and_batch(head_dim=head_dim)
    dense = results("dense", projected, batch, dropout)
    for form in ("chunked", "fused"):
        for got, expected in zip(results(form, projected, batch, dropout), dense, strict=True):
            torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("head_dim", [8, 40])
def test_fused_in_float32_and_beyond_all_pieces(head_dim):
    """Longer than every block of the kernel (rows, steps, groups of tiles), heads wider than a vector."""
    projected, batch = projected_and_batch((70, 3), 1, head_dim)
    wide, narrow = results("dense", projected, batch), results("fused", projected.float().detach().requires_grad_(), batch)
    for got, expected in zip(narrow, wide, strict=True):
        torch.testing.assert_close(got.double(), expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("width", [16, 32, 64])
def test_fused_for_every_width_of_vectors(width, monkeypatch):
    """The code of machines with narrower vectors than this one's (LLVM cuts what is too wide for this one)."""
    monkeypatch.setattr(llvm, "vector_bytes", lambda: width)
    triangular_cpu._kernel.cache_clear()
    projected, batch = projected_and_batch((9, 5), 2, 3)
    for got, expected in zip(results("fused", projected, batch, 0.3), results("dense", projected, batch, 0.3), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)
    triangular_cpu._kernel.cache_clear()


def test_fused_does_not_depend_on_the_number_of_threads():
    projected, batch = projected_and_batch((33, 20, 7), dtype=torch.float32)
    threads = torch.get_num_threads()
    runs = []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        runs.append(results("fused", projected, batch, dropout=0.2))
    torch.set_num_threads(threads)
    assert all(torch.equal(a, b) for run in runs[1:] for a, b in zip(run, runs[0], strict=True))


@pytest.mark.parametrize("form", ["dense", "chunked", "fused"])
def test_large_scores_stay_finite(form):
    projected, batch = projected_and_batch((6,), dtype=torch.float32)
    out, grad = results(form, (projected.detach() * 100).requires_grad_(), batch)
    assert out.isfinite().all()
    assert grad.isfinite().all()


def test_fused_gradient_is_the_derivative():
    projected, batch = projected_and_batch((4, 3), 1, 2)
    assert torch.autograd.gradcheck(lambda p: triangular_attention(p, batch, implementation="fused"), (projected,))


def test_dropout_drops_the_stated_share_and_nothing_in_evaluation():
    rows = torch.arange(400).view(1, 20, 20)
    for seed in (1, 2):
        keep = triangular.dropout_mask(torch.tensor([seed]), rows, 2, 20, 0.3)
        assert abs(keep.double().mean() - 0.7) < 0.01
        assert abs(keep[:, :, :, 0].double().mean() - 0.7) < 0.03
    assert not torch.equal(keep, triangular.dropout_mask(torch.tensor([1]), rows, 2, 20, 0.3))
    batch = checks.random_graphs((6,))[0]
    module = TriangularAttention(4, 2, attn_dropout=0.5).double()
    x = torch.randn(36, 4, dtype=torch.float64)
    assert not torch.equal(module(x, batch), module(x, batch))
    module.eval()
    assert torch.equal(module(x, batch), module(x, batch))


def test_module_is_its_equations_and_counts():
    module = TriangularAttention(6, 2).double()
    assert sum(p.numel() for p in module.parameters()) == 5 * 36
    x = torch.randn(16, 6, dtype=torch.float64)
    expected = reference.attention(x.view(4, 4, 6), module.state_dict(), 2).flatten(0, 1)
    torch.testing.assert_close(module(x, checks.random_graphs((4,))[0]), expected, rtol=1e-10, atol=1e-10)


def test_parity(parity):
    case = parity("et_edge_attention")
    num_heads = int(case["meta.heads"])
    for masked in (False, True):
        real = case["in.node_mask"] if masked else torch.ones_like(case["in.node_mask"])
        batch = checks.collate(checks.random_graphs(real.sum(1).tolist()))
        pairs = real[:, :, None] & real[:, None, :]
        for form in ("dense", "chunked", "fused"):
            module = TriangularAttention(8, num_heads, implementation=form).double()
            weights = [case[f"w.linears.{i}.weight"] for i in range(5)]
            module.load_state_dict({"projections.weight": torch.cat(weights[:4]), "out.weight": weights[4]})
            out = module(case["in.x"][pairs], batch)
            torch.testing.assert_close(out, case["out.y_masked" if masked else "out.y_nomask"][pairs], rtol=1e-12, atol=1e-12)
        if masked:
            (out * case["in.loss_weight"][pairs]).sum().backward()
            expected = torch.cat([case[f"g.linears.{i}.weight"] for i in range(4)])
            torch.testing.assert_close(module.projections.weight.grad, expected, rtol=1e-12, atol=1e-12)
            torch.testing.assert_close(module.out.weight.grad, case["g.linears.4.weight"], rtol=1e-12, atol=1e-12)


def test_autocast_and_auto():
    batch, x = checks.random_graphs((6,))[0], torch.randn(36, 8)
    module = TriangularAttention(8, 2)
    expected = module(x, batch)
    with torch.autocast("cpu", torch.bfloat16):
        out = module(x, batch)
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), expected, rtol=0.05, atol=0.02)


def test_compiles_without_graph_breaks():
    batch, module = checks.random_graphs((6,), dtype=torch.float32)[0], TriangularAttention(8, 2, attn_dropout=0.1)
    x = torch.randn(36, 8)
    batch.sizes  # noqa: B018  as a model's tokens have done before
    torch._dynamo.reset()
    compiled = torch.compile(module.eval(), backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x, batch), module(x, batch))


def test_bad_arguments():
    with pytest.raises(ValueError, match="does not split into 3 heads"):
        TriangularAttention(8, 3)
    with pytest.raises(ValueError, match="known: auto, dense"):
        TriangularAttention(8, 2, implementation="einsum")
    with pytest.raises(ValueError, match="outside"):
        TriangularAttention(8, 2, attn_dropout=1.0)
    projected, batch = projected_and_batch((3,))
    with pytest.raises(ValueError, match="without fusion_norm"):
        triangular_attention(projected, batch, fusion_norm=nn.Identity(), implementation="fused")
