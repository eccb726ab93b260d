"""The MLP equals its equation."""

import pytest
import torch

from gt_models.layers.mlp import MLP, activation


def test_is_its_equation():
    mlp, x = MLP([3, 5, 4, 2], "tanh").double(), torch.randn(6, 3, dtype=torch.float64)
    first, second, third = (layer for layer in mlp if isinstance(layer, torch.nn.Linear))
    hidden = torch.tanh(torch.tanh(x @ first.weight.T + first.bias) @ second.weight.T + second.bias)
    torch.testing.assert_close(mlp(x), hidden @ third.weight.T + third.bias)


def test_unknown_activation_names_the_known_ones():
    with pytest.raises(ValueError, match="known: relu, gelu"):
        activation("mish")
