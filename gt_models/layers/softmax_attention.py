"""Softmax attention among the tokens of each graph.

Vaswani et al. 2017, Section 3.2, https://arxiv.org/abs/1706.03762.

out_i = sum_j a_ij v_j      a_ij = softmax_j <q_i, k_j> / sqrt(d_h)      per head, j over the tokens of i's graph
"""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gt_models.layers.accelerated import accelerated
from gt_models.layers.dropout import RateOfDropout
from gt_models.layers.dropout_hash import draw_seed, kept_in_rows
from gt_models.layers.packing import Group, Packing, by_groups


class SoftmaxAttention(nn.Module):
    """Softmax attention of queries, keys and values that are computed already.

    Args:
        num_heads: number of heads H.
        dropout: probability with which a single weight a_ij is dropped.

    Raises:
        ValueError: `dropout` is outside [0, 1).
    """

    def __init__(self, num_heads: int, dropout: float = 0.0):
        super().__init__()
        self.num_heads, self.dropout = num_heads, WeightDropout(dropout)

    @accelerated
    def forward(self, query: Tensor | None, tokens: Tensor, packing: Packing) -> Tensor:
        """What each query receives, [T, d] or [B, d].

        Args:
            query: None, or one query for each graph in the order of `packing.ptr`, [B, d]. Then no graph may be without
                tokens.
            tokens: queries, keys and values next to each other [T, 3 d], or keys and values [T, 2 d] if there is a
                `query`.
            packing: where the tokens of each graph are.
        """
        seed = draw_seed(tokens.device) if self.dropout.active_rate else None
        return softmax_attention(query, tokens, packing, self.num_heads, partial(self.dropout, seed=seed))


class WeightDropout(RateOfDropout):
    """Dropout of attention weights, which a kernel that never holds all weights can repeat.

    A weight is dropped by a hash of a seed, of the number of its query in the batch, of the head, and of the place of
    the key in its graph.

    Args:
        rate: probability of a weight to be dropped.

    Raises:
        ValueError: `rate` is outside [0, 1).
    """

    def forward(self, weights: Tensor, query: Tensor, seed: Tensor | None) -> Tensor:
        """Weights [b, H, L, keys] of the queries with these numbers, long [b, L] -> the same shape.

        As they are for a `seed` of None.
        """
        return weights if seed is None else drop_weights(weights, query, seed, self.rate)


def drop_weights(weights: Tensor, query: Tensor, seed: Tensor, rate: float) -> Tensor:
    """Drops attention weights by a hash.

    Args:
        weights: [b, H, L, keys].
        query: number of each query in the batch, long [b, L].
        seed: long [1].
        rate: share of the weights that is dropped. The others are scaled by 1 / (1 - rate).
    """
    num_heads = weights.size(1)
    rows = query[:, None] * num_heads + torch.arange(num_heads, device=query.device)[:, None]  # [b, H, L]
    return weights * kept_in_rows(seed, rows, weights.size(3), rate) / (1.0 - rate)


def softmax_attention(
    query: Tensor | None,
    tokens: Tensor,
    packing: Packing,
    num_heads: int,
    drop: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    """`SoftmaxAttention.forward`; holds the weights [b, H, L, L] of a group of graphs.

    Args:
        query: as there.
        tokens: as there.
        packing: as there.
        num_heads: H, which divides d.
        drop: dropout, called with weights [b, H, L, keys] and the number of each query in the batch, long [b, L].
    """

    def attend(q: Tensor, k: Tensor, v: Tensor, group: Group, first: int) -> Tensor:
        scores = (q / math.sqrt(q.size(-1))) @ k.transpose(-1, -2)  # [b, H, L or 1, L]
        scores = scores if group.mask is None else scores.masked_fill(~group.mask, -torch.inf)
        numbers = torch.arange(
            first, first + (q.size(0) * q.size(2) if query is not None else group.num_tokens), device=q.device
        )
        if query is None and group.place is not None:
            numbers = numbers.new_zeros(q.size(0) * q.size(2)).index_copy(0, group.place, numbers)
        return drop(scores.softmax(-1), numbers.view(q.size(0), -1)) @ v

    return by_groups(query, tokens, packing, num_heads, attend)


def fused_attention(query: Tensor | None, tokens: Tensor, packing: Packing, num_heads: int, dropout: float) -> Tensor:
    """`softmax_attention` by torch's fused operator, without a tensor of all weights.

    The device's generator draws dropout.

    It has no second derivative, and on a CPU it hides scores that are not finite.
    """

    def attend(q: Tensor, k: Tensor, v: Tensor, group: Group, first: int) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=group.mask, dropout_p=dropout)

    return by_groups(query, tokens, packing, num_heads, attend)
