"""Parts of kernels: operations on vectors against loops, the cache on disk, and shares of threads."""

import numpy as np
import pytest
import torch

from gt_models.kernels.compiled import compiled, dot, largest, move, powers, shares
from gt_models.kernels.vectors import LANES, copy, gate, gather, local, mul, muladd, scatter, softmax
from tests.gt_models.checks import said_by_two_processes

TYPES = [np.float32, np.float64]
SIZE = 37  # 16 + 16 + 4 + 1
CHANNELS = 15  # 8 + 4 + 2 + 1
HEADS = 3


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


def _loops(y, x, a, products):
    products[0] = 0
    for i in range(1, SIZE + 1):
        v = x[i + 1]
        y[0, i] += a * v
        y[1, i] = a
        y[2, i] = a if v <= a else y[2, i]  # NaN is not smaller than any number: `gate` does not change it
        y[4, i] = y[4, i] if v < y[4, i] else v  # NaN is passed on
        y[5, i] = a * v
        y[6, i] = v * y[3, i]
        y[7, i] += v * y[3, i]
        y[8, i] = v
        products[0] += y[3, i] * v


@pytest.mark.parametrize("bad", [0.0, np.nan])
@pytest.mark.parametrize("number", TYPES)
def test_an_operation_is_its_loop(number, bad):
    rng = np.random.default_rng(0)
    y, x = rng.normal(size=(9, SIZE + 3)).astype(number), rng.normal(size=SIZE + 3).astype(number)
    x[5] = bad
    expected, products, right = y.copy(), np.empty(1, number), np.empty(1, number)
    _operations(y, x, number(0.25), products)
    _loops(expected, x, number(0.25), right)
    np.testing.assert_allclose(y, expected, rtol=1e-6)
    np.testing.assert_allclose(products, right, rtol=1e-5)


@compiled
def _on_the_stack(x, out):
    row = local(x.dtype, SIZE)
    for i in range(SIZE):
        row[i] = x[i]
    for i in range(SIZE):
        out[i] = row[SIZE - 1 - i]


@compiled
def _transpose(x, states, back, lanes):
    gather(states, 2, x, 1, 20, lanes, CHANNELS)
    scatter(states, 2, back, 1, 20, lanes, CHANNELS)


@pytest.mark.parametrize("lanes", [1, 3, LANES])
@pytest.mark.parametrize("number", TYPES)
def test_channels_of_lanes_are_transposed_and_put_back(number, lanes):
    x, states, back = np.arange(200, dtype=number), np.zeros(2 + CHANNELS * LANES, number), np.zeros(200, number)
    _transpose(x, states, back, lanes)
    expected, returned = np.zeros_like(states), np.zeros_like(back)
    for lane in range(LANES):
        for c in range(CHANNELS):
            expected[2 + c * LANES + lane] = x[1 + 20 * min(lane, lanes - 1) + c]  # the last lane is repeated
            if lane < lanes:
                returned[1 + 20 * lane + c] = x[1 + 20 * lane + c]
    assert np.array_equal(states, expected)
    assert np.array_equal(back, returned)


@compiled
def _softmax(scores, peak, inverse):
    softmax(scores, 5, peak, inverse, HEADS)


@compiled
def _powers(x):
    powers(x)


@compiled
def _move(x, out):
    move(x, 1, 4, 1, 3, 2, 2.0, out, 5, 1, 3)


def test_an_array_on_the_stack():
    x, out = np.arange(SIZE, dtype=np.float32), np.zeros(SIZE, np.float32)
    _on_the_stack(x, out)
    assert np.array_equal(out, x[::-1])


@pytest.mark.parametrize("number", TYPES)
def test_softmax_of_each_lane(number):
    scores = np.random.default_rng(0).normal(size=(7, HEADS)).astype(number)
    found, peak, inverse = scores.copy(), np.empty(HEADS, number), np.empty(HEADS, number)
    _softmax(found.reshape(-1), peak, inverse)
    assert np.array_equal(peak, scores[:5].max(0))
    np.testing.assert_allclose(found[:5], np.exp2(scores[:5] - peak), rtol=1e-6)
    np.testing.assert_allclose(inverse, 1 / np.exp2(scores[:5] - peak).sum(0), rtol=1e-6)
    assert np.array_equal(found[5:], scores[5:])


@pytest.mark.parametrize("number", TYPES)
def test_powers_of_two_in_place(number):
    x = np.concatenate([np.linspace(-60, 0, 1001), [-np.inf, np.nan]]).astype(number)
    expected = np.exp2(x.astype(np.float64))
    _powers(x)
    np.testing.assert_allclose(x, expected, rtol=2e-7 if number == np.float32 else 1e-15)


def test_rows_are_moved_to_another_layout():
    out, x = np.zeros(12), np.arange(13.0)
    _move(x, out)
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


@pytest.mark.slow
def test_a_second_process_compiles_nothing_and_computes_the_same_bits(tmp_path):
    code = (
        "import hashlib, torch\n"
        "from gt_models.kernels.triangular_attention_numba import _kernels\n"
        "from gt_models.kernels import use\n"
        "from tests.gt_models.kernels.cases import case, results\n"
        "operation, args = case('triangular_attention: long', torch.float32)\n"
        "operation.example = None\n"
        "with use(triangular_attention='numba'):\n"
        "    found = results(operation, args)\n"
        "print([hashlib.sha256(t.numpy().tobytes()).hexdigest() for t in found])\n"
        "kernels = vars(_kernels(torch.float32, 4)).values()\n"
        "print(*(sum(getattr(k.stats, n).total() for k in kernels) for n in ('cache_hits', 'cache_misses')))\n"
    )
    (bits, counts), (bits_again, counts_again) = map(str.splitlines, said_by_two_processes(code, tmp_path))
    assert bits == bits_again
    assert (counts, counts_again) == ("0 3", "3 0")
