"""Dropout of attention weights of triples of nodes, without a mask that is stored."""

import torch
from torch import Tensor

from gt_models.batch import GraphBatch
from gt_models.layers.dropout import RateOfDropout
from gt_models.layers.dropout_hash import draw_seed, kept_in_rows


class TripleDropout(RateOfDropout):
    """Drops single weights A_ilj with probability `rate` while training and scales the others by 1 / (1 - rate).

    What is dropped is a hash of one number from torch's generator, of the pair (i, l), the head and j: it does not
    depend on padding, and a kernel that never holds all weights drops the same.

    Raises:
        ValueError: `rate` is outside [0, 1).
    """

    def forward(self, weights: Tensor, batch: GraphBatch) -> Tensor:
        """Weights [B, i, l, j, H], padded as in `GraphBatch.pairs_to_dense` -> the same shape.

        As they are outside of training.
        """
        if not self.active_rate:
            return weights
        pairs = batch.pairs_to_dense(torch.arange(batch.num_pairs, device=weights.device))  # [B, i, l]
        keep = kept_triples(draw_seed(), pairs, weights.size(4), weights.size(3), self.rate)
        return weights * keep / (1 - self.rate)


def kept_triples(seed: Tensor, pairs: Tensor, num_heads: int, num_columns: int, rate: float) -> Tensor:
    """Which weights stay, bool [B, i, l, j, H].

    Args:
        seed: long [1].
        pairs: numbers of the pairs (i, l), long [B, i, l].
        num_heads: H.
        num_columns: number of nodes j.
        rate: the share that is dropped.
    """
    rows = pairs[..., None] * num_heads + torch.arange(num_heads, device=pairs.device)  # [B, i, l, H]
    return kept_in_rows(seed, rows, num_columns, rate).transpose(-1, -2)
