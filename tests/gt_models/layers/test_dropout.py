"""Dropout by a hash: the rate, the scale, and one draw from torch's generator."""

import pytest
import torch

from gt_models.layers.dropout import Dropout


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_rate_and_scale(dtype):
    out = Dropout(0.25)(torch.ones(200, 100, dtype=dtype))
    assert (out == 0).float().mean().item() == pytest.approx(0.25, abs=0.02)
    torch.testing.assert_close(out[out != 0], torch.ones_like(out[out != 0]) / 0.75)


def test_one_seed_gives_one_result_and_the_next_another():
    drop, x = Dropout(0.5), torch.ones(10, 10)
    torch.manual_seed(3)
    first, second = drop(x), drop(x)
    torch.manual_seed(3)
    assert torch.equal(drop(x), first)
    assert not torch.equal(second, first)
    assert torch.equal(drop.eval()(x), x)
    with pytest.raises(ValueError, match="outside"):
        Dropout(1.0)
