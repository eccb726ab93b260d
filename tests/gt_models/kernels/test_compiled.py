"""Operations on vectors of a constant length: whole vectors, and the rest in powers of two."""

import numpy as np
import pytest
import torch

from gt_models.kernels.compiled import axpy, compiled, dot, fill, gate, real
from tests.gt_models.checks import said_by_two_processes

SIZE = 37  # 16 + 16 + 4 + 1


@compiled
def _operations(y, x, a, products):
    axpy(y[0], 1, a, x, 2, SIZE)
    fill(y[1], 1, a, x, 2, SIZE)
    gate(y[2], 1, a, x, 2, SIZE)
    products[0] = dot(y[3], 1, x, 2, SIZE)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_operations_on_vectors(dtype):
    rng = np.random.default_rng(0)
    y, x = rng.normal(size=(4, SIZE + 3)).astype(real(dtype)), rng.normal(size=SIZE + 3).astype(real(dtype))
    x[5] = np.nan  # not smaller than anything: `gate` leaves its place alone
    expected, at, other, a = y.copy(), slice(1, SIZE + 1), slice(2, SIZE + 2), real(dtype)(0.25)
    expected[0, at] += a * x[other]
    expected[1, at] = a
    expected[2, at] = np.where(x[other] <= a, a, y[2, at])
    x_dot = np.where(np.isnan(x), 0, x)
    products = np.empty(1, real(dtype))
    _operations(y, x, a, products)
    np.testing.assert_allclose(y, expected, rtol=1e-6)
    assert np.isnan(products[0])
    _operations(y, x_dot, a, products)
    np.testing.assert_allclose(products[0], expected[3, at] @ x_dot[other], rtol=1e-5)


def test_another_process_finds_what_one_compiled(tmp_path):
    code = (
        "import torch\n"
        "from gt_models.kernels.graph_attention import graph_attention, small_edges\n"
        "from gt_models.kernels import graph_attention_numba\n"
        "edges, n = small_edges(torch.device('cpu'))\n"
        "graph_attention(torch.ones(n, 6), torch.ones(2, 3), torch.ones(2, 3), *edges, 0.2)\n"
        "kernel = graph_attention_numba._kernels(torch.float32, 3).forward\n"
        "print(sum(kernel.stats.cache_hits.values()), sum(kernel.stats.cache_misses.values()))\n"
    )
    assert said_by_two_processes(code, tmp_path) == ["0 1\n", "1 0\n"]
