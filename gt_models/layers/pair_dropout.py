"""Dropout of attention weights of pairs of nodes."""

import torch
from torch import Tensor

from gt_models.batch import GraphBatch
from gt_models.layers.dropout import HashedDropout
from gt_models.layers.dropout_hash import kept_at


class PairDropout(HashedDropout):
    """Dropout of the weights of pairs of nodes: [B, H, n, n], query before key."""

    def kept(self, seed: Tensor, weights: Tensor, batch: GraphBatch) -> Tensor:
        """By the number of the pair and the head, [B, H, n, n]."""
        seed = seed.to(weights.device, non_blocking=True)
        keep = kept_pairs(seed, batch.num_pairs, weights.size(1), self.rate)  # [P, H]
        return batch.pairs_to_dense(keep.to(weights.dtype)).permute(0, 3, 1, 2)


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
