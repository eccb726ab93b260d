"""Rows in any order: the reference against a loop, each form against the reference."""

import pytest
import torch

from gt_models.kernels import use
from gt_models.kernels.grouped import Grouped
from gt_models.kernels.taken_rows import taken_rows
from tests.gt_models.checks import assert_threads_change_no_bit


def case(rows: int, taken: int, width: int, dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, Grouped]:
    torch.manual_seed(0)
    return torch.randn(rows, width, dtype=dtype, requires_grad=True), Grouped(
        torch.randint(0, rows + 1, (taken,)), rows + 1
    )


def outcome(values: torch.Tensor, row: Grouped) -> list[torch.Tensor]:
    out = taken_rows(values, row)
    return [out.detach(), *torch.autograd.grad((out * out.detach().cos()).sum(), values)]


def test_the_reference_against_a_loop():
    values, row = case(5, 12, 3)
    expected = [values[r] if r < 5 else torch.zeros(3).double() for r in row.of.tolist()]
    assert 5 in row.of
    assert len(set(row.of.tolist())) < 12
    with use("reference"):
        assert torch.equal(taken_rows(values, row), torch.stack(expected))


@pytest.mark.parametrize("sizes", [(5, 12, 3), (40, 7, 33), (3, 0, 4), (1, 9, 1), (6, 5, 0)])
@pytest.mark.parametrize("form", [f.name for f in taken_rows.forms if "cpu" in f.devices])
def test_forms_agree_with_the_reference(form, sizes):
    values, row = case(*sizes)
    results = []
    for name in ("reference", form):
        with use(taken_rows=name):
            results.append(outcome(values, row))
    assert torch.equal(results[0][0], results[1][0])
    torch.testing.assert_close(results[1][1], results[0][1], rtol=1e-12, atol=1e-12)


def test_rows_and_gradients_may_be_columns_of_wider_ones():
    values, row = case(6, 9, 8)
    results = []
    for name in ("reference", "numba"):
        with use(taken_rows=name):
            out = taken_rows(values[:, 2:5], row)
            results.append([out, *torch.autograd.grad(out.expand(2, -1, -1).sum(), values)])
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_what_is_not_finite_comes_along():
    values, row = case(5, 12, 3)
    values.data[1, 2], values.data[3, 0] = float("nan"), float("inf")
    with use(taken_rows="numba"):
        out = taken_rows(values, row)
    assert torch.equal(out.isnan()[:, 2], row.of == 1)
    assert torch.equal(out.isinf()[:, 0], row.of == 3)


def test_threads_do_not_change_a_bit():
    values, row = case(5000, 20000, 16, torch.float32)
    assert_threads_change_no_bit(lambda: outcome(values, row))
