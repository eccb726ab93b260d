"""The linear map of many rows: oneDNN against products in double precision, whichever side is the narrower, and when it is taken."""

import pytest
import torch

from gt_models.kernels import use
from gt_models.kernels.pair_linear import pair_linear


@pytest.mark.parametrize("widths", [(33, 70), (70, 33), (64, 64)])
@pytest.mark.parametrize("with_bias", [True, False])
def test_onednn_agrees_with_products_in_double_precision_and_forms_the_same_bits_again(widths, with_bias):
    torch.manual_seed(0)
    rows, weight, bias = torch.randn(1000, widths[0]), torch.randn(*reversed(widths)), torch.randn(widths[1]) if with_bias else None
    results = []
    for form, dtype in (("reference", torch.float64), ("onednn", torch.float32), ("onednn", torch.float32)):
        arguments = [None if t is None else t.to(dtype).requires_grad_() for t in (rows, weight, bias)]
        with use(pair_linear=form):
            out = pair_linear(*arguments)
        results.append([out, *torch.autograd.grad(out.sin().sum(), [t for t in arguments if t is not None])])
        rows, weight, bias = (None if t is None else t.detach().clone() for t in (rows, weight, bias))
    assert all(torch.equal(a, b) for a, b in zip(*results[1:], strict=True))
    for expected, found in zip(*results[:2], strict=True):
        torch.testing.assert_close(found, expected.float(), rtol=1e-4, atol=1e-4 * expected.abs().max().item())


def test_rows_that_need_no_gradient_and_gradients_that_lie_apart():
    rows, weight = torch.randn(50, 6), torch.randn(3, 6, requires_grad=True)
    with use(pair_linear="reference"):
        expected = torch.autograd.grad((pair_linear(rows, weight).t() @ torch.ones(50, 2)).sum(), weight)
    large, wide = rows.repeat(2000, 20), weight.detach().repeat(1, 20).requires_grad_()
    (found,) = torch.autograd.grad((pair_linear(large, wide).t() @ torch.ones(100000, 2)).sum(), wide)
    torch.testing.assert_close(found, expected[0].repeat(1, 20) * 2000, rtol=1e-3, atol=1)


def test_why_onednn_does_not_run():
    x, weight = torch.randn(400, 64), torch.randn(64, 64)
    with use(pair_linear="onednn"), pytest.raises(ValueError, match="fewer than 2\\^21 multiplications"):
        pair_linear(x, weight)
    with torch.autocast("cpu", torch.bfloat16), use(pair_linear="onednn"), pytest.raises(ValueError, match="autocast is on"):
        pair_linear(x.repeat(2, 1), weight)
