"""Several linear maps of the same rows: both fast forms equal plain linear maps.

One form sums the gradient of the rows in the products, the other one uses oneDNN.
"""

import pytest
import torch

from gt_models.kernels import use
from gt_models.kernels.multi_linear import multi_linear
from tests.gt_models.checks import assert_threads_change_no_bit


@pytest.mark.parametrize("rows", [0, 1, 7])
@pytest.mark.parametrize("with_bias", [(True, False, True), (False, False, False)])
def test_summed_agrees_with_the_reference(with_bias, rows):
    torch.manual_seed(0)
    x = torch.randn(rows, 5, dtype=torch.float64, requires_grad=True)
    weights = [torch.randn(width, 5, dtype=torch.float64, requires_grad=True) for width in (3, 4, 1)]
    biases = [
        torch.randn(len(w), dtype=torch.float64, requires_grad=True) if b else None
        for w, b in zip(weights, with_bias, strict=True)
    ]
    leaves, results = [x, *weights, *(b for b in biases if b is not None)], []
    for form in ("reference", "summed"):
        with use(multi_linear=form):
            out = torch.cat(multi_linear(x, *weights, *biases), 1)
        results.append([out, *torch.autograd.grad(out.sin().sum(), leaves)])
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    by_hand = torch.stack([x @ row for row in weights[0]], 1) + (0 if biases[0] is None else biases[0])
    torch.testing.assert_close(results[0][0][:, :3], by_hand, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("width", [70, 300])  # gradients of weights by the kernel, except for 33 outputs: by oneDNN
@pytest.mark.parametrize("with_bias", [(True, False), (False, False)])
def test_onednn_agrees_with_products_in_double_precision(with_bias, width):
    torch.manual_seed(0)
    x = torch.randn(1000, width, requires_grad=True)
    weights = [torch.randn(out, width, requires_grad=True) for out in (64, 33)]
    biases = [torch.randn(len(w), requires_grad=True) if b else None for w, b in zip(weights, with_bias, strict=True)]
    results = []
    for form, dtype in (("reference", torch.float64), ("numba", torch.float32)):
        arguments = [None if t is None else t.detach().to(dtype).requires_grad_() for t in (x, *weights, *biases)]
        with use(multi_linear=form):
            out = torch.cat(multi_linear(*arguments), 1)
        results.append([out, *torch.autograd.grad(out.sin().sum(), [t for t in arguments if t is not None])])
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found, expected.float(), rtol=1e-4, atol=1e-4 * expected.abs().max().item())


def test_onednn_forms_the_same_bits_again_and_reads_rows_that_lie_apart():
    x, weight = torch.randn(700, 140)[:, ::2].requires_grad_(), torch.randn(70, 64).t().requires_grad_()
    results = []
    for rows, columns in (
        (x, weight),
        (x.detach().contiguous().requires_grad_(), weight.detach().contiguous().requires_grad_()),
    ) * 2:
        with use(multi_linear="numba"):
            (out,) = multi_linear(rows, columns, None)
        results.append([out, *torch.autograd.grad(out.square().sum(), (rows, columns))])
    for later in results[1:]:
        assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-2) for a, b in zip(results[0], later, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(results[0], results[2], strict=True))


def test_threads_do_not_change_a_bit_of_narrow_maps():
    torch.manual_seed(0)
    arguments = [torch.randn(*shape, requires_grad=True) for shape in ((3000, 64), (64, 64), (32, 64), (64,), (32,))]

    def step() -> list[torch.Tensor]:
        with use(multi_linear="numba"):
            out = torch.cat(multi_linear(*arguments), 1)
        return [out, *torch.autograd.grad(out.square().sum(), arguments)]

    assert_threads_change_no_bit(step)
