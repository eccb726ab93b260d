"""GRIT's attention: the reference equals loops over pairs, the Numba form equals the reference."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from gt_models.baselines.grit import signed_sqrt
from gt_models.batch import GraphBatch
from gt_models.kernels import use
from gt_models.kernels.grit_attention import grit_attention
from gt_models.layers.dropout_hash import kept

SEED, RATE = torch.tensor([3]), 0.4


def batch_of(*sizes: int) -> GraphBatch:
    return GraphBatch(
        torch.zeros(sum(sizes), 1), torch.zeros(2, 0, dtype=torch.long), torch.tensor([0, *itertools.accumulate(sizes)])
    )


def tensors(batch: GraphBatch, heads: int, width: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """q, k, v, pair, logit."""
    torch.manual_seed(0)
    shapes = [(batch.num_nodes, heads, width)] * 3 + [(batch.num_pairs, 2, heads, width), (heads, width)]
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]


def step(form: str, given: list[Tensor], *rest) -> list[Tensor]:
    """Returns both results and all gradients."""
    with use(grit_attention=form):
        out, e = grit_attention(*given, *rest)
    return [out, e, *torch.autograd.grad(out.sin().sum() + (3 * e).cos().sum(), given)]


def rho(x: float) -> float:
    return math.copysign(math.sqrt(abs(x)), x)


@pytest.mark.parametrize("clamp", [0.5, math.inf])
def test_the_reference_against_loops(clamp):
    batch, heads, width = batch_of(3, 1, 2), 2, 3
    given = tensors(batch, heads, width)
    q, k, v, pair, logit = (t.tolist() for t in given)
    keep = kept(SEED, batch.num_pairs * heads, RATE).view(-1, heads).tolist()
    expected_out, expected_e = (
        torch.zeros(6, heads, 2, width).double(),
        torch.zeros(batch.num_pairs, heads, width).double(),
    )
    p = 0
    for nodes in ([0, 1, 2], [3], [4, 5]):
        for i in nodes:
            e = [[[max(0.0, rho((q[i][h][c] + k[j][h][c]) * pair[p + a][0][h][c]) + pair[p + a][1][h][c])
                   for c in range(width)] for h in range(heads)] for a, j in enumerate(nodes)]  # fmt: skip
            for h in range(heads):
                scores = [sum(e[a][h][c] * logit[h][c] for c in range(width)) for a in range(len(nodes))]
                powers = [math.exp(min(max(s, -clamp), clamp)) for s in scores]
                for a, j in enumerate(nodes):
                    weight = powers[a] / sum(powers) * keep[p + a][h] / (1 - RATE)
                    for c in range(width):
                        expected_out[i, h, 0, c] += weight * v[j][h][c]
                        expected_out[i, h, 1, c] += weight * e[a][h][c]
                        expected_e[p + a, h, c] = e[a][h][c]
            p += len(nodes)
    out, e, *_ = step("reference", given, batch, clamp, RATE, SEED)
    torch.testing.assert_close(out, expected_out, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(e, expected_e, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "heads", "width", "dtype"),  # each width and dtype is a compilation of seconds
    [
        ((5, 1, 17), 2, 4, torch.float32),
        ((3,), 2, 4, torch.float64),
        ((4, 4), 3, 21, torch.float64),
        ((4, 4), 3, 21, torch.float32),
    ],
)
def test_numba_agrees_with_the_reference(sizes, heads, width, dtype):
    batch = batch_of(*sizes)
    for clamp, seed in itertools.product((0.5, math.inf), (None, SEED)):
        given = tensors(batch, heads, width, dtype)
        results = [step(form, given, batch, clamp, RATE, seed) for form in ("reference", "numba")]
        tolerance = 1e-11 if dtype == torch.float64 else 2e-4
        for expected, found in zip(*results, strict=True):
            torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.slow
def test_zeros_have_the_gradient_of_the_reference_and_what_is_not_finite_comes_out():
    batch = batch_of(3)
    given = tensors(batch, 1, 5)
    with torch.no_grad():
        given[0][0] = -given[1][1]  # q + k of one pair is 0
        given[3][5, 0] = 0.0  # so is another's Ew
        given[3][7, 1] = -100.0  # and the ReLU of a third
    results = [step(form, given, batch, 5.0, 0.0, None) for form in ("reference", "numba")]
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-11)
    for value in (math.nan, math.inf):
        with torch.no_grad():
            given[3][4, 1, 0, 2] = value
        results = [step(form, given, batch, 5.0, 0.0, None)[:2] for form in ("reference", "numba")]
        for expected, found in zip(*results, strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-11, equal_nan=True)


@pytest.mark.slow
def test_bits_do_not_depend_on_threads():
    batch = batch_of(9, 4, 12, 7)
    given, threads = tensors(batch, 2, 8, torch.float32), torch.get_num_threads()
    results = []
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            results.append(step("numba", given, batch, 5.0, RATE, SEED))
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


def test_signed_sqrt():
    x = torch.tensor([-4.0, 0.0, 9.0, 1e-30], dtype=torch.float64, requires_grad=True)
    y = signed_sqrt(x)
    y.sum().backward()
    torch.testing.assert_close(y.detach(), torch.tensor([-2.0, 0.0, 3.0, 1e-15], dtype=torch.float64))
    torch.testing.assert_close(x.grad, torch.tensor([0.25, 0.0, 1 / 6, 5e14], dtype=torch.float64))
