"""Linear maps of taken rows: the form that is one node against the definition, its bits, and when rows are mapped first."""

import pytest
import torch

from gt_models.kernels import use
from gt_models.kernels.row_maps import Map, Rows, row_maps


def case(rows: int, outputs: int, dtype: torch.dtype = torch.float64):
    """Few rows that all outputs take, others of which some are missing; two maps as one output, and columns of the same weight as another."""
    torch.manual_seed(0)
    few, every = max(1, rows // 3), slice(0, rows)
    index = torch.randint(0, few, (outputs, 2))
    others = torch.randint(-1, rows, (outputs, 2))
    own, taken = Rows(slice(0, few)), (Rows(slice(0, few), index), Rows(every, others))
    outs = [[Map((own,), 0, 0, slice(0, 6), 1, 0), Map(taken, 0, 5, slice(0, 6), 1, 1)], [Map(taken, 0, 5, slice(6, 9), 1, 1)]]
    outs.append([Map((taken[0],), 2, 0, slice(0, 4), 3, 0), Map((own,), 2, 10, slice(0, 4), 3, 1)])
    outs.append([Map((taken[0],), 4, 0, slice(0, 4), None, 0)])
    tensors = [torch.randn(*shape, dtype=dtype).requires_grad_() for shape in ((rows, 5), (25, 9), (2, 9), (15, 4), (2, 4), (10, 4))]
    return tensors[0], outs, tensors[1:]


def results(form: str, x, outs, parameters):
    with use(row_maps=form):
        found = row_maps(x, outs, *parameters)
    return [*found, *torch.autograd.grad(sum((y * y.detach().cos()).sum() for y in found), [x, *parameters])]


@pytest.mark.parametrize(("rows", "outputs"), [(12, 30), (30, 4), (1, 1), (7, 7)])
def test_one_node_agrees_with_the_reference(rows, outputs):
    x, outs, parameters = case(rows, outputs)
    for expected, found in zip(*(results(form, x, outs, parameters) for form in ("reference", "one node")), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-11)


def test_the_reference_against_loops():
    x, outs, (weight, bias, *_) = case(12, 30)
    with use("reference"):
        (joined, *_) = row_maps(x, outs, *case(12, 30)[2])
    taken = outs[0][1].rows
    for j in range(30):
        inputs = [x[row] if row >= 0 else torch.zeros(5, dtype=x.dtype) for rows in taken for row in rows.index[j].tolist()]
        y = sum(u @ weight[5 + 5 * s : 10 + 5 * s, :6] for s, u in enumerate(inputs)) + bias[1, :6]
        torch.testing.assert_close(joined[4 + j], y, rtol=1e-11, atol=1e-11)


def test_few_rows_are_mapped_first_unless_one_is_missing():
    index = torch.tensor([[0, 1], [1, 1], [2, 0], [1, 0]])
    assert Rows(slice(0, 3), index).mapped_first
    assert not Rows(slice(0, 4), index).mapped_first
    assert not Rows(slice(0, 3), index.index_fill(0, torch.tensor([1]), -1)).mapped_first
    assert not Rows(slice(0, 3)).mapped_first


def test_large_products_form_the_same_bits_again():
    torch.manual_seed(0)
    rows = (Rows(slice(0, 100), torch.randint(0, 100, (3000, 2))), Rows(slice(0, 3100), torch.randint(-1, 3100, (3000, 2))))
    x, weight, bias = torch.randn(3100, 32), torch.randn(128, 256), torch.randn(1, 256)
    tensors = [t.requires_grad_() for t in (x, weight, bias)]
    outs = [[Map(rows, 0, 0, slice(0, 200), 1, 0)], [Map(rows, 0, 0, slice(200, 256), 1, 0)]]
    expected = results(
        "reference", tensors[0].detach().double().requires_grad_(), outs, [t.detach().double().requires_grad_() for t in tensors[1:]]
    )
    first, second = (results("one node", tensors[0], outs, tensors[1:]) for _ in range(2))
    for a, b, exact in zip(first, second, expected, strict=True):
        assert torch.equal(a, b)
        torch.testing.assert_close(a, exact.float(), rtol=1e-3, atol=1e-3 * exact.abs().max().item())


def test_an_input_without_gradient_and_maps_without_rows():
    x, outs, parameters = case(12, 30)
    with use(row_maps="one node"):
        found = row_maps(x.detach(), outs, *parameters)
    assert all(g.abs().sum() > 0 for g in torch.autograd.grad(sum(y.sum() for y in found), parameters))
    empty = [[Map((Rows(slice(0, 12), torch.empty(0, 2, dtype=torch.long)),), 4, 0, slice(0, 4), None, 0)]]
    (found,) = row_maps(x, empty, *parameters)
    assert found.shape == (0, 4)
    with use(row_maps="one node"), pytest.raises(ValueError, match="maps without rows"):
        row_maps(x, empty, *parameters)
