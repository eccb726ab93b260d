"""Graph attention network (Velickovic et al. 2018) and GATv2 (Brody et al. 2022) on torch_geometric's layers."""

from collections.abc import Sequence
from typing import Literal

from torch import Tensor
from torch_geometric.nn import GATConv, GATv2Conv

from gt_models.batch import GraphBatch
from gt_models.layers.gnn import GNN
from gt_models.layers.self_loops import attend, with_self_loops
from gt_models.layers.settings import check_rates
from gt_models.registry import register_model


@register_model(
    "gat", levels=("node", "graph"), cost="m d + n d^2", encodings=("rrwp", "laplacian_eigenvectors"), sparse_x=True
)
class GAT(GNN):
    """Node [N, out_dim] or graph [B, out_dim]. Heads side by side in every layer, hidden_dim / num_heads channels each.

    Args:
        in_dim, out_dim, level, edge_dim, hidden_dim, num_layers, dropout, activation, normalisation, residual, pooling,
        rrwp_dim, laplacian_dim:
            see `GNN`.
        num_heads: must divide `hidden_dim`.
        version: "v1" (GAT) or "v2" (GATv2).
        attn_dropout: on attention weights.
        self_loops: each node attends to itself too (with edge features: the mean of those of its incoming edges).
    """

    def __init__(
        self,
        in_dim: int | Sequence[int],
        out_dim: int,
        level: Literal["node", "graph"],
        edge_dim: int | Sequence[int] | None = None,
        hidden_dim: int = 64,
        num_layers: int = 2,
        num_heads: int = 1,
        version: Literal["v1", "v2"] = "v1",
        attn_dropout: float = 0.0,
        self_loops: bool = True,
        dropout: float = 0.0,
        activation: str = "relu",
        normalisation: Literal["none", "batch", "layer"] = "none",
        residual: bool = False,
        pooling: Literal["sum", "mean", "max"] = "mean",
        rrwp_dim: int = 0,
        laplacian_dim: int = 0,
    ):
        if num_heads < 1 or hidden_dim % num_heads:
            raise ValueError(
                f"hidden_dim {hidden_dim} does not split into {num_heads} heads: choose a multiple of num_heads"
            )
        if version not in ("v1", "v2"):
            raise ValueError(f"unknown version {version!r}; known: v1, v2")
        check_rates(attn_dropout=attn_dropout)  # torch_geometric's layers check it in training alone
        layer, edge_width = GATConv if version == "v1" else GATv2Conv, None if edge_dim is None else hidden_dim
        # unstated: heads of the last layer; side by side as in the others, since a Linear follows (the paper averages
        # them in its place)
        shape = (hidden_dim, hidden_dim // num_heads, num_heads)
        super().__init__(
            "gat",
            lambda: layer(*shape, dropout=attn_dropout, add_self_loops=False, edge_dim=edge_width),
            in_dim=in_dim,
            out_dim=out_dim,
            level=level,
            edge_dim=edge_dim,
            hidden_dim=hidden_dim,
            num_layers=num_layers,
            dropout=dropout,
            activation=activation,
            normalisation=normalisation,
            residual=residual,
            pooling=pooling,
            rrwp_dim=rrwp_dim,
            laplacian_dim=laplacian_dim,
        )
        self.self_loops = self_loops

    def edges(self, batch: GraphBatch) -> tuple[Tensor, ...]:
        edges = super().edges(batch)
        return with_self_loops(batch.x, *edges) if self.self_loops else edges

    def convolve(self, index: int, x: Tensor, first: Tensor, edges: tuple[Tensor, ...]) -> Tensor:
        return attend(self.convs[index], x, edges) if self.self_loops else super().convolve(index, x, first, edges)
