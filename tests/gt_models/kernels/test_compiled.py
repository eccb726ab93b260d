"""Operations on vectors of a constant length: whole vectors, and the rest in powers of two."""

import numpy as np
import pytest
import torch

from gt_models.kernels.compiled import axpy, compiled, dot, fill, gate, real

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
