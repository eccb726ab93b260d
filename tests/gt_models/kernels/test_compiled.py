"""Operations on vectors of a constant length: whole vectors, then the remainder in powers of two."""

import numpy as np
import pytest
import torch

from gt_models.kernels.compiled import (
    compiled,
    copy,
    dot,
    gate,
    inner,
    largest,
    move,
    mul,
    muladd,
    powers,
    real,
    shares,
    softmax,
)

SIZE = 37  # 16 + 16 + 4 + 1


@compiled
def _operations(y, x, a, products):
    muladd(y[0], 1, a, x, 2, SIZE)
    copy(y[1], 1, a, SIZE)
    gate(y[2], 1, a, x, 2, SIZE)
    largest(y[4], 1, x, 2, SIZE)
    mul(y[5], 1, a, x, 2, SIZE)
    mul(y[6], 1, x, 2, y[3], 1, SIZE)
    muladd(y[7], 1, x, 2, y[3], 1, SIZE)
    copy(y[8], 1, x, 2, SIZE)
    products[0] = dot(y[3], 1, x, 2, SIZE)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_operations_on_vectors(dtype):
    rng = np.random.default_rng(0)
    y, x = rng.normal(size=(9, SIZE + 3)).astype(real(dtype)), rng.normal(size=SIZE + 3).astype(real(dtype))
    x[5] = np.nan  # NaN is not smaller than any number: `gate` does not change it
    expected, at, other, a = y.copy(), slice(1, SIZE + 1), slice(2, SIZE + 2), real(dtype)(0.25)
    expected[0, at] += a * x[other]
    expected[1, at] = a
    expected[2, at] = np.where(x[other] <= a, a, y[2, at])
    expected[4, at] = np.where(x[other] < y[4, at], y[4, at], x[other])  # NaN is passed on
    expected[5, at] = a * x[other]
    expected[6, at] = x[other] * y[3, at]
    expected[7, at] += x[other] * y[3, at]
    expected[8, at] = x[other]
    x_dot = np.where(np.isnan(x), 0, x)
    products = np.empty(1, real(dtype))
    _operations(y, x, a, products)
    np.testing.assert_allclose(y, expected, rtol=1e-6)
    assert np.isnan(products[0])
    _operations(y, x_dot, a, products)
    np.testing.assert_allclose(products[0], expected[3, at] @ x_dot[other], rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_softmax_of_each_lane(dtype):
    lanes, normalise = 3, softmax(dtype, 3)

    @compiled
    def kernel(scores, peak, inverse):
        normalise(scores, 5, peak, inverse)

    scores = np.random.default_rng(0).normal(size=(7, lanes)).astype(real(dtype))
    found, peak, inverse = scores.copy(), np.empty(lanes, real(dtype)), np.empty(lanes, real(dtype))
    kernel(found.reshape(-1), peak, inverse)
    assert np.array_equal(peak, scores[:5].max(0))
    np.testing.assert_allclose(found[:5], np.exp2(scores[:5] - peak), rtol=1e-6)
    np.testing.assert_allclose(inverse, 1 / np.exp2(scores[:5] - peak).sum(0), rtol=1e-6)
    assert np.array_equal(found[5:], scores[5:])


def test_rows_are_moved_to_another_layout():
    @compiled
    def kernel(x, out):
        move(x, 1, 4, 1, 3, 2, 2.0, out, 5, 1, 3)

    out, x = np.zeros(12), np.arange(13.0)
    kernel(x, out)
    assert np.array_equal(out[5:11].reshape(2, 3), 2 * x[1:].reshape(3, 4)[:, :2].T)
    assert not out[:5].any()
    assert not out[11:].any()


@pytest.mark.parametrize("costs", [[], [5], [1, 1, 100, 1, 1, 1], [0, 0, 0], [3] * 50])
def test_shares_hold_every_unit_once(costs):
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    bounds = shares(np.array(costs, np.int64))
    torch.set_num_threads(threads)
    assert (bounds[0], bounds[-1], len(bounds)) == (0, len(costs), min(3, max(len(costs), 1)) + 1)
    assert sorted(bounds) == bounds
    if len(costs) == 50:
        assert max(np.diff(bounds)) == 17


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_powers_of_two_in_place(dtype):
    raise_two = powers(dtype)

    @compiled
    def kernel(x):
        raise_two(x)

    x = np.concatenate([np.linspace(-60, 0, 1001), [-np.inf, np.nan]]).astype(real(dtype))
    expected = np.exp2(x.astype(np.float64))
    kernel(x)
    np.testing.assert_allclose(x, expected, rtol=2e-7 if dtype == torch.float32 else 1e-15)


def test_parts_are_compiled_into_kernels():
    """Otherwise a process that compiles a kernel and one that loads it from disk call different copies."""

    @inner
    def long_one(x, i):  # LLVM would not inline it
        y = x[i]
        for _ in range(3):
            y = (
                np.sqrt(np.abs(np.sin(y) * np.exp(-y) + np.log(np.abs(y) + 1) * np.cos(y)))
                + np.tan(y) * np.arctan(y)
                + np.sinh(y) / np.cosh(y)
            )
            y = (
                np.cbrt(np.abs(y) + np.expm1(y) * np.log1p(np.abs(y)))
                + np.hypot(y, 3.0) * np.arcsinh(y)
                - np.tanh(y) ** 3.5
            )
        x[i] = y

    @compiled
    def kernel(x):
        for i in range(0, len(x), 4):
            long_one(x, i)
            long_one(x, i + 1)
            long_one(x, i + 2)
            long_one(x, i + 3)

    kernel(np.ones(4))
    (code,) = kernel.inspect_llvm().values()
    assert not [line for line in code.splitlines() if " call " in line and "long_one" in line]
