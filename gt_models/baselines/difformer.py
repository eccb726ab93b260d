"""DIFFormer (Wu et al., ICLR 2023, https://arxiv.org/abs/2301.09474).

Steps of diffusion in which every node hears all others and its neighbours.
"""

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
    "difformer",
    levels=("node",),
    cost="m d + n d^2, or n^2 d with the sigmoid",
    paper="Wu et al.: DIFFormer: Scalable (Graph) Transformers Induced by Energy Constrained Diffusion, ICLR 2023. "
    "https://arxiv.org/abs/2301.09474",
    sparse_x=True,
)
class DIFFormer(GraphModel):
    """Node [N, out_dim].

    Linear, norm, ReLU, dropout; then `num_layers` times

        u = mean_h(sum_j s(q_i, k_j) v_j / sum_j s(q_i, k_j) + sum_j v_j / sqrt(d_i d_j))
        x <- dropout(norm(alpha u + (1 - alpha) x))

    over heads h, each as wide as x; the first sum is over all nodes of the graph, the second over neighbours and the
    node itself, which d counts too. s is 1 + q k^T of q and k divided by their lengths over all nodes and heads
    ("simple", linear in nodes), or sigmoid(q k^T).

    Args:
        in_dim: width of continuous node features, or vocabulary sizes of categorical columns.
        out_dim: classes.
        level: "node".
        hidden_dim: width of x and of each head.
        num_layers: steps.
        num_heads: heads, which are averaged.
        kernel: "simple" (DIFFormer-s) or "sigmoid" (DIFFormer-a).
        alpha: length of a step.
        dropout: after the input layer and each step.

    Raises:
        ValueError: another level, an unknown kernel, no layer or no head.
    """

    def __init__(
        self,
        in_dim: int | Sequence[int],
        out_dim: int,
        level: Literal["node"] = "node",
        hidden_dim: int = 64,
        num_layers: int = 2,
        num_heads: int = 1,
        kernel: Literal["simple", "sigmoid"] = "simple",
        alpha: float = 0.5,
        dropout: float = 0.5,
    ):
        super().__init__()
        if level != "node":
            raise ValueError(f"difformer cannot predict at level {level!r}; it predicts: node")
        if kernel not in ("simple", "sigmoid"):
            raise ValueError(f"unknown kernel {kernel!r}; known: simple, sigmoid")
        if num_layers < 1 or num_heads < 1:
            raise ValueError(f"difformer needs at least one layer and one head, not {num_layers} and {num_heads}")
        self.kernel, self.alpha, self.num_heads = kernel, alpha, num_heads
        self.encoder, self.dropout = FeatureEncoder(in_dim, hidden_dim), nn.Dropout(dropout)
        self.queries, self.keys, self.values = (
            nn.ModuleList(nn.Linear(hidden_dim, hidden_dim * num_heads) for _ in range(num_layers)) for _ in range(3)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(hidden_dim) for _ in range(num_layers + 1))
        self.head = nn.Linear(hidden_dim, out_dim)

    def reset_parameters(self) -> None:
        for module in [self.encoder, *self.queries, *self.keys, *self.values, *self.norms, self.head]:
            module.reset_parameters()

    def forward_features(self, batch: GraphBatch) -> Tensor:
        """Nodes after the last layer, [N, d]."""
        edges = csr_edges(batch)
        x = self.dropout(self.norms[0](self.encoder(batch.x)).relu())  # [N, d]
        for query, key, value, norm in zip(self.queries, self.keys, self.values, self.norms[1:], strict=True):
            q, k, v = query(x), key(x), value(x)  # [N, H d]
            received = self._from_all(q, k, v, batch) + gcn_sum(v, edges)[0].to(x.dtype)
            update = received.unflatten(1, (self.num_heads, -1)).mean(1)  # [N, d]
            x = self.dropout(norm(self.alpha * update + (1 - self.alpha) * x))
        return x

    def _from_all(self, q: Tensor, k: Tensor, v: Tensor, batch: GraphBatch) -> Tensor:
        """Attention over all nodes of the graph, [N, H d]; padding is zero and adds nothing."""
        q, k, v = (batch.to_dense(t).unflatten(2, (self.num_heads, -1)) for t in (q, k, v))  # [B, n, H, d]
        if self.kernel == "simple":
            q, k = (t / t.flatten(1).norm(dim=1).clamp(min=1e-12)[:, None, None, None] for t in (q, k))
            above = torch.einsum("bnhc,bhcd->bnhd", q, torch.einsum("bnhc,bnhd->bhcd", k, v)) + v.sum(1, keepdim=True)
            below = torch.einsum("bnhc,bhc->bnh", q, k.sum(1)) + batch.sizes[:, None, None]
            out = above / below[..., None]
        else:
            weight = torch.einsum("bnhc,bmhc->bhnm", q, k).sigmoid() * batch.node_mask[:, None, None]  # [B, H, n, n]
            out = torch.einsum("bhnm,bmhd->bnhd", weight / weight.sum(3, keepdim=True), v)
        return batch.from_dense(out.flatten(2))

    def forward_head(self, features: Tensor, batch: GraphBatch) -> Tensor:
        """[N, d] -> [N, out_dim]."""
        return self.head(features)
