"""Dropout for large CPU tensors: torch draws one Bernoulli number per entry, on one thread, which costs more than the layer around it."""

import torch
from torch import Tensor, nn

from gt_models.kernels.dropout import draw_seed, drop, drop_sparse


class Dropout(nn.Module):
    """Zeroes entries with probability `rate` while training and scales the others by 1 / (1 - rate).

    On the CPU, in float32 and float64, an entry's fate is a hash of its position and of one seed from torch's generator: nothing is kept
    for the backward pass and the result does not depend on the number of threads; sparse rows drop what the same numbers in a dense matrix
    do. Elsewhere it is torch's dropout.
    Raises ValueError for a rate outside [0, 1).
    """

    def __init__(self, rate: float = 0.0):
        super().__init__()
        if not 0.0 <= rate < 1.0:
            raise ValueError(f"dropout {rate} is outside [0, 1)")
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        """Entries of any shape -> the same shape; as they are outside of training."""
        if not self.training or self.rate == 0.0:
            return x
        if x.device.type != "cpu" or x.dtype not in (torch.float32, torch.float64):
            return nn.functional.dropout(x, self.rate)
        if x.layout == torch.sparse_csr:
            return drop_sparse(x, draw_seed(), self.rate)
        return drop(x, draw_seed(), self.rate)

    def extra_repr(self) -> str:
        return f"rate={self.rate}"
