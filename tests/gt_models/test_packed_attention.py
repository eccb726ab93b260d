"""The compiled attention over packed tokens against torch's operations on groups of graphs, and by loops."""

import pytest
import torch
from torch import Tensor

from gt_models.nn import llvm, packed_attention_cpu, team
from gt_models.nn.packed_attention_cpu import packed_attention
from gt_models.nn.transformer import EncoderLayer, Packing, SelfAttention

COUNTS = (37, 17, 16, 9, 9, 8, 2, 1, 1)  # more than one tile of queries and keys, exactly one, parts of one, single tokens


def inputs(head_dim: int, num_heads: int = 3, counts=COUNTS, dtype=torch.float64, own_queries=True, scale=1.0) -> list[Tensor | None]:
    """query, tokens and bias that want gradients."""
    torch.manual_seed(0)
    dim, parts = head_dim * num_heads, 3 if own_queries else 2
    shapes = [None if own_queries else (len(counts), dim), (sum(counts), parts * dim), (parts * dim,)]
    return [None if shape is None else (scale * torch.randn(shape, dtype=dtype)).requires_grad_() for shape in shapes]


def by_loops(query: Tensor | None, tokens: Tensor, bias: Tensor, counts, num_heads: int) -> Tensor:
    """Eq. (5) graph by graph, head by head."""
    dim = tokens.size(1) // 3 if query is None else query.size(1)
    rows = []
    for b, graph in enumerate((tokens + bias).split(list(counts))):
        q, k, v = graph.split(dim, 1) if query is None else (query[b : b + 1], *graph.split(dim, 1))
        heads = [
            (q[:, h] @ k[:, h].T / (dim // num_heads) ** 0.5).softmax(1) @ v[:, h]
            for h in (slice(i * dim // num_heads, (i + 1) * dim // num_heads) for i in range(num_heads))
        ]
        rows.append(torch.cat(heads, 1))
    return torch.cat(rows)


def results(form, arguments: list[Tensor | None], counts, num_heads: int = 3) -> list[Tensor]:
    """Output and all gradients."""
    out = form(*arguments, torch.tensor(counts) if form is packed_attention else counts, num_heads)
    out = out[0] if form is packed_attention else out
    torch.manual_seed(5)
    return [out.detach(), *torch.autograd.grad(out, [a for a in arguments if a is not None], torch.randn(out.shape).to(out.dtype))]


@pytest.mark.parametrize("own_queries", [True, False])
@pytest.mark.parametrize("head_dim", [1, 4, 16, 20, 24])
def test_equals_the_equation(head_dim, own_queries):
    arguments = inputs(head_dim, own_queries=own_queries)
    for got, expected in zip(results(packed_attention, arguments, COUNTS), results(by_loops, arguments, COUNTS), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("head_dim", "counts"), [(24, COUNTS), (40, (70, 5)), (32, (600,))])
def test_float32(head_dim, counts):
    wide = inputs(head_dim, 2, counts)
    narrow = [None if a is None else a.detach().float().requires_grad_() for a in wide]
    for got, expected in zip(results(packed_attention, narrow, counts, 2), results(by_loops, wide, counts, 2), strict=True):
        torch.testing.assert_close(got.double(), expected, rtol=5e-5, atol=5e-5)


@pytest.mark.parametrize("width", [16, 32, 64])
def test_every_width_of_vectors(width, monkeypatch):
    """The code of machines with narrower vectors than this one's (LLVM cuts what is too wide for this one)."""
    monkeypatch.setattr(llvm, "vector_bytes", lambda: width)
    packed_attention_cpu._kernel.cache_clear()
    arguments = inputs(5)
    for got, expected in zip(results(packed_attention, arguments, COUNTS), results(by_loops, arguments, COUNTS), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)
    packed_attention_cpu._kernel.cache_clear()


@pytest.mark.parametrize("openmp", [True, False])
def test_threads_change_nothing(openmp, monkeypatch):
    if not openmp:
        monkeypatch.setattr(team, "_parallel", lambda: None)
    arguments, threads, runs = inputs(8, 4, dtype=torch.float32), torch.get_num_threads(), []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        runs.append(results(packed_attention, arguments, COUNTS, 4))
    torch.set_num_threads(threads)
    assert all(torch.equal(a, b) for run in runs[1:] for a, b in zip(run, runs[0], strict=True))


def test_torch_is_linked_with_openmp():
    """Otherwise kernels fall back on threads of their own: right, and slower."""
    if "parallel backend: OpenMP" not in torch.__config__.parallel_info():
        pytest.skip("this build of torch has no OpenMP")
    assert team._parallel() is not None


def test_a_batch_is_its_graphs_bit_for_bit():
    """A graph's numbers do not depend on the graphs beside it."""
    query, tokens, bias = inputs(8, 4, dtype=torch.float32)
    whole = packed_attention(query, tokens, bias, torch.tensor(COUNTS), 4)[0]
    alone = [packed_attention(None, t.contiguous(), bias, torch.tensor([t.size(0)]), 4)[0] for t in tokens.split(list(COUNTS))]
    assert torch.equal(whole, torch.cat(alone))


def test_large_scores_stay_finite():
    arguments = inputs(8, counts=(20, 3), dtype=torch.float32, scale=100.0)
    for got, expected in zip(results(packed_attention, arguments, (20, 3)), results(by_loops, arguments, (20, 3)), strict=True):
        assert got.isfinite().all()
        torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("own_queries", [True, False])
def test_gradient_is_the_derivative(own_queries):
    arguments = inputs(3, 2, (4, 2), own_queries=own_queries)
    some = [a for a in arguments if a is not None]
    assert torch.autograd.gradcheck(lambda *a: packed_attention(*([None, *a] if own_queries else a), torch.tensor([4, 2]), 2)[0], some)


def test_no_tokens():
    out, _ = packed_attention(None, torch.zeros(0, 12), torch.zeros(12), torch.zeros(0, dtype=torch.long), 2)
    assert out.shape == (0, 4)


@pytest.mark.parametrize("first_only", [False, True])
@pytest.mark.parametrize("max_padding", [0.0, 0.25, 1.0])
def test_layer_takes_either_form(max_padding, first_only, monkeypatch):
    """Packed tokens and groups, graphs without tokens among them; with dropped weights the layer goes to the groups."""
    torch.manual_seed(0)
    layer, counts = EncoderLayer(12, 3, 8).double(), torch.tensor([5, 0, 3, 7, 1, 6, 0])
    torch.nn.init.normal_(layer.attn.qkv.bias)
    packing, x = Packing.of(counts, max_padding), torch.randn(22, 12, dtype=torch.float64, requires_grad=True)

    def run() -> tuple[Tensor, ...]:
        out = layer(x, packing, first_only)
        return out, *torch.autograd.grad(out.cos().sum(), [x, *layer.parameters()])

    packed = run()
    monkeypatch.setattr(SelfAttention, "_packed", lambda self, q, tokens, bias, packing: self._grouped(q, tokens + bias, packing))
    for got, expected in zip(packed, run(), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)
    monkeypatch.undo()
    layer.attn.attn_dropout = layer.attn.dropout.rate = 0.5
    assert not torch.equal(layer(x, packing), layer(x, packing))
    torch.testing.assert_close(layer.eval()(x, packing, first_only), packed[0], rtol=1e-10, atol=1e-10)


def test_bfloat16_autocast():
    torch.manual_seed(0)
    layer, packing, x = EncoderLayer(12, 3, 8), Packing.of(torch.tensor([5, 3])), torch.randn(8, 12)
    expected = layer(x, packing)
    with torch.autocast("cpu", torch.bfloat16):
        out = layer(x, packing)
        out.sum().backward()
    assert (out - expected).norm() < 0.05 * expected.norm()


def test_compiles_without_graph_breaks():
    layer, packing, x = EncoderLayer(12, 3, 8), Packing.of(torch.tensor([5, 3])), torch.randn(8, 12, requires_grad=True)
    torch._dynamo.reset()
    out = torch.compile(layer, backend="aot_eager", fullgraph=True)(x, packing)
    torch.testing.assert_close(out, layer(x, packing))
    (grad,) = torch.autograd.grad(out.sum(), x)
    (expected,) = torch.autograd.grad(layer(x, packing).sum(), x)
    torch.testing.assert_close(grad, expected)
    torch._dynamo.reset()
