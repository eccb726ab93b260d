"""The feed-forward network by its equation."""

import pytest
import torch

from gt_models.edge_transformer import FeedForward


def relu(x: torch.Tensor) -> torch.Tensor:
    return x.clamp(min=0)


def gelu(x: torch.Tensor) -> torch.Tensor:
    return x * (1 + torch.erf(x / 2**0.5)) / 2


@pytest.mark.parametrize("act", [relu, gelu])
def test_is_its_equation(act):
    part, x = FeedForward(3, 5, act.__name__, 0.0).double(), torch.randn(7, 3, dtype=torch.float64)
    expected = act(x @ part.hidden.weight.T + part.hidden.bias) @ part.out.weight.T + part.out.bias
    torch.testing.assert_close(part(x), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("act", ["relu", "gelu"])
def test_dropout_falls_between_the_layers_in_training_alone(act):
    part, x = FeedForward(3, 64, act, 0.5), torch.ones(2, 3)
    dropped = torch.stack([part.train()(x) for _ in range(8)])
    assert not torch.equal(dropped[0], dropped[1])
    assert torch.equal(part.eval()(x), part(x))
