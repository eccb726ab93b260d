"""Products of heads' channels: equal to batched products, for heads that are whole vectors and for others; the same on any number of threads."""

import pytest
import torch

from gt_models.nn import head_products_cpu
from gt_models.nn.head_products_cpu import outer, times


def heads(t, num_heads):
    return t.unflatten(1, (num_heads, -1)).transpose(0, 1)  # [H, N, C]


# one to four vectors of AVX-512; a head alone, and heads that are not whole vectors, are left to the library
@pytest.mark.parametrize(("num_heads", "width"), [(2, 8), (3, 16), (2, 24), (2, 32), (1, 16), (3, 7)])
@pytest.mark.parametrize("rows", [0, 1, 300])
def test_equal_batched_products(rows, num_heads, width):
    x, y = torch.randn(2, rows, num_heads * width, dtype=torch.float64)
    m, other = torch.randn(2, num_heads, width, width, dtype=torch.float64)
    expected = heads(x, num_heads) @ m
    for pairs, wanted in (([(x, m)], expected), ([(x, m), (y, other.mT)], expected + heads(y, num_heads) @ other.mT)):
        out = torch.full_like(x, torch.nan)
        times(num_heads, out, *pairs)
        torch.testing.assert_close(heads(out, num_heads), wanted, rtol=1e-10, atol=1e-10)
    wanted = heads(x, num_heads).mT @ heads(y, num_heads)
    torch.testing.assert_close(outer(num_heads, x, y), wanted, rtol=1e-10, atol=1e-10)


def test_are_the_same_for_any_number_of_threads():
    assert head_products_cpu._fits(torch.float32, 16, 3)
    x, m, found, threads = torch.randn(3000, 48), torch.randn(3, 16, 16), [], torch.get_num_threads()
    for count in (1, 3):
        torch.set_num_threads(count)
        out = torch.empty_like(x)
        times(3, out, (x, m))
        found.append((out, outer(3, x, out)))
    torch.set_num_threads(threads)
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
