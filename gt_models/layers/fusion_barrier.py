"""An identity that no compiler looks into."""

import torch
from torch import Tensor


@torch.library.custom_op("gt_models::fusion_barrier", mutates_args=())
def _fusion_barrier(x: Tensor) -> Tensor:
    return x.clone()


_fusion_barrier.register_fake(torch.empty_like)
_fusion_barrier.register_autograd(lambda ctx, grad: _fusion_barrier(grad))


def fusion_barrier(x: Tensor) -> Tensor:
    """x, of any shape, unchanged. In a compiled graph its gradient is one tensor before it is added to others.

    Works around torch 2.11 to 2.13: inductor's pattern `addmm` fuses the sum of two branches' gradients with the
    matrix product that ends one of them. On a GPS layer with GCN next to attention the gradients are then wrong, by up
    to 0.3 of 1.0 (tests/gt_models/test_compile.py). GIN and GAT next to attention, and Exphormer, are right without it
    today.
    """
    # not `is_exporting`, which torch 2.11 takes for true in every compiled graph
    return _fusion_barrier(x) if torch.compiler.is_dynamo_compiling() else x
