"""The compiled dropout: what it drops, what it scales, and that gradient and threads see the same mask."""

import pytest
import torch

from gt_models.nn.dropout import Dropout, drop

SEED = torch.tensor([5])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(333, 128), (7,), (0, 4), (1,)])
def test_entries_are_zero_or_scaled(shape, dtype):
    x = torch.randn(shape, dtype=dtype, requires_grad=True)
    out = drop(x, SEED, 0.3)
    kept = out != 0
    torch.testing.assert_close(out, kept * x / 0.7)
    out.backward(torch.ones_like(out))
    torch.testing.assert_close(x.grad, kept / torch.tensor(0.7, dtype=dtype))


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.8])
def test_rate_and_independence(rate):
    kept = drop(torch.ones(1000, 500), SEED, rate) != 0
    assert abs(kept.double().mean() - (1 - rate)) < 0.003
    assert (kept.double().mean(0) - (1 - rate)).abs().max() < 0.08
    assert (kept.double().mean(1) - (1 - rate)).abs().max() < 0.11
    other = drop(torch.ones(1000, 500), torch.tensor([6]), rate) != 0
    for shift in (0, 1, 16, 500):  # neither another seed nor a neighbour says anything about an entry
        both = (kept.flatten()[shift:] & (other if shift == 0 else kept).flatten()[: kept.numel() - shift]).double().mean()
        assert abs(both - (1 - rate) ** 2) < 0.004


def test_same_for_any_number_of_threads_type_and_layout():
    x, threads = torch.randn(400, 300), torch.get_num_threads()
    expected = drop(x, SEED, 0.5)
    for count in (1, 3):
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
    assert torch.autograd.gradcheck(lambda v: drop(v, SEED, 0.4), torch.randn(5, 3, dtype=torch.float64, requires_grad=True))
    module.eval()
    assert module(x) is x
    with pytest.raises(ValueError, match="outside"):
        Dropout(1.0)
