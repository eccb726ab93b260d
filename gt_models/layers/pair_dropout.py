"""Dropout of attention weights of pairs of nodes, without a mask that is stored."""

import torch
from torch import Tensor

from gt_models.batch import GraphBatch
from gt_models.layers.dropout import RateOfDropout
from gt_models.layers.dropout_hash import draw_seed, kept_at


class PairDropout(RateOfDropout):
    """Drops single weights with probability `rate` while training and scales the others by 1 / (1 - rate).

    What is dropped is a hash of one number from torch's CPU generator, of the pair and the head, on every device: it
    does not depend on padding, and a kernel that never holds all weights drops the same.

    Raises:
        ValueError: `rate` is outside [0, 1).
    """

    def forward(self, weights: Tensor, batch: GraphBatch) -> Tensor:
        """Weights [B, H, n, n], query before key -> the same shape; as they are outside of training."""
        if not self.active_rate:
            return weights
        seed = draw_seed().to(weights.device, non_blocking=True)
        keep = kept_pairs(seed, batch.num_pairs, weights.size(1), self.rate)  # [P, H]
        return weights * batch.pairs_to_dense(keep.to(weights.dtype)).permute(0, 3, 1, 2) / (1 - self.rate)


def kept_pairs(seed: Tensor, num_pairs: int, num_heads: int, rate: float) -> Tensor:
    """Which weights stay, bool [P, H].

    Args:
        seed: long [1].
        num_pairs: P, number of pairs of the batch.
        num_heads: H.
        rate: the share that is dropped.
    """
    place = torch.arange(num_pairs * num_heads, device=seed.device)
    return kept_at(seed, place, rate).view(num_pairs, num_heads)
