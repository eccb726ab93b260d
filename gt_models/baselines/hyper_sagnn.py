"""Hyper-SAGNN (Zhang, Zou and Ma, ICLR 2020, https://arxiv.org/abs/1911.02613).

It compares a node of a hyperedge alone with the same node among the others. This is the form with the encoder,
Hyper-SAGNN-E.
"""

# mypy: disable-error-code="operator"

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gt_models.batch import GraphBatch
from gt_models.hot.encoders import make_encoder
from gt_models.hot.head import hyperedge_index
from gt_models.hot.support import Support
from gt_models.layers.graph_model import GraphModel
from gt_models.layers.precision import dtype_of, widened
from gt_models.layers.settings import at_least
from gt_models.registry import register_model


@register_model("hyper-sagnn", levels=("hyperedge",), cost="n d + h d^2 for h hyperedges")
class HyperSAGNN(GraphModel):
    """Logits [H, out_dim] of hyperedges (Sections 3.2 and 3.3).

    With x_i the vector of node i:

        dynamic_i = norm(FFN(y_i) + y_i) with y_i = W sum_{j != i} softmax_j(q_i . k_j / sqrt(c)) v_j, multi-head
        static_i  = norm(FFN'(x_i))
        p = mean_i sigmoid(a . (norm(dynamic_i) - norm(static_i))^2 + b),     and the logit is log p - log(1 - p)

    q, k and v are Linears of three norms of x; an FFN is Linear, tanh, dropout, Linear.

    Args:
        in_dim: width of node features, or vocabulary sizes of categorical columns.
        out_dim: columns of the output.
        level: "hyperedge" (`batch.extras["hyperedge_index"]`, long [H, hyperedge_order]).
        hidden_dim: width of node vectors.
        num_heads, head_dim: of attention.
        message_dropout: of y.
        dropout: within an FFN.
        hyperedge_order: nodes of a hyperedge.
        node_encoder: as in `HigherOrderTransformer`; "cooccurrence" is the paper's.

    Raises:
        ValueError: another level, hyperedges of one node, or an unknown node encoder.
    """

    def __init__(
        self,
        in_dim: int | Sequence[int],
        out_dim: int,
        level: Literal["hyperedge"] = "hyperedge",
        hidden_dim: int = 64,
        num_heads: int = 8,
        head_dim: int = 16,
        message_dropout: float = 0.3,
        dropout: float = 0.4,
        hyperedge_order: int = 3,
        node_encoder: Literal["features", "cooccurrence"] = "cooccurrence",
    ):
        super().__init__()
        if level != "hyperedge":
            raise ValueError(f"hyper-sagnn cannot predict at level {level!r}; it predicts: hyperedge")
        if hyperedge_order < 2:
            raise ValueError(
                "a node is compared with the others of its hyperedge: hyperedge_order is at least 2, not "
                f"{hyperedge_order}"
            )
        at_least(1, hidden_dim=hidden_dim, num_heads=num_heads, head_dim=head_dim)
        self.level, self.order, self.num_heads, self.head_dim = level, hyperedge_order, num_heads, head_dim
        # deviates: entries of a node are dropped once per step, and all nodes are reconstructed; the authors do both
        # for each node of a batch as often as it occurs there
        self.input = make_encoder(node_encoder, 1, in_dim, None, hidden_dim)
        dim, inner = self.input.width, num_heads * head_dim
        self.query_norm, self.key_norm, self.value_norm = (nn.LayerNorm(dim) for _ in range(3))
        self.query, self.key, self.value = (nn.Linear(dim, inner, bias=False) for _ in range(3))
        self.out, self.message_dropout = nn.Linear(inner, dim, bias=False), nn.Dropout(message_dropout)
        self.dynamic, self.static = (
            nn.Sequential(nn.Linear(dim, dim), nn.Tanh(), nn.Dropout(dropout), nn.Linear(dim, dim)) for _ in range(2)
        )
        self.inner_norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(2))
        self.outer_norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(2))
        self.head = nn.Linear(dim, out_dim)
        self._reset_projections()

    def reset_parameters(self) -> None:
        for module in [
            self.input,
            self.query_norm,
            self.key_norm,
            self.value_norm,
            self.out,
            *self.inner_norms,
            *self.outer_norms,
            self.head,
        ]:
            module.reset_parameters()
        for linear in (self.dynamic[0], self.dynamic[3], self.static[0], self.static[3]):
            linear.reset_parameters()
        self._reset_projections()

    def _reset_projections(self) -> None:
        for linear in (self.query, self.key, self.value):
            nn.init.normal_(linear.weight, std=(2 / (linear.in_features + self.head_dim)) ** 0.5)

    def forward_features(self, batch: GraphBatch) -> Tensor:
        """(norm(dynamic) - norm(static))^2 of each node of each hyperedge, [H, order, d]."""
        index = hyperedge_index(batch, self.order)  # [H, order]
        x = self.input(batch, Support(batch), dtype_of(self.head))[index]
        y = self.message_dropout(self.out(self._attend(x)))
        dynamic = self.inner_norms[0](self.dynamic(y) + y)
        static = self.inner_norms[1](self.static(x))
        return (self.outer_norms[0](dynamic) - self.outer_norms[1](static)).square()

    def _attend(self, x: Tensor) -> Tensor:
        """Of each node to the others of its hyperedge: [H, order, d] -> [H, order, heads * head_dim]."""
        norms = (self.query_norm, self.key_norm, self.value_norm)
        q, k, v = (
            linear(norm(x)).unflatten(2, (self.num_heads, self.head_dim)).transpose(1, 2)
            for norm, linear in zip(norms, (self.query, self.key, self.value), strict=True)
        )  # [H, heads, order, head_dim]
        others = ~torch.eye(self.order, dtype=torch.bool, device=x.device)
        scores = (q / self.head_dim**0.5) @ k.mT
        return (scores.masked_fill(~others, -torch.inf).softmax(-1) @ v).transpose(1, 2).flatten(2)

    def forward_head(self, features: Tensor, batch: GraphBatch) -> Tensor:
        """Squared differences of each hyperedge's nodes -> logits [H, out_dim]."""
        # a loss takes logits: both logarithms of means, without 1 - p
        score = widened(self.head(features))  # [H, order, out]
        return (F.logsigmoid(score).logsumexp(1) - F.logsigmoid(-score).logsumexp(1)).to(dtype_of(self.head))
