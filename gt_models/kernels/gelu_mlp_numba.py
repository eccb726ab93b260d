"""Two linear maps with GELU between them on the CPU, in float32; backward keeps x, GELU and its slope.

Value and slope come from one power of e: 0.5 ns a number, where torch takes 0.6 for the value and, since it starts
again, 1.6 for the slope.
"""

import math

import numpy as np
import torch
from torch import Tensor

from gt_models.kernels.autocast import without_autocast
from gt_models.kernels.compiled import compiled, exp2, run
from gt_models.kernels.multi_linear import of_weight, product
from gt_models.kernels.once_differentiable import once_differentiable

# erf(z) = 1 - (a1 t + ... + a5 t^5) e^(-z^2), t = 1 / (1 + p z), z >= 0, to 1.5e-7 (Abramowitz and Stegun 1964, 7.1.26)
P = np.float32(0.3275911 / math.sqrt(2))
A5, A4, A3, A2, A1 = (np.float32(a / 2) for a in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592))
BLOCK = 64  # numbers: threads get whole vectors, since LLVM rounds what is left over in another way
ZERO, ONE, LOG2E_HALF, DENSITY = (
    np.float32(0),
    np.float32(1),
    np.float32(math.log2(math.e) / 2),
    np.float32(1 / math.sqrt(2 * math.pi)),
)


class _GELUMLP(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, weight1: Tensor, bias1: Tensor, weight2: Tensor, bias2: Tensor) -> Tensor:
        hidden = product(x, weight1, bias1)
        slope = torch.empty_like(hidden)
        run(_gelu, -(-hidden.numel() // BLOCK), hidden.view(-1), slope.view(-1), grain=2**14 // BLOCK)
        ctx.save_for_backward(x, hidden, slope, weight1, weight2)
        return product(hidden, weight2, bias2)

    @staticmethod
    @once_differentiable
    @without_autocast
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, hidden, slope, weight1, weight2 = ctx.saved_tensors
        inside = product(grad, weight2.t()).mul_(slope)
        grad_x = product(inside, weight1.t()) if ctx.needs_input_grad[0] else None
        return grad_x, of_weight(inside, x), inside.sum(0), of_weight(grad, hidden), grad.sum(0)


gelu_mlp = _GELUMLP.apply


@compiled
def _gelu(begin, end, x, slope):
    """`x` Phi(x) in place of x, and Phi(x) + x Phi'(x), in blocks `begin` to `end`."""
    # from 0 on: an index that may be negative keeps loops out of vectors
    x, slope = x[BLOCK * begin : BLOCK * end], slope[BLOCK * begin : BLOCK * end]
    for i in range(len(x)):
        t = ONE / (ONE + P * abs(x[i]))
        density = exp2(-x[i] * x[i] * LOG2E_HALF)
        beyond = ((((A5 * t + A4) * t + A3) * t + A2) * t + A1) * t * density  # 1 - Phi(|x|)
        below = beyond if x[i] < ZERO else ONE - beyond
        slope[i] = below + x[i] * density * DENSITY
        x[i] *= below
