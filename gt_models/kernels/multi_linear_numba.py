"""Several linear maps of the same rows on the CPU, by oneDNN, whose products take the widest vectors of any processor.

MKL, torch's own library for them, takes those of AMD's for half as wide as they are: 112 GFLOP/s on a thread where
these reach 185 to 240 (EPYC of family 26, rows of 64 to 768 numbers). Of narrow maps a kernel forms the gradients of
weight and bias, which copies neither side.
"""

import torch
from torch import Tensor

from gt_models.kernels.autocast import without_autocast
from gt_models.kernels.once_differentiable import once_differentiable
from gt_models.kernels.row_linear_numba import parameter_gradients, product

# numbers of a row; the kernel's gradient of 10,000 rows of 64 takes 0.41 ms and oneDNN's 0.59, of 512 29.4 and 27.9
NARROW = 256


class _MultiLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, *parameters: Tensor | None) -> tuple[Tensor, ...]:
        count = len(parameters) // 2
        ctx.save_for_backward(x, *parameters[:count])
        ctx.biases = [b is not None for b in parameters[count:]]
        return tuple(
            product(x, w, b) for w, b in zip(parameters[:count], parameters[count:], strict=True) if w is not None
        )

    @staticmethod
    @once_differentiable
    @without_autocast
    def backward(ctx, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, *weights = ctx.saved_tensors
        grad_x = None
        if ctx.needs_input_grad[0]:
            grad_x = product(grads[0], weights[0].t())
            for grad, weight in zip(grads[1:], weights[1:], strict=True):
                grad_x = torch.ops.mkldnn._linear_pointwise.binary(grad, grad_x, weight.t(), None, "add")
        found = [_of_parameters(grad, x) for grad in grads]
        return (
            grad_x,
            *[weight for weight, _ in found],
            *[bias if b else None for (_, bias), b in zip(found, ctx.biases, strict=True)],
        )


multi_linear = _MultiLinear.apply


def _of_parameters(grad: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of weight and bias."""
    if x.size(1) <= NARROW and grad.size(1) <= NARROW and grad.size(1) % 4 == 0:
        return parameter_gradients(grad, x)
    return product(grad.t(), x.t()), grad.sum(0)
