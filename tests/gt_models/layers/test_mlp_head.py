"""Widths of the head, and unit length of its hidden vectors."""

import pytest
import torch

from gt_models.layers.mlp_head import MLPHead


def test_widths_halve_or_stay():
    widths = [
        [layer.out_features for layer in MLPHead(16, 3, head) if hasattr(layer, "out_features")]
        for head in ("halving", "constant")
    ]
    assert widths == [[8, 4, 3], [16, 16, 3]]
    with pytest.raises(ValueError, match="cannot halve 3 times"):
        MLPHead(4, 1, "halving", 3)
    with pytest.raises(ValueError, match="known: halving, constant"):
        MLPHead(4, 1, "wide")


def test_unit_length_makes_the_hidden_layers_blind_to_scale():
    head, x = MLPHead(8, 2, act="relu", unit_length=True).double(), torch.rand(3, 8, dtype=torch.float64)
    for layer in head:
        if hasattr(layer, "bias"):
            torch.nn.init.zeros_(layer.bias)
    torch.testing.assert_close(head(5 * x), head(x))
