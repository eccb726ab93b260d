"""A linear map of rows, y = x W^T + b.

By oneDNN, as `multi_linear`; the gradients of weight and bias come from one pass over x and the gradient of y, which
copies neither.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from gt_models.kernels.dispatch import Form, Operation


def reference(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`x` [rows, in] -> [rows, out] for a weight [out, in] and a bias [out] or None."""
    return F.linear(x, weight, bias)


def too_small(x: Tensor, weight: Tensor, *_: Tensor | None) -> str | None:
    """Why products of oneDNN are not faster or not available; None if they are."""
    if not torch.backends.mkldnn.is_available() or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return "no oneDNN in this torch"
    if torch.is_autocast_enabled(x.device.type):
        return "autocast is on"
    if len(weight) % 4:
        return "an output of no multiple of four"
    return (
        "fewer than 2^20 multiplications: its calls cost more than torch's" if x.numel() * len(weight) < 2**20 else None
    )


def _example(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> tuple[tuple, dict]:
    """Five rows through a map of the same shape."""
    rows = x.new_empty(5, x.size(1))
    return tuple(None if t is None else torch.randn_like(t).requires_grad_() for t in (rows, weight, bias)), {}


def _numba():
    from gt_models.kernels.row_linear_numba import row_linear

    return row_linear


row_linear = Operation("row_linear", reference, [Form("numba", _numba, too_small, dtypes=(torch.float32,))], _example)
