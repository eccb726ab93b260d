"""Second derivatives through a fast form are refused, also by `torch.autograd.grad`."""

import pytest
import torch

from gt_models.kernels.once_differentiable import once_differentiable


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 3 * x.square() * grad


def test_the_first_derivative_is_computed():
    x = torch.tensor(2.0, requires_grad=True)
    (slope,) = torch.autograd.grad(Cube.apply(x), x)
    assert slope == 12
    assert not slope.requires_grad


def test_the_second_is_refused_before_a_wrong_number_is_computed():
    x = torch.tensor(2.0, requires_grad=True)
    for loss in (Cube.apply(x), x * Cube.apply(x)):
        with pytest.raises(RuntimeError, match=r'Cube: .*use\("reference"\)'):
            torch.autograd.grad(loss, x, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.functional.hessian(lambda x: x * Cube.apply(x), x)
