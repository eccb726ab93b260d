"""Graph attention network (Velickovic et al. 2018) and GATv2 (Brody et al. 2022).

GATv2, edge features and dropout of attention weights use torch_geometric's layers.
"""

from collections.abc import Sequence
from typing import Any, Literal

from torch import Tensor, nn
from torch_geometric.nn import GATConv, GATv2Conv

from gt_models.batch import GraphBatch
from gt_models.layers.convolutions import GraphAttention
from gt_models.layers.csr import csr_edges
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
        without_messages = version == "v1" and edge_dim is None and not attn_dropout

        def convolution() -> nn.Module:
            if without_messages:
                return GraphAttention(hidden_dim, hidden_dim, num_heads, bias=True)
            return layer(*shape, dropout=attn_dropout, add_self_loops=False, edge_dim=edge_width)

        super().__init__(
            "gat",
            convolution,
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
        self.self_loops, self.without_messages = self_loops, without_messages

    def edges(self, batch: GraphBatch) -> tuple[Any, ...]:
        if self.without_messages:
            return (csr_edges(batch, self.self_loops),)
        edges = super().edges(batch)
        return with_self_loops(batch.x, *edges) if self.self_loops else edges

    def convolve(self, index: int, x: Tensor, first: Tensor, edges: tuple[Any, ...]) -> Tensor:
        if self.self_loops and not self.without_messages:
            return attend(self.convs[index], x, edges)
        return super().convolve(index, x, first, edges)
