"""Dropout in one pass replaces the plain module."""

import pytest
import torch

from gt_models.kernels import forms_taken, use
from gt_models.layers.dropout import Dropout


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_is_the_plain_module_with_the_same_draws(dtype):
    module, x, results = Dropout(0.3), torch.randn(40, 7, dtype=dtype, requires_grad=True), []
    for form in ("reference", None):
        torch.manual_seed(1)
        with use(form), forms_taken() as taken:
            out = module(x)
        results.append([out, *torch.autograd.grad(out.sin().sum(), x)])
    assert taken == {"dropout_module": {"one pass": 1}, "dropout": {"numba": 1}}
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_sparse_rows_and_half_precision_take_the_plain_module():
    for x in (torch.eye(5).to_sparse_csr(), torch.ones(5, dtype=torch.bfloat16)):
        with forms_taken() as taken:
            Dropout(0.3)(x)
        assert taken == {"dropout_module": {"reference": 1}}
