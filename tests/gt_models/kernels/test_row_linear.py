"""The linear map of rows, compared with products in double precision, and the choice of its fast form."""

import pytest
import torch

from gt_models.kernels import use
from gt_models.kernels.dispatch import forms_taken
from gt_models.kernels.row_linear import row_linear
from tests.gt_models.checks import assert_threads_change_no_bit


def arguments(rows: int, inputs: int, outputs: int, with_bias: bool = True) -> list[torch.Tensor | None]:
    torch.manual_seed(0)
    bias = torch.randn(outputs) if with_bias else None
    return [
        None if t is None else t.requires_grad_()
        for t in (torch.randn(rows, inputs), torch.randn(outputs, inputs), bias)
    ]


def results(form: str, leaves: list[torch.Tensor | None]) -> list[torch.Tensor]:
    with use(row_linear=form):
        y = row_linear(*leaves)
    return [y.detach(), *torch.autograd.grad((y * y.detach().cos()).sum(), [t for t in leaves if t is not None])]


@pytest.mark.parametrize(
    ("rows", "inputs", "outputs", "with_bias"), [(700, 196, 128, True), (20000, 64, 12, True), (3000, 70, 8, False)]
)
def test_it_is_the_map(rows, inputs, outputs, with_bias):
    leaves = arguments(rows, inputs, outputs, with_bias)
    double = [None if t is None else t.detach().double().requires_grad_() for t in leaves]
    with use("reference"):
        y = row_linear(*double)
    y32 = results("numba", leaves)
    expected = [y, *torch.autograd.grad((y * y32[0].double().cos()).sum(), [t for t in double if t is not None])]
    for e, found, again in zip(expected, y32, results("numba", leaves), strict=True):
        assert (found - e).norm() < 1e-5 * e.norm()
        assert torch.equal(found, again)


def test_x_may_want_no_gradient_and_gradients_may_come_as_columns():
    x, weight, bias = arguments(5000, 64, 16)
    outs = []
    for form in ("reference", "numba"):
        with use(row_linear=form):
            parts = row_linear(x.detach(), weight, bias).split(4, 1)
        outs.append(torch.autograd.grad(parts[1].square().sum() + parts[3].sum(), [weight, bias]))
    for expected, found in zip(*outs, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-2)


def test_a_gradient_may_lie_transposed():
    leaves, other = arguments(5000, 64, 16), torch.randn(5000, 3)
    outs = []
    for form in ("reference", "numba"):
        with use(row_linear=form):
            outs.append(torch.autograd.grad((row_linear(*leaves).t() @ other).square().sum(), leaves))
    for expected, found in zip(*outs, strict=True):
        assert (found - expected).norm() < 1e-5 * expected.norm()


def test_threads_do_not_change_a_bit():
    leaves = arguments(5000, 70, 64)
    assert_threads_change_no_bit(lambda: results("numba", leaves)[2:])  # products by oneDNN


def test_it_states_when_it_cannot():
    for rows, outputs, words in ((10, 64, "fewer than"), (70000, 6, "no multiple of four")):
        with pytest.raises(ValueError, match=words), use(row_linear="numba"):
            row_linear(*arguments(rows, 64, outputs))
    with torch.autocast("cpu", torch.bfloat16), forms_taken() as taken:
        row_linear(*arguments(700, 64, 64)).sum().backward()
    assert dict(taken["row_linear"]) == {"reference": 1}
