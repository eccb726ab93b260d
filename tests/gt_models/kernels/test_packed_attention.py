"""Softmax attention over packed tokens: the reference equals loops, each form equals the reference."""

import pytest
import torch
from torch import Tensor

from gt_models.kernels import forms_taken, use
from gt_models.kernels.packed_attention import packed_attention
from gt_models.layers.packing import Packing
from tests.gt_models.checks import assert_threads_change_no_bit

COUNTS = (
    37,
    17,
    16,
    9,
    9,
    8,
    2,
    1,
    1,
)  # more than one tile of queries and keys, exactly one, parts of one, single tokens
FORMS = ["numba"]  # "fused" runs only on a GPU


def case(
    head_dim: int,
    num_heads: int = 3,
    counts=COUNTS,
    dtype=torch.float64,
    own_queries=True,
    dropout=0.0,
    scale=1.0,
    max_padding=None,
) -> tuple:
    """Arguments of the operation; query and tokens require gradients."""
    torch.manual_seed(0)
    dim, parts = head_dim * num_heads, 3 if own_queries else 2
    query = None if own_queries else (scale * torch.randn(len(counts), dim, dtype=dtype)).requires_grad_()
    tokens = (scale * torch.randn(sum(counts), parts * dim, dtype=dtype)).requires_grad_()
    packing = Packing.of(torch.tensor(counts, dtype=torch.long), max_padding=max_padding)
    return query, tokens, packing, num_heads, dropout, torch.tensor([12345])


def by_loops(
    query: Tensor | None, tokens: Tensor, packing: Packing, num_heads: int, dropout: float, seed: Tensor
) -> Tensor:
    """The result by loops, one query of one head at a time."""
    dim = tokens.size(1) // 3 if query is None else query.size(1)
    head, rows, ptr = dim // num_heads, [], packing.ptr.tolist()
    for graph, (begin, end) in enumerate(zip(ptr, ptr[1:], strict=False)):
        for row in range(begin, end) if query is None else [graph]:
            q, k, v = (
                (tokens[row], *tokens[begin:end].split(dim, 1)[-2:])
                if query is None
                else (query[row], *tokens[begin:end].split(dim, 1))
            )
            out = []
            for h in range(num_heads):
                part = slice(h * head, (h + 1) * head)
                weights = (k[:, part] @ q[:dim][part] / head**0.5).softmax(0)
                keep = [
                    hash32(hash32(row * num_heads + h ^ int(seed)) + j * 0x9E3779B9) >= int(dropout * 2**32)
                    for j in range(end - begin)
                ]
                out.append((weights * torch.tensor(keep) / (1 - dropout)) @ v[:, part])
            rows.append(torch.cat(out))
    return torch.stack(rows)


def hash32(x: int) -> int:
    x &= 0xFFFFFFFF
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & 0xFFFFFFFF
    x = ((x ^ (x >> 15)) * 0x846CA68B) & 0xFFFFFFFF
    return x ^ (x >> 16)


def results(form: str, arguments: tuple) -> list[Tensor]:
    """Returns the output and all gradients."""
    with use(packed_attention=form):
        out = packed_attention(*arguments)
    torch.manual_seed(5)
    return [
        out,
        *torch.autograd.grad(out, [a for a in arguments[:2] if a is not None], torch.randn(out.shape).to(out.dtype)),
    ]


