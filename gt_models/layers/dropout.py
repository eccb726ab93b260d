"""Dropout that needs no mask for its backward pass."""

import torch
from torch import Tensor, nn

from gt_models.batch import GraphBatch
from gt_models.layers.accelerated import accelerated
from gt_models.layers.dropout_hash import draw_seed, kept, kept_at


class RateOfDropout(nn.Module):
    """Base of dropout modules: a rate that acts while the module itself is in training mode.

    Args:
        rate: probability of an entry to be dropped.

    Raises:
        ValueError: `rate` is outside [0, 1).
    """

    def __init__(self, rate: float = 0.0):
        super().__init__()
        if not 0.0 <= rate < 1.0:
            raise ValueError(f"dropout {rate} is outside [0, 1)")
        self.rate = rate

    @property
    def active_rate(self) -> float:
        """`rate` in training, else 0."""
        return self.rate if self.training else 0.0

    def extra_repr(self) -> str:
        return f"rate={self.rate}"


class HashedDropout(RateOfDropout):
    """Drops single attention weights while training and scales the others by 1 / (1 - rate).

    What is dropped is a hash of one number from torch's CPU generator and of the place of the weight in the batch, on
    every device. It does not depend on padding, and a kernel that never holds all weights drops the same. No mask is
    stored. In a compiled graph the generator is that of its device.

    Args:
        rate: probability of a weight to be dropped.

    Raises:
        ValueError: `rate` is outside [0, 1).
    """

    def forward(self, weights: Tensor, batch: GraphBatch) -> Tensor:
        """Weights of a batch -> the same shape; as they are outside of training."""
        if not self.active_rate:
            return weights
        return weights * self.kept(draw_seed(weights.device), weights, batch) / (1 - self.rate)

    def kept(self, seed: Tensor, weights: Tensor, batch: GraphBatch) -> Tensor:
        """1 or True for the weights that stay, else 0 or False: of the shape of `weights`; `seed` is long [1]."""
        raise NotImplementedError


class Dropout(RateOfDropout):
    """Zeroes entries with probability `rate` in training and scales the others by 1 / (1 - rate).

    On the CPU, in float32 and float64, an entry is dropped by a hash of its position and of one seed from torch's
    generator. Hence no mask is stored for the backward pass, the result does not depend on the number of threads, and a
    sparse matrix drops what the same dense matrix drops. Elsewhere it is torch's dropout.

    Args:
        rate: probability of an entry to be dropped.

    Raises:
        ValueError: `rate` is outside [0, 1).
    """

    def forward(self, x: Tensor) -> Tensor:
        """Entries of any shape -> the same shape; x itself outside of training."""
        return self.drop(x) if self.active_rate else x

    @accelerated
    def drop(self, x: Tensor) -> Tensor:
        """`forward` in training."""
        if x.device.type != "cpu" or x.dtype not in (torch.float32, torch.float64):
            return nn.functional.dropout(x, self.rate)
        if x.layout == torch.sparse_csr:
            return drop_sparse(x, draw_seed(), self.rate)
        return drop_entries(x, draw_seed(), self.rate)


def drop_entries(x: Tensor, seed: Tensor, rate: float) -> Tensor:
    """`x` / (1 - rate) where an entry survives, else 0: x of any shape, `seed` long [1], 0 <= rate < 1."""
    keep = kept(seed.to(x.device, non_blocking=True), x.numel(), rate).view(x.shape)
    return torch.where(keep, x * (1 / (1 - rate)), torch.zeros_like(x))


def drop_sparse(x: Tensor, seed: Tensor, rate: float) -> Tensor:
    """`drop_entries` of a matrix in compressed sparse rows; zeros stay zeros. It has no gradient."""
    ptr, col, values = x.crow_indices(), x.col_indices(), x.values()
    row = torch.repeat_interleave(torch.arange(x.size(0), device=x.device), ptr.diff(), output_size=len(col))
    keep = kept_at(seed.to(x.device, non_blocking=True), row * x.size(1) + col, rate)
    values = torch.where(keep, values * (1 / (1 - rate)), torch.zeros_like(values))
    return torch.sparse_csr_tensor(ptr, col, values, size=x.shape, check_invariants=False)
