"""Triangular attention: the reference equals loops, each form equals the reference, with and without dropout."""

import pytest
import torch
from torch import nn

from gt_models.edge_transformer import TriangularAttention
from gt_models.kernels import triangular_attention as shelf
from gt_models.kernels import use
from gt_models.kernels.triangular_attention import triangular_attention
from gt_models.layers.triple_dropout import kept_triples
from tests.gt_models import checks
from tests.gt_models.reference import edge_transformer as reference

pytestmark = pytest.mark.slow  # compiles kernels of several widths

SIZES = (5, 1, 17, 0, 9)  # more than one tile, one node, an empty graph
FORMS = ("reference", "numba")


def case(sizes=SIZES, num_heads=3, head_dim=4, dtype=torch.float64):
    torch.manual_seed(0)
    batch = checks.collate(checks.random_graphs(sizes))
    return torch.randn(sum(n * n for n in sizes), 4, num_heads, head_dim, dtype=dtype, requires_grad=True), batch


def results(form, x, batch, dropout=0.0):
    with use(triangular_attention=form):
        out = triangular_attention(x, batch, torch.tensor([3]), dropout)
    return out.detach(), *torch.autograd.grad(out, x, torch.arange(out.numel()).view_as(out).to(out).cos())


@pytest.mark.parametrize("form", FORMS)
def test_equals_the_equations(form):
    sizes = (4, 2)
    x, batch = case(sizes, 2, 4)
    out, start = results(form, x, batch)[0], 0
    for n in sizes:
        q, k, v1, v2 = x[start : start + n * n].detach().view(n, n, 4, 2, 4).unbind(2)
        for h in range(2):
            expected = reference.triangular_attention(q[:, :, h], k[:, :, h], v1[:, :, h], v2[:, :, h])
            torch.testing.assert_close(out[start : start + n * n, h].view(n, n, 4), expected, rtol=1e-12, atol=1e-12)
        start += n * n


@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize(("head_dim", "sizes"), [(4, SIZES), (15, (38, 2)), (15, (9, 11))])
def test_forms_agree_with_the_reference(head_dim, sizes, dropout, monkeypatch):
    x, batch = case(sizes, 2, head_dim)
    expected = results("reference", x, batch, dropout)
    monkeypatch.setitem(shelf._MANY_VALUES, "cpu", 20000)  # several graphs per chunk, and several chunks per graph
    for form in ("numba", "chunked"):
        for got, wanted in zip(results(form, x, batch, dropout), expected, strict=True):
            torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-10)


def test_float32_beyond_all_pieces():
    """Sizes above all block sizes: tiles, groups of tiles, rows, middle nodes, and channels that are summed at once."""
    x, batch = case((70, 3), 1, 16)
    narrow = results("numba", x.float().detach().requires_grad_(), batch)
    for got, expected in zip(narrow, results("reference", x, batch), strict=True):
        torch.testing.assert_close(got.double(), expected, rtol=2e-5, atol=2e-5)


def test_threads_do_not_change_a_bit():
    x, batch = case((33, 20, 7), dtype=torch.float32)
    checks.assert_threads_change_no_bit(lambda: results("numba", x, batch, dropout=0.2))


def test_what_is_compiled_here_and_what_is_found_on_disk_give_the_same_bits(tmp_path):
    code = (
        "import hashlib, torch\n"
        "from tests.gt_models.kernels.test_triangular_attention import case, results\n"
        "x, batch = case((33, 20, 7), 3, 5, torch.float32)\n"
        "print([hashlib.sha256(t.numpy().tobytes()).hexdigest() for t in results('numba', x, batch, 0.2)])\n"
    )
    compiled, found = checks.said_by_two_processes(code, tmp_path)
    assert compiled == found != ""


@pytest.mark.parametrize("form", FORMS)
def test_large_scores_stay_finite(form):
    x, batch = case((6,), dtype=torch.float32)
    assert all(values.isfinite().all() for values in results(form, (x.detach() * 100).requires_grad_(), batch))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("kind", range(4))
def test_what_is_not_finite_comes_out_where_the_reference_lets_it_out(kind, bad):
    x, batch = case((5, 7, 17), 2, 4)
    x.data[30, kind, 1, 2] = bad
    expected, found = (results(form, x, batch)[0] for form in FORMS)
    assert not expected.isfinite().all()
    assert torch.equal(expected.isnan(), found.isnan())
    assert torch.equal(expected.isinf(), found.isinf())


def test_the_gradient_is_the_derivative():
    x, batch = case((4, 3), 1, 4)
    with use(triangular_attention="numba"):
        assert torch.autograd.gradcheck(lambda p: triangular_attention(p, batch, torch.tensor([3]), 0.3), (x,))


def test_why_a_form_does_not_run():
    x, batch = case((3,))
    for form, reason in (
        ("numba", "no norm on fused values"),
        ("triton", "runs on cuda, not on cpu"),
        ("chunked", "324 values of triples fit"),
    ):
        with use(triangular_attention=form), pytest.raises(ValueError, match=reason):
            triangular_attention(x, batch, torch.tensor([3]), 0.0, nn.Identity())


def test_dropout_drops_the_stated_share_and_nothing_in_evaluation():
    rows = torch.arange(400).view(1, 20, 20)
    for seed in (1, 2):
        keep = kept_triples(torch.tensor([seed]), rows, 2, 20, 0.3)
        assert abs(keep.double().mean() - 0.7) < 0.01
        assert abs(keep[:, :, :, 0].double().mean() - 0.7) < 0.03
    assert not torch.equal(keep, kept_triples(torch.tensor([1]), rows, 2, 20, 0.3))
    batch = checks.random_graphs((6,))[0]
    module = TriangularAttention(8, 2, attn_dropout=0.5).double()
    x = torch.randn(36, 8, dtype=torch.float64)
    assert not torch.equal(module(x, batch), module(x, batch))
    module.eval()
    assert torch.equal(module(x, batch), module(x, batch))


def test_module_is_its_equations_and_counts():
    module = TriangularAttention(8, 2).double()
    assert sum(p.numel() for p in module.parameters()) == 5 * 64
    x = torch.randn(16, 8, dtype=torch.float64)
    expected = reference.attention(x.view(4, 4, 8), module.state_dict(), 2).flatten(0, 1)
    torch.testing.assert_close(module(x, checks.random_graphs((4,))[0]), expected, rtol=1e-10, atol=1e-10)


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


def test_autocast():
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
    with pytest.raises(ValueError, match="outside"):
        TriangularAttention(8, 2, attn_dropout=1.0)
