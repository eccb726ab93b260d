"""A term of the loss that comes from within a model, in addition to the task's loss on its output."""

import torch
from torch import Tensor


def add_loss(output: Tensor, term: Tensor) -> Tensor:
    """`output` [...] as it is, whose backward pass also gives the gradient of the scalar `term`, with weight one.

    Whatever loss is taken of the output, `loss.backward()` leaves the gradients of loss + term; the value of the loss,
    as it is reported, is that without it. Not where gradients are scaled before the backward pass, which the term is
    not.
    """
    return _Added.apply(output, term)


class _Added(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(output: Tensor, term: Tensor) -> Tensor:
        return output.view_as(output)

    @staticmethod
    def setup_context(ctx, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        """Nothing is stored: the gradients depend on no input."""

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, Tensor]:
        return gradient, gradient.new_ones(())
