"""The feed-forward network by its equation."""

import torch

from gt_models.edge_transformer.feed_forward import FeedForward


def test_is_its_equation():
    part, x = FeedForward(3, 5, "relu", 0.0).double(), torch.randn(7, 3, dtype=torch.float64)
    expected = (x @ part.hidden.weight.T + part.hidden.bias).clamp(min=0) @ part.out.weight.T + part.out.bias
    torch.testing.assert_close(part(x), expected, rtol=1e-12, atol=1e-12)


def test_dropout_falls_between_the_layers_in_training_alone():
    part, x = FeedForward(3, 64, "relu", 0.5), torch.ones(2, 3)
    dropped = torch.stack([part.train()(x) for _ in range(8)])
    assert not torch.equal(dropped[0], dropped[1])
    assert torch.equal(part.eval()(x), part(x))
