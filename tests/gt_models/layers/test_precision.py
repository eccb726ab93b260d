"""Sums in full precision."""

import pytest
import torch
from torch import Tensor, nn

from gt_models.layers.precision import dtype_of, full_precision, widened


class Product(nn.Module):
    @full_precision
    def forward(self, x: Tensor, y: Tensor, scale: float) -> Tensor:
        return scale * (x @ y.to(x.dtype))


@pytest.mark.parametrize(
    ("given", "computed"),
    [(torch.bfloat16, torch.float32), (torch.float16, torch.float32), (torch.float64, torch.float64)],
)
def test_tensors_are_widened_and_autocast_is_off(given, computed):
    x = torch.randn(3, 3).to(given)
    with torch.autocast("cpu", torch.bfloat16):
        out = Product()(x, x, 2.0)
    assert out.dtype == computed
    torch.testing.assert_close(out, 2.0 * (widened(x) @ widened(x)))


def test_dtype_of_a_module():
    assert dtype_of(nn.Linear(2, 2).double()) == torch.float64
    assert dtype_of(nn.ReLU()) == torch.get_default_dtype()
