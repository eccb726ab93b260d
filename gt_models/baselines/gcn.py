"""Graph convolutional network (Kipf and Welling 2017) with the options of benchmark baselines."""

from collections.abc import Sequence
from typing import Literal

from gt_models.batch import GraphBatch
from gt_models.layers.convolutions import GraphConvolution
from gt_models.layers.csr import Edges, csr_edges
from gt_models.layers.gnn import GNN
from gt_models.registry import register_model


@register_model(
    "gcn", levels=("node", "graph"), cost="m d + n d^2", encodings=("rrwp", "laplacian_eigenvectors"), sparse_x=True
)
class GCN(GNN):
    """Node [N, out_dim] or graph [B, out_dim]. Each node has exactly one self-loop. Edge features are not used.

    Args:
        in_dim, out_dim, level, hidden_dim, num_layers, dropout, activation, normalisation, residual, pooling, rrwp_dim,
        laplacian_dim:
            see `GNN`.
    """

    def __init__(
        self,
        in_dim: int | Sequence[int],
        out_dim: int,
        level: Literal["node", "graph"],
        hidden_dim: int = 64,
        num_layers: int = 2,
        dropout: float = 0.0,
        activation: str = "relu",
        normalisation: Literal["none", "batch", "layer"] = "none",
        residual: bool = False,
        pooling: Literal["sum", "mean", "max"] = "mean",
        rrwp_dim: int = 0,
        laplacian_dim: int = 0,
    ):
        super().__init__(
            "gcn",
            lambda: GraphConvolution(hidden_dim, hidden_dim),
            in_dim=in_dim,
            out_dim=out_dim,
            level=level,
            edge_dim=None,
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

    def edges(self, batch: GraphBatch) -> tuple[Edges]:
        return (csr_edges(batch),)
