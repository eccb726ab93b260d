"""GraphSAGE (Hamilton et al. 2017, full neighbourhoods) on torch_geometric's SAGEConv."""

from collections.abc import Sequence
from typing import Literal

from torch_geometric.nn import SAGEConv

from gt_models.layers.gnn import GNN
from gt_models.registry import register_model


@register_model(
    "sage", levels=("node", "graph"), cost="m d + n d^2", encodings=("rrwp", "laplacian_eigenvectors"), sparse_x=True
)
class GraphSAGE(GNN):
    """Node [N, out_dim] or graph [B, out_dim].

    A layer is W_1 x_i + W_2 aggregate of the neighbours' x_j; edge features are not used.

    Args:
        in_dim, out_dim, level, hidden_dim, num_layers, dropout, activation, normalisation, residual, pooling, rrwp_dim,
        laplacian_dim:
            see `GNN`.
        aggregation: "mean", "max" or "sum" over neighbours.
        unit_norm: each node's vector is divided by its length after each convolution (the paper's Algorithm 1, line 7).
    """

    def __init__(
        self,
        in_dim: int | Sequence[int],
        out_dim: int,
        level: Literal["node", "graph"],
        hidden_dim: int = 64,
        num_layers: int = 2,
        aggregation: Literal["mean", "max", "sum"] = "mean",
        unit_norm: bool = False,
        dropout: float = 0.0,
        activation: str = "relu",
        normalisation: Literal["none", "batch", "layer"] = "none",
        residual: bool = False,
        pooling: Literal["sum", "mean", "max"] = "mean",
        rrwp_dim: int = 0,
        laplacian_dim: int = 0,
    ):
        if aggregation not in ("mean", "max", "sum"):
            raise ValueError(f"unknown aggregation {aggregation!r}; known: mean, max, sum")
        super().__init__(
            "sage",
            lambda: SAGEConv(hidden_dim, hidden_dim, aggr=aggregation, normalize=unit_norm),
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
