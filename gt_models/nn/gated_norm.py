"""The closing step of a Polynormer layer, (1 - b) LayerNorm(h * a) + b a (equation 17), in as few passes over memory as it needs."""

import torch
from torch import Tensor


def gated_norm(h: Tensor, a: Tensor, b: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """(1 - b) LayerNorm(h * a; weight, bias, eps) + b a. h, a [N, d]; b, weight, bias [d] -> [N, d].

    Holds h and a for the backward pass and forms their product again there: two tensors of this size instead of six.
    """
    dtype = torch.promote_types(h.dtype, a.dtype)
    return _GatedNorm.apply(h.to(dtype), a.to(dtype), b.to(dtype), weight.to(dtype), bias.to(dtype), eps)


class _GatedNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, h: Tensor, a: Tensor, b: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        # (1 - b) goes into LayerNorm's own weight and bias
        out, mean, rstd = torch.native_layer_norm(h * a, a.shape[1:], (1 - b) * weight, (1 - b) * bias, eps)
        ctx.save_for_backward(h, a, b, weight, bias, mean, rstd)
        return out.addcmul_(a, b)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        h, a, b, weight, bias, mean, rstd = ctx.saved_tensors
        u, kept = h * a, 1 - b
        grad_u, grad_weight, grad_bias = torch.ops.aten.native_layer_norm_backward(
            grad.contiguous(), u, a.shape[1:], mean, rstd, kept * weight, kept * bias, [True, True, True]
        )
        grad_b = torch.mul(grad, a, out=u).sum(0) - grad_weight * weight - grad_bias * bias
        grad_a = torch.mul(grad, b, out=u).addcmul_(grad_u, h)
        return grad_u.mul_(a), grad_a, grad_b, grad_weight * kept, grad_bias * kept, None
