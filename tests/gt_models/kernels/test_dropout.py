"""Dropout by the counter hash: rate and scale; forms, gradients and threads use the same mask."""

import pytest
import torch

from gt_models.kernels import use
from gt_models.kernels.dropout import drop
from gt_models.layers.dropout import Dropout

SEED = torch.tensor([5])
FORMS = ["reference", "numba"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(333, 128), (7,), (0, 4), (1,)])
def test_forms_agree_with_the_reference(shape, dtype):
    x, outs = torch.randn(shape, dtype=dtype, requires_grad=True), []
    x.data.view(-1)[:3] = torch.tensor([float("nan"), float("inf"), -float("inf")])[: x.numel()]
    for form in FORMS:
        with use(dropout=form):
            out = drop(x, SEED, 0.3)
        outs.append([out, *torch.autograd.grad(out, x, torch.ones_like(out))])
    for expected, found in zip(*outs, strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.8])
def test_rate_and_independence(rate):
    mask = drop(torch.ones(1000, 500), SEED, rate) != 0
    assert abs(mask.double().mean() - (1 - rate)) < 0.003
    assert (mask.double().mean(0) - (1 - rate)).abs().max() < 0.08
    assert (mask.double().mean(1) - (1 - rate)).abs().max() < 0.11
    other = drop(torch.ones(1000, 500), torch.tensor([6]), rate) != 0
    for shift in (0, 1, 16, 500):  # entries are independent of other seeds and of their neighbours
        both = (
            (mask.flatten()[shift:] & (other if shift == 0 else mask).flatten()[: mask.numel() - shift]).double().mean()
        )
        assert abs(both - (1 - rate) ** 2) < 0.004


def test_same_for_any_number_of_threads_type_and_layout():
    x, threads = torch.randn(400, 300), torch.get_num_threads()
    expected = drop(x, SEED, 0.5)
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        assert torch.equal(drop(x, SEED, 0.5), expected)
    torch.set_num_threads(threads)
    assert torch.equal(drop(x.double(), SEED, 0.5) != 0, expected != 0)
    assert torch.equal(drop(x.T.contiguous().T, SEED, 0.5), expected)


def test_module():
    module, x = Dropout(0.5), torch.randn(50, 4)
    torch.manual_seed(1)
    first = module(x)
    torch.manual_seed(1)
    assert torch.equal(module(x), first)
    assert not torch.equal(module(x), first)
    assert module(x.bfloat16()).dtype == torch.bfloat16
    assert torch.autograd.gradcheck(
        lambda v: drop(v, SEED, 0.4), torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    )
    module.eval()
    assert module(x) is x
    with pytest.raises(ValueError, match="outside"):
        Dropout(1.0)


def test_compiled_it_drops_the_same_entries():
    x = torch.randn(20, 6)
    assert torch.equal(torch.compile(drop, backend="eager", fullgraph=True)(x, SEED, 0.5), drop(x, SEED, 0.5))
