"""HOT as its authors released it, https://github.com/jw9730/hot (hot_pytorch/models)."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from gt_models.batch import GraphBatch
from gt_models.hot import COST, LEVELS, PAPER, HigherOrderAttention, HigherOrderTransformer
from gt_models.hot.attention import ByClass, scaled_projection
from gt_models.hot.encoders import make_encoder
from gt_models.hot.equivalence_classes import EquivalenceClass, distinct
from gt_models.hot.head import PredictionHead
from gt_models.hot.support import Support
from gt_models.layers.performer import RandomFeatures
from gt_models.layers.settings import at_least, check_rates
from gt_models.layers.signature import with_arguments_of
from gt_models.registry import register_model


class ReleasedAttention(HigherOrderAttention):
    """`HigherOrderAttention` with what the released code does otherwise."""

    normalize = True  # lightweight layers to order 0 average over stored entries, where Eq. (1) sums

    def key_blocks(self, c: EquivalenceClass) -> tuple[int, ...]:
        """Keys are computed at a class' summed nodes alone, where Proposition 1 has them at the whole input tuple."""
        return c.free

    def sums_all_patterns(self, c: EquivalenceClass) -> bool:
        """Kernel sums over row or column neighbours contain the diagonal entry, which Eq. (21) leaves out."""
        return self.attention == "kernel" and len(c.input_pattern) > 1 and bool(c.shared)

    def key_stabilizers(self, keys: ByClass, support: Support, features: RandomFeatures) -> ByClass:
        """One maximum over all keys of one order in the whole call; the authors' zero padding takes part in it."""
        most: dict[int, Tensor] = {}
        for c in self.classes:
            o = len(self.key_blocks(c))
            projected = scaled_projection(keys[c], features)
            if o == 2 and support.spare is not None:
                projected = projected.masked_fill(support.spare[support.sets[o].rows[distinct(o)], None, None], 0.0)
            largest = projected.amax() if projected.numel() else projected.new_zeros(())
            most[o] = largest.clamp(min=0.0) if o not in most else torch.maximum(most[o], largest)
        return {c: most[len(self.key_blocks(c))] for c in self.classes}


@register_model("hot-released", levels=LEVELS, cost=COST, paper=f"{PAPER}, as released: https://github.com/jw9730/hot")
class ReleasedHigherOrderTransformer(HigherOrderTransformer):
    """`HigherOrderTransformer` with what the released code does otherwise.

    Args:
        kernel: every published cell of the kernel form ran "generalized".
        readout_dim, readout_heads: query, key and value width and heads of the last layer where l = 0; None as in the
            other layers.
        input_dropout: after the input map.
        head_dims: None: LN and Linear to `out_dim`; else LN, Linear(d, d) and an MLP of these hidden widths with ReLU.
        head_diagonal: pairs: each layer of that MLP adds a second linear on the diagonal (Delaunay sets).
        head_dropout: after each ReLU of that MLP.
        degree_embeddings: rows of each of two tables of in-degrees added to embedded nodes (PCQM4M: 512); 0 for none.
        others: see `HigherOrderTransformer`.
    """

    attention_class, activation = ReleasedAttention, "gelu"  # Eq. (8) prints ReLU

    @with_arguments_of(HigherOrderTransformer, kernel="generalized")
    def __init__(
        self,
        readout_dim: int | None = None,
        readout_heads: int | None = None,
        input_dropout: float = 0.0,
        head_dims: Sequence[int] | None = None,
        head_diagonal: bool = False,
        head_dropout: float = 0.0,
        degree_embeddings: int = 0,
        **paper: Any,
    ):
        at_least(1, readout_dim=readout_dim, readout_heads=readout_heads)
        at_least(0, degree_embeddings=degree_embeddings)
        check_rates(head_dropout=head_dropout)
        self.readout_dim, self.readout_heads, self.degree_embeddings = readout_dim, readout_heads, degree_embeddings
        self.head_dims, self.head_diagonal, self.head_dropout = head_dims, head_diagonal, head_dropout
        super().__init__(**paper)
        self.input_dropout = nn.Dropout(input_dropout)

    def make_input(
        self, encoder: str, in_dim: int | Sequence[int], edge_dim: int | Sequence[int] | None, hidden_dim: int
    ) -> nn.Module:
        """Embeddings of an edge's columns are averaged, and in-degrees are embedded (on PCQM4M)."""
        return make_encoder(encoder, self.k, in_dim, edge_dim, hidden_dim, "mean", self.degree_embeddings)

    def last_widths(self, qk_dim: int, v_dim: int, num_heads: int) -> tuple[int, int, int]:
        """The readout to order 0 has widths and heads of its own (regression/examples/pcqm4m-lsc/enc.sh)."""
        if self.level != "graph":
            return qk_dim, v_dim, num_heads
        return self.readout_dim or qk_dim, self.readout_dim or v_dim, self.readout_heads or num_heads

    def make_head(self, hidden_dim: int, out_dim: int) -> nn.Module:
        """An MLP after the layer norm and a Linear of unchanged width."""
        return PredictionHead(
            hidden_dim, out_dim, self.head_dims, self.head_diagonal and self.level == "pair", self.head_dropout
        )

    def embed(self, batch: GraphBatch, support: Support) -> Tensor:
        """Dropout after the input map: an argument of the released code."""
        return self.input_dropout(super().embed(batch, support))
