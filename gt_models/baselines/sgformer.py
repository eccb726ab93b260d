"""SGFormer (Wu et al., NeurIPS 2023, https://arxiv.org/abs/2306.10759).

One layer of linear attention over all nodes in parallel to a GCN.
"""

# mypy: disable-error-code="operator"

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from gt_models.batch import GraphBatch
from gt_models.layers.csr import csr_edges
from gt_models.layers.features import FeatureEncoder
from gt_models.layers.gcn_sum import gcn_sum
from gt_models.layers.graph_model import GraphModel
from gt_models.registry import register_model


@register_model(
    "sgformer",
    levels=("node",),
    cost="m d + n d^2",
    paper="Wu et al.: SGFormer: Simplifying and Empowering Transformers for Large-Graph Representations, NeurIPS "
    "2023. https://arxiv.org/abs/2306.10759",
    sparse_x=True,
)
class SGFormer(GraphModel):
    """Node [N, out_dim]: Linear(w G + (1 - w) T).

    Both branches begin with Linear, norm, ReLU, dropout of the features, x_0; n is the graph's nodes:

        T   x <- dropout(norm((mean_h((n v_i + sum_j q_i k_j v_j) / (n + sum_j q_i k_j)) + x) / 2))
        G   x <- dropout(relu(norm(Linear(sum_j x_j / sqrt(d_i d_j))))) + x_0

    T has layer norm, heads h as wide as x, and q and k divided by their lengths over all nodes and heads. G has batch
    norm; its sum is over neighbours and the node itself.

    torch_geometric's SGFormer is another model: it divides each q_i and k_i by its own length, and has a ReLU after
    each norm in T.

    Args:
        in_dim: width of continuous node features, or vocabulary sizes of categorical columns.
        out_dim: classes.
        level: "node".
        hidden_dim: width d.
        num_attention_layers, num_layers: layers of T and of G.
        num_heads: of T.
        graph_weight: w.
        dropout: in G.
        attention_branch_dropout: in T.
        activation: a ReLU after each norm in T.

    Raises:
        ValueError: another level, no layer, no head, or a weight outside of 0 .. 1.
    """

    def __init__(
        self,
        in_dim: int | Sequence[int],
        out_dim: int,
        level: Literal["node"] = "node",
        hidden_dim: int = 64,
        num_attention_layers: int = 1,
        num_layers: int = 3,
        num_heads: int = 1,
        graph_weight: float = 0.5,
        dropout: float = 0.5,
        attention_branch_dropout: float = 0.5,
        activation: bool = False,
    ):
        super().__init__()
        if level != "node":
            raise ValueError(f"sgformer cannot predict at level {level!r}; it predicts: node")
        if min(num_layers, num_attention_layers, num_heads) < 1:
            raise ValueError(
                f"sgformer needs layers and heads, not {num_layers}, {num_attention_layers} and {num_heads}"
            )
        if not 0 <= graph_weight <= 1:
            raise ValueError(f"graph_weight {graph_weight} is outside of 0 .. 1")
        self.num_heads, self.graph_weight, self.activation = num_heads, graph_weight, activation
        self.attention_encoder, self.graph_encoder = (
            FeatureEncoder(in_dim, hidden_dim),
            FeatureEncoder(in_dim, hidden_dim),
        )
        self.queries, self.keys, self.values = (
            nn.ModuleList(nn.Linear(hidden_dim, hidden_dim * num_heads) for _ in range(num_attention_layers))
            for _ in range(3)
        )
        self.attention_norms = nn.ModuleList(nn.LayerNorm(hidden_dim) for _ in range(num_attention_layers + 1))
        self.convs = nn.ModuleList(nn.Linear(hidden_dim, hidden_dim) for _ in range(num_layers))
        self.graph_norms = nn.ModuleList(nn.BatchNorm1d(hidden_dim) for _ in range(num_layers + 1))
        self.dropout, self.attention_dropout = nn.Dropout(dropout), nn.Dropout(attention_branch_dropout)
        self.head = nn.Linear(hidden_dim, out_dim)

    def reset_parameters(self) -> None:
        lists = (self.queries, self.keys, self.values, self.attention_norms, self.convs, self.graph_norms)
        for module in [
            self.attention_encoder,
            self.graph_encoder,
            *(m for modules in lists for m in modules),
            self.head,
        ]:
            module.reset_parameters()

    def forward_features(self, batch: GraphBatch) -> Tensor:
        """Both branches, weighted: [N, d]."""
        return self.graph_weight * self._graph(batch) + (1 - self.graph_weight) * self._attention(batch)  # [N, d]

    def _attention(self, batch: GraphBatch) -> Tensor:
        x = self.attention_dropout(self.attention_norms[0](self.attention_encoder(batch.x)).relu())
        for query, key, value, norm in zip(self.queries, self.keys, self.values, self.attention_norms[1:], strict=True):
            x = norm((self._attend(query(x), key(x), value(x), batch) + x) / 2)
            x = self.attention_dropout(x.relu() if self.activation else x)
        return x

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, batch: GraphBatch) -> Tensor:
        """[N, H d] each -> [N, d]; padding is zero and adds nothing."""
        q, k, v = (batch.to_dense(t).unflatten(2, (self.num_heads, -1)) for t in (q, k, v))  # [B, n, H, d]
        q, k = (t / t.flatten(1).norm(dim=1).clamp(min=1e-12)[:, None, None, None] for t in (q, k))
        nodes = batch.sizes[:, None, None]
        above = torch.einsum("bnhc,bhcd->bnhd", q, torch.einsum("bnhc,bnhd->bhcd", k, v)) + nodes[..., None] * v
        below = torch.einsum("bnhc,bhc->bnh", q, k.sum(1)) + nodes
        return batch.from_dense((above / below[..., None]).mean(2))

    def _graph(self, batch: GraphBatch) -> Tensor:
        edges = csr_edges(batch)
        x = first = self.dropout(self.graph_norms[0](self.graph_encoder(batch.x)).relu())
        for conv, norm in zip(self.convs, self.graph_norms[1:], strict=True):
            x = self.dropout(norm(conv(gcn_sum(x, edges)[0].to(x.dtype))).relu()) + first
        return x

    def forward_head(self, features: Tensor, batch: GraphBatch) -> Tensor:
        """[N, d] -> [N, out_dim]."""
        return self.head(features)
