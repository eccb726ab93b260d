"""A loss that a layer adds has its gradient, and does not change the output or the gradient of the output."""

import torch

from gt_models.layers.added_loss import add_loss


def test_the_gradient_is_that_of_the_sum():
    weight, x = torch.randn(3, dtype=torch.float64, requires_grad=True), torch.randn(5, 3, dtype=torch.float64)

    def parts() -> tuple[torch.Tensor, torch.Tensor]:
        return x @ weight, weight.square().sum() * 0.7

    output, term = parts()
    (expected,) = torch.autograd.grad(output.cos().mean() + term, weight)
    output, term = parts()
    same = add_loss(output, term)
    assert torch.equal(same, output)
    (found,) = torch.autograd.grad(same.cos().mean(), weight)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_in_transforms_of_torch_func():
    x = torch.randn(4, 5, 3, dtype=torch.float64)

    def loss(weight: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return add_loss(x @ weight, weight.square().sum() * 0.7).cos().mean()

    weight = torch.randn(3, dtype=torch.float64, requires_grad=True)
    per_sample = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(weight.detach(), x)
    for found, one in zip(per_sample, x, strict=True):
        (expected,) = torch.autograd.grad(loss(weight, one), weight)
        torch.testing.assert_close(found, expected)
