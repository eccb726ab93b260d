"""PPGT on one large graph as its authors released it (Node2Subgraph, Appendix B.4), https://github.com/LiamMa/PPGT.

Each node is predicted from the subgraph around it, in which it carries a mark, through a class token. There are no
degrees and no order; branches are scaled.
"""

# mypy: disable-error-code="operator"

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gt_models.batch import GraphBatch
from gt_models.layers.drop_path import DropPath
from gt_models.layers.settings import at_least, check_rates
from gt_models.layers.signature import with_arguments_of
from gt_models.ppgt import PAPER
from gt_models.registry import register_model
from gt_models.released.ppgt import PPGTReleased

# what it never varies
FIXED = {
    "edge_dim": None, "urpe": True, "edge_vector": False, "pooling": "class-attention", "head": "constant",
    "degree": False, "node_order": False, "position_dim": 0, "stem_ffn_init": "truncated", "stem_norm": False,
    "pool_norm": False, "out_norm": False,
}  # fmt: skip


@register_model(
    "ppgt-node2subgraph-released", levels=("graph",), cost="n^2 d", encodings=("rrwp", "target"), paper=PAPER
)
class Node2SubgraphReleased(PPGTReleased):
    """Predicts [B, out_dim] from subgraphs whose node encoding "target" [N, 1] is 1 at the node to predict, else 0.

    Args:
        stem_drop_path: rate of stochastic depth in the stem, drawn per graph and FFN block.
        head_dropout: rate of dropout before each linear layer of the head.
        node_mask_rate: probability with which a node's embedded features are zeroed in training.
        layer_scale, stem_layer_scale: initial scale of the branches of backbone and class attention, and of the
            stem's FFN blocks.
        class_attention_layers: layers through which the class token reads the nodes.
        The others: see `PPGTReleased`.
    """

    @with_arguments_of(
        PPGTReleased,
        *FIXED,
        hidden_dim=192,
        num_layers=10,
        rrwp_dim=11,
        stem_dim=192,
        pair_dim=96,
        layer_scale=1e-5,
        head_layers=1,
    )
    def __init__(
        self,
        stem_drop_path: float = 0.0,
        head_dropout: float = 0.0,
        node_mask_rate: float = 0.0,
        stem_layer_scale: float = 1e-5,
        class_attention_layers: int = 2,
        **released: Any,
    ):
        at_least(1, class_attention_layers=class_attention_layers)
        check_rates(node_mask_rate=node_mask_rate)
        self.class_attention_layers, self.node_mask_rate = class_attention_layers, node_mask_rate
        super().__init__(**released, **FIXED)
        hidden_dim = released["hidden_dim"]
        self.stem.scale_branches(stem_layer_scale)
        self.stem_drop_path, self.head_dropout = DropPath(stem_drop_path), nn.Dropout(head_dropout)
        self.target_vector = nn.Parameter(torch.empty(hidden_dim))
        nn.init.trunc_normal_(self.target_vector, std=0.02)

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if hasattr(self, "target_vector"):
            nn.init.trunc_normal_(self.target_vector, std=0.02)

    def embed_nodes(self, batch: GraphBatch) -> Tensor:
        """Embedded node features, [N, hidden_dim]; in training those of some nodes are zeroed."""
        x = super().embed_nodes(batch)
        if self.training and self.node_mask_rate > 0.0:
            x = x * (torch.rand_like(x[:, :1]) >= self.node_mask_rate)
        return x

    def encode_nodes(self, batch: GraphBatch) -> Tensor:
        """As in `PPGTReleased`, with a learnt vector added to the node to predict: nodes [N, hidden_dim]."""
        x = super().encode_nodes(batch)
        return x + batch.encoding("target", 1).to(x.dtype) * self.target_vector

    def keep_branches(self, batch: GraphBatch) -> Tensor | None:
        """Stochastic depth of the stem, drawn per graph and FFN block, [P, blocks]; None without FFN blocks."""
        ones = self.target_vector.new_ones(batch.num_graphs, 1)
        keep = [self.stem_drop_path(ones) for _ in self.stem.blocks]
        return torch.cat(keep, 1)[batch.batch[batch.pair_nodes[0]]] if keep else None

    def predict(self, h: Tensor) -> Tensor:
        """The head, with dropout before each layer: [B, hidden_dim] -> [B, out_dim]."""
        h = self.pool_norm(h)
        for i, linear in enumerate(self.head):
            h = linear(self.head_dropout(F.gelu(h) if i else h))
        return self.out_norm(h)