@pytest.mark.parametrize("max_padding", [0.0, 0.25, 1.0])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("own_queries", [True, False])
def test_the_reference_against_loops(own_queries, dropout, max_padding):
    counts = (7, 5, 5, 1, 0) if own_queries else (7, 5, 5, 1)
    arguments = case(3, 2, counts, own_queries=own_queries, dropout=dropout, max_padding=max_padding)
    with use("reference"):
        torch.testing.assert_close(packed_attention(*arguments), by_loops(*arguments), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("own_queries", [True, False])
@pytest.mark.parametrize(
    ("head_dim", "counts"), [(1, COUNTS), (5, COUNTS), (16, COUNTS), (24, COUNTS), (40, (70, 5)), (4, (3, 2))]
)
def test_forms_agree_with_the_reference(form, head_dim, counts, own_queries, dropout):
    arguments = case(head_dim, counts=counts, own_queries=own_queries, dropout=dropout)
    for expected, found in zip(results("reference", arguments), results(form, arguments), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("head_dim", "counts"), [(24, COUNTS), (40, (70, 5)), (32, (600,))])
def test_float32(form, head_dim, counts):
    narrow = case(head_dim, 2, counts, torch.float32)
    wide = (None, narrow[1].detach().double().requires_grad_(), *narrow[2:])
    for expected, found in zip(results("reference", wide), results(form, narrow), strict=True):
        torch.testing.assert_close(found.double(), expected, rtol=5e-5, atol=5e-5)


@pytest.mark.parametrize("part", [0, 1, 2])  # a query, a key, a value
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_comes_out_where_the_reference_lets_it_out(bad, part):
    query, tokens, *rest = case(5, counts=(20, 19, 3))
    tokens.data[21, part * 15 + 6] = bad
    outs = []
    for form in ("reference", *FORMS):
        with use(packed_attention=form):
            outs.append(packed_attention(query, tokens, *rest).detach())
    assert not outs[0].isfinite().all()
    assert outs[0][:20].isfinite().all()
    assert outs[0][39:].isfinite().all()
    for out in outs[1:]:
        assert torch.equal(out.isnan(), outs[0].isnan())
        assert torch.equal(out.isinf(), outs[0].isinf())


def test_a_score_of_minus_infinity_is_no_weight():
    query, tokens, *rest = case(5, 1, counts=(20,))
    tokens.data[:, :5] = tokens.data[:, :5].abs()
    tokens.data[3, 5] = -float("inf")
    for form in ("reference", *FORMS):
        with use(packed_attention=form):
            out = packed_attention(query, tokens, *rest)
        assert out.isfinite().all()
        tokens.data[3, 10:] += 1.0
        with use(packed_attention=form):
            assert torch.equal(packed_attention(query, tokens, *rest), out)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_threads_do_not_change_a_bit(dropout):
    arguments = case(8, 4, dtype=torch.float32, dropout=dropout)
    assert_threads_change_no_bit(lambda: results("numba", arguments))


def test_a_batch_is_its_graphs_bit_for_bit():
    _, tokens, _, *rest = arguments = case(8, 4, dtype=torch.float32)
    whole = packed_attention(*arguments)
    alone = [packed_attention(None, t, Packing.of(torch.tensor([len(t)])), *rest) for t in tokens.split(list(COUNTS))]
    assert torch.equal(whole, torch.cat(alone))


def test_large_scores_stay_finite():
    arguments = case(8, counts=(20, 3), dtype=torch.float32, scale=100.0)
    wide = (None, arguments[1].detach().double().requires_grad_(), *arguments[2:])
    for expected, found in zip(results("reference", wide), results("numba", arguments), strict=True):
        assert found.isfinite().all()
        torch.testing.assert_close(found.double(), expected, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("own_queries", [True, False])
def test_gradient_is_the_derivative(own_queries):
    query, tokens, *rest = case(3, 2, (4, 2), own_queries=own_queries, dropout=0.2)
    some = [a for a in (query, tokens) if a is not None]
    assert torch.autograd.gradcheck(lambda *a: packed_attention(*([None, *a] if own_queries else a), *rest), some)


def test_a_seed_drops_its_share_of_weights():
    _, tokens, packing, heads, rate, seed = case(1, 2, (100,), dropout=0.25)
    # with equal weights and values of one, a row's sum counts the weights that are not dropped
    tokens.data[:, :4], tokens.data[:, 4:] = 0.0, 1.0
    share = packed_attention(None, tokens, packing, heads, rate, seed) * (1 - rate)
    assert abs(float(share.mean().detach()) - 0.75) < 5 * (0.25 * 0.75 / 20_000) ** 0.5
    assert share.unique().numel() > 10
    assert torch.equal(packed_attention(None, tokens, packing, heads, rate, seed) * (1 - rate), share)
    assert not torch.equal(packed_attention(None, tokens, packing, heads, rate, seed + 1) * (1 - rate), share)


def test_no_tokens():
    for form in ("reference", *FORMS):
        with use(packed_attention=form), forms_taken() as taken:
            out = packed_attention(
                None, torch.zeros(0, 12), Packing.of(torch.zeros(0, dtype=torch.long)), 2, 0.0, torch.zeros(1).long()
            )
        assert out.shape == (0, 4)
        assert taken == {"packed_attention": {form: 1}}
