"""Checks of sizes and rates."""

import pytest

from gt_models.layers.settings import at_least, check_rates


def test_sizes():
    at_least(1, num_layers=1, num_heads=None)
    at_least(0, num_layers=0)
    with pytest.raises(ValueError, match="num_heads is 0: give at least 1"):
        at_least(1, num_layers=2, num_heads=0)


@pytest.mark.parametrize("rate", [-0.1, 1.0, float("nan")])
def test_rates(rate):
    check_rates(dropout=0.0, mask_rate=0.9)
    with pytest.raises(ValueError, match=r"mask_rate .* is outside \[0, 1\)"):
        check_rates(dropout=0.5, mask_rate=rate)
