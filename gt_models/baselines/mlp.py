"""Multi-layer perceptron on node features alone: what a graph's edges add is measured against it."""

# mypy: disable-error-code="assignment"

from collections.abc import Sequence
from typing import Literal

from torch import Tensor, nn

from gt_models.batch import GraphBatch
from gt_models.layers.features import FeatureEncoder
from gt_models.layers.gnn import check_level
from gt_models.layers.graph_model import GraphModel
from gt_models.layers.mlp import MLP, activation
from gt_models.layers.pooling import pool
from gt_models.registry import register_model


@register_model("mlp", levels=("node", "graph"), cost="n d^2", sparse_x=True)
class MLPBaseline(GraphModel):
    """Feature encoder, `num_layers` hidden layers, (pooling,) Linear: node [N, out_dim] or graph [B, out_dim].

    Args:
        in_dim: width of continuous node features, or vocabulary sizes of categorical columns.
        out_dim: targets or classes.
        level: "node" or "graph".
        hidden_dim: width of the hidden layers.
        num_layers: hidden layers, the feature encoder counted as the first.
        dropout: after each activation.
        activation: "relu", "gelu", ... (`gt_models.layers.mlp.ACTIVATIONS`).
        pooling: "sum", "mean" or "max", at graph level.
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
        pooling: Literal["sum", "mean", "max"] = "mean",
    ):
        super().__init__()
        check_level("mlp", level, pooling, num_layers)
        self.level, self.pooling = level, pooling
        self.encoder = FeatureEncoder(in_dim, hidden_dim)
        self.hidden = nn.Sequential(hidden_activation(activation), nn.Dropout(dropout))
        if num_layers > 1:
            self.mlp = MLP([hidden_dim] * num_layers, activation, dropout)
            self.hidden_out = nn.Sequential(hidden_activation(activation), nn.Dropout(dropout))
        else:
            self.mlp = self.hidden_out = None
        self.head = nn.Linear(hidden_dim, out_dim)

    def reset_parameters(self) -> None:
        for module in (self.encoder, self.mlp, self.head):
            if module is not None:
                module.reset_parameters()

    def forward_features(self, batch: GraphBatch) -> Tensor:
        """Nodes after the hidden layers, [N, d]."""
        x = self.hidden(self.encoder(batch.x))  # [N, d]
        return x if self.mlp is None else self.hidden_out(self.mlp(x))  # [N, d]

    def forward_head(self, features: Tensor, batch: GraphBatch) -> Tensor:
        """Pooled at graph level, then the head: [N, d] -> [B, out_dim] or [N, out_dim]."""
        if self.level == "graph":
            features = pool(features, batch, self.pooling)  # [B, d]
        return self.head(features)


hidden_activation = activation  # the constructor's argument shadows the function
