"""Sinusoids of channels: the reference, and the series and doublings of the compiled form against double precision."""

import math

import pytest
import torch

from gt_models.kernels import use
from gt_models.kernels.dispatch import forms_taken
from gt_models.kernels.sinusoids import sinusoids
from tests.gt_models.checks import assert_threads_change_no_bit


def test_the_reference():
    p = torch.rand(3, 2, dtype=torch.float64)
    expected = [p, (math.pi * p).sin(), (math.pi * p).cos(), (2 * math.pi * p).sin(), (2 * math.pi * p).cos()]
    torch.testing.assert_close(sinusoids(p, 2), torch.cat(expected, 1))
    assert sinusoids(p, 0) is p


@pytest.mark.parametrize("frequencies", [1, 3, 4])
def test_the_compiled_form_is_as_close_to_double_precision_as_torch_is(frequencies):
    torch.manual_seed(0)
    p = torch.cat(
        [
            torch.rand(500, 28),
            5 * torch.randn(500, 28),
            torch.tensor([0.0, 0.5, 1.0, -1.0, 1.5, 2.0, -0.5])[:, None].expand(-1, 28),
        ]
    )
    exact = sinusoids(p.double(), frequencies)
    with use(sinusoids="numba"):
        found = sinusoids(p, frequencies)
    with use("reference"):
        plain = sinusoids(p, frequencies)
    assert (found - exact).abs().max() < max(2e-6, 2 * (plain - exact).abs().max())


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_comes_out_where_the_reference_lets_it_out(bad):
    p = torch.rand(4, 20)
    p[1, 3] = bad
    outs = []
    for form in ("reference", "numba"):
        with use(sinusoids=form):
            outs.append(sinusoids(p, 3))
    assert torch.equal(outs[0].isnan(), outs[1].isnan())


def test_no_row_depends_on_the_number_of_threads():
    p = torch.rand(1000, 7)
    assert_threads_change_no_bit(lambda: [sinusoids(p, 3)])


def test_what_wants_a_gradient_takes_the_reference():
    with forms_taken() as taken:
        sinusoids(torch.rand(4, 2, requires_grad=True), 3).sum().backward()
        sinusoids(torch.rand(4, 2), 3)
    assert dict(taken["sinusoids"]) == {"reference": 1, "numba": 1}
