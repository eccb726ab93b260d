"""GIN without a Linear before or after its layers (Xu et al. 2019, Eq. 4.1), as in the WebKB rows of SpeqNets."""

# mypy: disable-error-code="attr-defined"

from itertools import pairwise

import torch
from torch import Tensor, nn

from gt_models.batch import GraphBatch
from gt_models.layers.features import with_columns
from gt_models.layers.gnn import check_level
from gt_models.layers.graph_model import GraphModel
from gt_models.layers.pooling import pool
from gt_models.layers.precision import dtype_of
from gt_models.registry import register_model


@register_model("gin-bare", levels=("node", "graph"), cost="m d + n d^2", encodings=())
class BareGIN(GraphModel):
    """Node [N, out_dim] or graph [B, out_dim]: `num_layers` times h_i <- MLP(h_i + sum of h_j).

    The first MLP reads the features, the last one gives the outputs. An MLP is Linear, batch norm, ReLU, Linear. A ReLU
    is between two MLPs.

    Args:
        in_dim: width of continuous node features.
        out_dim: targets or classes.
        level: "node" or "graph".
        hidden_dim: width of every other layer.
        num_layers: at least 1.
        pooling: "sum", "mean" or "max" of the last layer's outputs, at graph level.

    Raises:
        ValueError: categorical features, an unknown level or pooling, no layers, or a batch of another width.
    """

    def __init__(
        self, in_dim: int, out_dim: int, level: str, hidden_dim: int = 16, num_layers: int = 2, pooling: str = "sum"
    ):
        super().__init__()
        check_level("gin-bare", level, pooling, num_layers)
        if not isinstance(in_dim, int):
            raise ValueError(f"gin-bare reads continuous node features alone, not categories {list(in_dim)}: use gin")
        self.in_dim, self.level, self.pooling = in_dim, level, pooling
        widths = [in_dim, *[hidden_dim] * (num_layers - 1), out_dim]
        self.mlps = nn.ModuleList(
            nn.Sequential(
                nn.Linear(first, hidden_dim), nn.BatchNorm1d(hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, last)
            )
            for first, last in pairwise(widths)
        )

    def reset_parameters(self) -> None:
        for mlp in self.mlps:
            for layer in mlp:
                if hasattr(layer, "reset_parameters"):
                    layer.reset_parameters()

    def forward_features(self, batch: GraphBatch) -> Tensor:
        """Outputs of the last layer, [N, out_dim]."""
        source, target = batch.edge_index
        x = with_columns(batch.x, self.in_dim).to(dtype_of(self.mlps[0][0]))  # type: ignore[index]
        for i, mlp in enumerate(self.mlps):
            x = mlp(x.index_add(0, target, x[source]))
            x = torch.relu(x) if i < len(self.mlps) - 1 else x
        return x

    def forward_head(self, features: Tensor, batch: GraphBatch) -> Tensor:
        """The last layer's outputs, pooled at graph level: [N, out_dim] -> [B, out_dim] or as they are."""
        return pool(features, batch, self.pooling) if self.level == "graph" else features
