"""Two linear maps with GELU between them, the feed-forward network of a transformer: y = W2 gelu(W1 x + b1) + b2."""

import torch
from torch import Tensor
from torch.nn import functional as F

from gt_models.kernels.dispatch import Form, Operation
from gt_models.kernels.multi_linear import too_small


def reference(x: Tensor, weight1: Tensor, bias1: Tensor, weight2: Tensor, bias2: Tensor) -> Tensor:
    """`x` [rows, in] -> [rows, out], for weights [hidden, in] and [out, hidden] and biases [hidden] and [out]."""
    return F.linear(F.gelu(F.linear(x, weight1, bias1)), weight2, bias2)


def _why_not(x: Tensor, weight1: Tensor, bias1: Tensor, weight2: Tensor, bias2: Tensor) -> str | None:
    return too_small(x, weight1, bias1)


def _example(x: Tensor, *parameters: Tensor) -> tuple[tuple, dict]:
    """Five rows through maps of the same shapes."""
    # weights scaled as in a network: sums of 1,000 numbers of size 1 would differ by more than the tolerance
    drawn = [torch.randn_like(t) / (t.size(1) ** 0.5 if t.dim() == 2 else 1) for t in (x[:0], *parameters)]
    drawn[0] = torch.randn_like(x.new_empty(5, x.size(1)))
    return tuple(t.requires_grad_() for t in drawn), {}


def _numba():
    from gt_models.kernels.gelu_mlp_numba import gelu_mlp

    return gelu_mlp


gelu_mlp = Operation("gelu_mlp", reference, [Form("numba", _numba, _why_not, dtypes=(torch.float32,))], _example)
