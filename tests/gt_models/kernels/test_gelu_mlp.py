"""Two linear maps with GELU between them, compared with double precision."""

import pytest
import torch
from torch.nn import functional as F

from gt_models.kernels import use
from gt_models.kernels.dispatch import forms_taken
from gt_models.kernels.gelu_mlp import gelu_mlp
from tests.gt_models.checks import assert_threads_change_no_bit


def arguments(rows: int, inputs: int, hidden: int, outputs: int) -> list[torch.Tensor]:
    torch.manual_seed(0)
    shapes = (rows, inputs), (hidden, inputs), (hidden,), (outputs, hidden), (outputs,)
    return [torch.randn(s).mul_(s[1] ** -0.5 if i in (1, 3) else 1.0).requires_grad_() for i, s in enumerate(shapes)]


def results(form: str, leaves: list[torch.Tensor], weights: torch.Tensor) -> list[torch.Tensor]:
    with use(gelu_mlp=form):
        y = gelu_mlp(*leaves)
    return [y.detach(), *torch.autograd.grad((y * weights.to(y.dtype)).sum(), leaves)]


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(900, 64, 128, 64), (2000, 196, 12, 8)])
def test_it_is_the_network(sizes):
    leaves = arguments(*sizes)
    weights = torch.randn(sizes[0], sizes[3])
    expected = results("reference", [t.detach().double().requires_grad_() for t in leaves], weights)
    for e, found in zip(expected, results("numba", leaves, weights), strict=True):
        assert (found - e).norm() < 1e-5 * e.norm()


@pytest.mark.slow
def test_gelu_and_its_slope_over_the_line_are_as_close_to_double_precision_as_torchs():
    """A network that computes GELU only: x + 0, GELU, times 1."""
    line, one, zero = torch.linspace(-12, 12, 2**18)[:, None], torch.eye(4), torch.zeros(4)
    x = line.expand(-1, 4).clone().requires_grad_()
    exact = x.detach().double().requires_grad_()
    with use(gelu_mlp="numba"):
        y = gelu_mlp(x, one, zero, one, zero)
    expected = F.gelu(exact)
    assert (y - expected).abs().max() < 2e-6
    assert (torch.autograd.grad(y.sum(), x)[0] - torch.autograd.grad(expected.sum(), exact)[0]).abs().max() < 1e-6


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_row_that_is_not_finite_spoils_itself_alone(bad):
    leaves = arguments(300, 64, 64, 64)
    leaves[0].data[7, 5] = bad
    outs = [results(form, leaves, torch.ones(300, 64)) for form in ("reference", "numba")]
    for expected, found in zip(outs[0][:2], outs[1][:2], strict=True):
        assert torch.equal(expected.isfinite(), found.isfinite())


def test_threads_do_not_change_a_bit_of_the_kernels():
    leaves = arguments(5000, 64, 64, 64)
    assert_threads_change_no_bit(lambda: results("numba", leaves, torch.ones(5000, 64)))


def test_few_rows_and_autocast_take_the_reference():
    with forms_taken() as taken:
        gelu_mlp(*arguments(3, 64, 64, 64))
        with torch.autocast("cpu", torch.bfloat16):
            gelu_mlp(*arguments(900, 64, 64, 64))
    assert dict(taken["gelu_mlp"]) == {"reference": 2}
