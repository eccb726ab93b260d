"""Multi-head self-attention over padded graphs, softmax or Performer."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gt_models.batch import GraphBatch
from gt_models.nn.performer import RandomFeatures, performer_attention


class PaddedAttention(nn.Module):
    """[B, n, d] -> [B, n, d], scaled by d_h^-1/2.

    Args:
        hidden_dim, num_heads: d and H; raises ValueError unless H divides d.
        attn_dropout: on attention weights; must be 0 for the Performer, which has none.
        attention: "softmax" or "performer" (FAVOR+); num_features, redraw_interval: its random features, see `RandomFeatures`.
    """

    def __init__(
        self,
        hidden_dim: int,
        num_heads: int,
        attn_dropout: float = 0.0,
        attention: str = "softmax",
        num_features: int | None = None,
        redraw_interval: int | None = 1000,
    ):
        super().__init__()
        if attention not in ("softmax", "performer"):
            raise ValueError(f"unknown attention {attention!r}; known: softmax, performer")
        if num_heads < 1 or hidden_dim % num_heads:
            raise ValueError(f"hidden_dim {hidden_dim} does not split into {num_heads} heads: choose a multiple of num_heads")
        if attention == "performer" and attn_dropout:
            raise ValueError(f"attn_dropout {attn_dropout} with Performer attention, which has no weights to drop: set attn_dropout to 0")
        self.num_heads, self.attn_dropout = num_heads, attn_dropout
        self.qkv, self.out = nn.Linear(hidden_dim, 3 * hidden_dim), nn.Linear(hidden_dim, hidden_dim)
        self.features = RandomFeatures(hidden_dim // num_heads, num_features, redraw_interval) if attention == "performer" else None
        self.counts_forwards = attention == "performer"

    def reset_parameters(self) -> None:
        for module in (self.qkv, self.out, self.features):
            if module is not None:
                module.reset_parameters()

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """`mask`: bool [B, 1, 1, n], True at keys that are seen. No row may be without a key."""
        q, k, v = self.qkv(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)  # [B, H, n, d_h] each
        if self.features is None:
            out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=self.attn_dropout if self.training else 0.0)
        else:
            self.features.step()
            out = performer_attention(q, k, v, self.features, mask)
        return self.out(out.transpose(1, 2).flatten(2))


def key_mask(batch: GraphBatch) -> Tensor:
    """True at nodes, bool [B, 1, 1, n]; at the first place of an empty graph too, so that no softmax is over nothing."""
    mask = batch.node_mask  # [B, n]
    first = torch.arange(batch.max_nodes, device=mask.device) == 0
    return (mask | (first & (batch.sizes == 0)[:, None]))[:, None, None]
