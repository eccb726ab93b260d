"""Dropout of attention weights of triples of nodes."""

import torch
from torch import Tensor

from gt_models.batch import GraphBatch
from gt_models.layers.dropout import HashedDropout
from gt_models.layers.dropout_hash import kept_in_rows


class TripleDropout(HashedDropout):
    """Dropout of the weights of triples of nodes: [B, i, l, j, H], padded as in `GraphBatch.pairs_to_dense`."""

    def kept(self, seed: Tensor, weights: Tensor, batch: GraphBatch) -> Tensor:
        """By the number of the pair (i, l), the head and j, [B, i, l, j, H]."""
        pairs = batch.pairs_to_dense(torch.arange(batch.num_pairs, device=weights.device))  # [B, i, l]
        return kept_triples(seed, pairs, weights.size(4), weights.size(3), self.rate)


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
