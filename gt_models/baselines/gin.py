"""Graph isomorphism network (Xu et al. 2019), and GINE (Hu et al. 2020) with edge features."""

from collections.abc import Sequence
from typing import Any, Literal

from torch import nn
from torch_geometric.nn import GINEConv

from gt_models.batch import GraphBatch
from gt_models.layers.convolutions import SumAndSelf
from gt_models.layers.csr import csr_edges
from gt_models.layers.gnn import GNN
from gt_models.registry import register_model


@register_model(
    "gin", levels=("node", "graph"), cost="m d + n d^2", encodings=("rrwp", "laplacian_eigenvectors"), sparse_x=True
)
class GIN(GNN):
    """Node [N, out_dim] or graph [B, out_dim].

    GIN-0: MLP(x_i + sum of x_j); with edge features (GINE) MLP(x_i + sum of relu(x_j + e_ij)).

    Args:
        in_dim, out_dim, level, edge_dim, hidden_dim, num_layers, dropout, activation, normalisation, residual, pooling,
        rrwp_dim, laplacian_dim:
            see `GNN`.
        mlp_norm: batch norm in the MLP, between its two Linears.
        train_eps: (1 + eps) x_i with a learnt eps (GIN-eps) instead of GIN-0.
        readout: "last" layer, or "all" layers and the input, side by side (the paper's Eq. 4.2).
    """

    def __init__(
        self,
        in_dim: int | Sequence[int],
        out_dim: int,
        level: Literal["node", "graph"],
        edge_dim: int | Sequence[int] | None = None,
        hidden_dim: int = 64,
        num_layers: int = 5,
        mlp_norm: bool = True,
        train_eps: bool = False,
        readout: Literal["last", "all"] = "last",
        dropout: float = 0.0,
        activation: str = "relu",
        normalisation: Literal["none", "batch", "layer"] = "batch",
        residual: bool = False,
        pooling: Literal["sum", "mean", "max"] = "sum",
        rrwp_dim: int = 0,
        laplacian_dim: int = 0,
    ):
        if readout not in ("last", "all"):
            raise ValueError(f"unknown readout {readout!r}; known: last, all")

        def layer() -> nn.Module:
            norm = nn.BatchNorm1d(hidden_dim) if mlp_norm else nn.Identity()
            mlp = nn.Sequential(nn.Linear(hidden_dim, hidden_dim), norm, nn.ReLU(), nn.Linear(hidden_dim, hidden_dim))
            return SumAndSelf(mlp, train_eps) if edge_dim is None else GINEConv(mlp, train_eps=train_eps)

        super().__init__(
            "gin",
            layer,
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
            all_layers=readout == "all",
        )

    def edges(self, batch: GraphBatch) -> tuple[Any, ...]:
        return (csr_edges(batch, self_loops=False),) if self.edge_encoder is None else super().edges(batch)
