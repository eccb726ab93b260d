"""Graph isomorphism network (Xu et al. 2019) on torch_geometric's GINConv, and GINE (Hu et al. 2020) where edges have features."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from torch import Tensor, nn
from torch_geometric.nn import GINConv, GINEConv

from gt_models.batch import GraphBatch
from gt_models.nn.node_wise import NodeWise
from gt_models.registry import register_model


@register_model("gin", levels=("node", "graph"), cost="m d + n d^2", encodings=("rrwp", "laplacian_eigenvectors"))
class GIN(NodeWise):
    """Node [N, out_dim] or graph [B, out_dim]. GIN-0: MLP(x_i + sum of x_j); with edge features (GINE) MLP(x_i + sum of relu(x_j + e_ij)).

    Args:
        in_dim, out_dim, level, edge_dim, hidden_dim, num_layers, dropout, activation, normalisation, residual, pooling, rrwp_dim, laplacian_dim:
            see `NodeWise`.
        mlp_norm: batch norm in the MLP, between its two Linears.
        train_eps: (1 + eps) x_i with a learnt eps (GIN-eps) instead of GIN-0.
        readout: "last" layer, or "all" layers and the input, side by side (the paper's Eq. 4.2).
        bare: no Linear before the first layer and none after the last: the first MLP reads the features, the last one ends in the outputs
            (the form that stands behind the WebKB rows of SpeqNets). For continuous node features alone.

    Raises ValueError for what a bare model has no place for: encodings, edge features, residuals, readout "all", categories.
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
        bare: bool = False,
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

        def layer(first: int = hidden_dim, last: int = hidden_dim) -> nn.Module:
            norm = nn.BatchNorm1d(hidden_dim) if mlp_norm else nn.Identity()
            mlp = nn.Sequential(nn.Linear(first, hidden_dim), norm, nn.ReLU(), nn.Linear(hidden_dim, last))
            return GINConv(mlp, train_eps=train_eps) if edge_dim is None else GINEConv(mlp, train_eps=train_eps)

        super().__init__(
            "gin",
            layer,
            in_dim,
            out_dim,
            level,
            edge_dim,
            hidden_dim,
            num_layers,
            dropout,
            activation,
            normalisation,
            residual,
            pooling,
            rrwp_dim,
            laplacian_dim,
            all_layers=readout == "all",
        )
        self.bare = bare
        if bare:
            if not isinstance(in_dim, int) or edge_dim is not None or residual or rrwp_dim or laplacian_dim or readout == "all":
                raise ValueError(
                    "a bare GIN reads continuous node features alone: give an integer in_dim, no edge_dim, no residual, "
                    "rrwp_dim 0, laplacian_dim 0 and readout 'last'"
                )
            self.in_dim = in_dim
            widths = [in_dim, *[hidden_dim] * (num_layers - 1), out_dim]
            self.convs = nn.ModuleList(layer(*pair) for pair in pairwise(widths))
            self.encoder = self.head = nn.Identity()
            self.norms = self.norms[:-1]

    def forward_features(self, batch: GraphBatch) -> Tensor:
        if not self.bare:
            return super().forward_features(batch)
        if batch.x.size(1) != self.in_dim:
            raise ValueError(f"features of shape {tuple(batch.x.shape)} given to a model built for {self.in_dim} columns")
        x = batch.x.to(next(self.parameters()).dtype)
        for conv, norm in zip(self.convs, self.norms):  # all but the last
            x = self.dropout(self.activation(norm(conv(x, batch.edge_index))))
        return self.convs[-1](x, batch.edge_index)
