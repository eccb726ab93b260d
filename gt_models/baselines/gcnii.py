"""GCNII (Chen et al. 2020, "Simple and Deep Graph Convolutional Networks") on torch_geometric's GCN2Conv."""

from collections.abc import Sequence
from typing import Literal

from torch import Tensor
from torch_geometric.nn import GCN2Conv

from gt_models.batch import GraphBatch
from gt_models.layers.gnn import GNN, normalised_edges
from gt_models.layers.precision import dtype_of
from gt_models.registry import register_model


@register_model(
    "gcnii", levels=("node", "graph"), cost="m d + n d^2", encodings=("rrwp", "laplacian_eigenvectors"), sparse_x=True
)
class GCNII(GNN):
    """Node [N, out_dim] or graph [B, out_dim].

    Layer l: ((1 - alpha) A x + alpha x_0)((1 - beta_l) I + beta_l W), beta_l = log(theta / l + 1).

    Args:
        in_dim, out_dim, level, hidden_dim, num_layers, dropout, activation, normalisation, residual, pooling, rrwp_dim,
        laplacian_dim:
            see `GNN`.
        alpha: share of the input in each layer.
        theta: how fast layers become the identity.
        shared_weights: one W for both terms (GCNII), or one each (GCNII*).
    """

    def __init__(
        self,
        in_dim: int | Sequence[int],
        out_dim: int,
        level: Literal["node", "graph"],
        hidden_dim: int = 64,
        num_layers: int = 5,
        alpha: float = 0.1,
        theta: float = 0.5,
        shared_weights: bool = True,
        dropout: float = 0.0,
        activation: str = "relu",
        normalisation: Literal["none", "batch", "layer"] = "none",
        residual: bool = False,
        pooling: Literal["sum", "mean", "max"] = "mean",
        rrwp_dim: int = 0,
        laplacian_dim: int = 0,
    ):
        layers = iter(range(1, num_layers + 1))
        super().__init__(
            "gcnii",
            lambda: GCN2Conv(hidden_dim, alpha, theta, next(layers), shared_weights, normalize=False),
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

    def convolve(self, index: int, x: Tensor, first: Tensor, edges: tuple[Tensor, ...]) -> Tensor:
        return self.convs[index](x, first, *edges)

    def edges(self, batch: GraphBatch) -> tuple[Tensor, ...]:
        return normalised_edges(batch, dtype_of(self.head))
