"""Gated graph convolutions with edge states, as Dwivedi et al. benchmark them."""

# mypy: disable-error-code="arg-type"

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from gt_models.batch import GraphBatch
from gt_models.layers.features import FeatureEncoder
from gt_models.layers.gnn import check_level
from gt_models.layers.graph_model import GraphModel
from gt_models.layers.mlp_head import MLPHead
from gt_models.layers.pooling import pool
from gt_models.registry import register_model


@register_model(
    "gatedgcn",
    levels=("graph", "node"),
    cost="m d + (n + m) d^2",
    encodings=(),
    paper="Bresson and Laurent: Residual Gated Graph ConvNets, 2017. https://arxiv.org/abs/1711.07553; "
    "Dwivedi et al.: Benchmarking Graph Neural Networks, JMLR 2023. https://arxiv.org/abs/2003.00982",
)
class GatedGCN(GraphModel):
    """Graph [B, out_dim] or node [N, out_dim].

    Each layer, for a node i and an edge ij (Dwivedi et al., Appendix B):

        e^_ij = C e_ij + D h_j + E h_i
        h_i <- h_i + relu(norm(A h_i + sum_j sigma(e^_ij) B h_j / (sum_j sigma(e^_ij) + 1e-6)))
        e_ij <- e_ij + relu(norm(e^_ij))

    Args:
        in_dim, edge_dim: node and edge features (see `FeatureEncoder`).
        out_dim: targets or classes.
        level: "graph" or "node".
        edge_features: False, or no `edge_dim`: all edges begin with one learned vector.
        hidden_dim: width of nodes and edges.
        num_layers: layers.
        dropout: of both states, after each layer.
        batch_norm: of both states.
        pooling: "sum", "mean" or "max", at graph level.
        head_layers: hidden layers of the head, each half as wide as the one before.

    Raises:
        ValueError: an unknown level or pooling, no layer, and a batch without the edge features that it was built for.
    """

    def __init__(
        self,
        in_dim: int | Sequence[int],
        out_dim: int,
        level: Literal["graph", "node"] = "graph",
        edge_dim: int | Sequence[int] | None = None,
        edge_features: bool = True,
        hidden_dim: int = 70,
        num_layers: int = 4,
        dropout: float = 0.0,
        batch_norm: bool = True,
        pooling: Literal["sum", "mean", "max"] = "mean",
        head_layers: int = 2,
    ):
        super().__init__()
        check_level("gatedgcn", level, pooling, num_layers)
        self.level, self.pooling = level, pooling
        self.encoder = FeatureEncoder(in_dim, hidden_dim)
        self.edge_encoder = FeatureEncoder(edge_dim, hidden_dim) if edge_features and edge_dim is not None else None
        self.edge_start = nn.Linear(1, hidden_dim) if self.edge_encoder is None else None  # of the constant 1
        self.layers = nn.ModuleList(GatedGCNLayer(hidden_dim, dropout, batch_norm) for _ in range(num_layers))
        self.head = MLPHead(hidden_dim, out_dim, "halving", head_layers)

    def reset_parameters(self) -> None:
        for module in [self.encoder, self.edge_encoder, self.edge_start, *self.layers, self.head]:
            if module is not None:
                module.reset_parameters()

    def forward_features(self, batch: GraphBatch) -> Tensor:
        """Nodes after the last layer, [N, d].

        Raises:
            ValueError: edge features are missing.
        """
        h = self.encoder(batch.x)  # [N, d]
        if self.edge_encoder is not None:
            e = self.edge_encoder(batch.edge_features())  # [E, d]
        else:
            e = self.edge_start(h.new_ones(batch.edge_index.size(1), 1))  # type: ignore[misc]  # [E, d]
        for layer in self.layers:
            h, e = layer(h, e, batch.edge_index)
        return h

    def forward_head(self, features: Tensor, batch: GraphBatch) -> Tensor:
        """Pooled at graph level, then the head: [N, d] -> [B, out_dim] or [N, out_dim]."""
        return self.head(pool(features, batch, self.pooling) if self.level == "graph" else features)


class GatedGCNLayer(nn.Module):
    """(h [N, d], e [E, d], edge_index [2, E]) -> the next h and e; an edge (j, i) sends from j to i."""

    def __init__(self, dim: int, dropout: float, batch_norm: bool):
        super().__init__()
        self.A, self.B, self.C, self.D, self.E = (nn.Linear(dim, dim) for _ in range(5))
        self.node_norm = nn.BatchNorm1d(dim) if batch_norm else nn.Identity()
        self.edge_norm = nn.BatchNorm1d(dim) if batch_norm else nn.Identity()
        self.dropout = nn.Dropout(dropout)

    def reset_parameters(self) -> None:
        for module in [self.A, self.B, self.C, self.D, self.E, self.node_norm, self.edge_norm]:
            if not isinstance(module, nn.Identity):
                module.reset_parameters()

    def forward(self, h: Tensor, e: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
        """`h` [N, d], e [E, d], edge_index [2, E] -> the next h and e, of the same shapes."""
        source, target = edge_index
        gates = self.C(e) + self.D(h)[source] + self.E(h)[target]  # [E, d]
        opened = gates.sigmoid()
        summed = torch.zeros_like(h).index_add(0, target, opened * self.B(h)[source])  # [N, d]
        total = torch.zeros_like(h).index_add(0, target, opened)  # [N, d]
        nodes, edges = self.A(h) + summed / (total + 1e-6), gates
        if edges.size(0):  # a batch norm has no mean over no edges
            edges = self.edge_norm(edges)
        h = h + self.node_norm(nodes).relu()
        e = e + edges.relu()
        return self.dropout(h), self.dropout(e)
