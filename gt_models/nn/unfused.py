"""An identity that no compiler looks into."""

import torch
from torch import Tensor


@torch.library.custom_op("gt_models::unfused", mutates_args=())
def _unfused(x: Tensor) -> Tensor:
    return x.clone()


_unfused.register_fake(torch.empty_like)
_unfused.register_autograd(lambda ctx, grad: _unfused(grad))


def unfused(x: Tensor) -> Tensor:
    """x, of any shape. In a compiled graph what comes back through it is a tensor of its own before it is added to other gradients.

    torch 2.13's inductor joins the sum of the gradients of two branches with the product that ends one of them (its pattern `addmm`), and gives
    wrong numbers where the other branch gathers rows: on a GPS layer with GCN beside attention a gradient is off by 0.3 of 1.0.
    """
    return _unfused(x) if torch.compiler.is_compiling() and not torch.compiler.is_exporting() else x
