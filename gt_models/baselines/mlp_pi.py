"""Invariant MLP, MLP_pi (Maron et al. 2019), the baseline of Kim et al. 2021, Section 5.

It has the equivariant linear layers of HOT without attention.
"""

from collections.abc import Sequence
from typing import Literal

from torch import Tensor, nn

from gt_models.batch import GraphBatch
from gt_models.hot.encoders import TensorEncoder
from gt_models.hot.equivariant_linear import EquivariantLinear
from gt_models.hot.support import Support
from gt_models.layers.graph_model import GraphModel
from gt_models.layers.mlp import activation as make_activation
from gt_models.layers.precision import dtype_of
from gt_models.layers.settings import at_least
from gt_models.registry import register_model


@register_model("mlp-pi", levels=("graph", "node"), cost="m d^2 (sparse); n^2 d^2 (dense)")
class InvariantMLP(GraphModel):
    """`num_layers` x (L_{2->2}, activation, dropout), then L_{2->0} or L_{2->1} and a Linear.

    Args:
        in_dim, edge_dim, out_dim: as in `HigherOrderTransformer`.
        level: "graph" or "node".
        hidden_dim, num_layers: width; number of layers 2 -> 2.
        dropout: after each activation.
        activation: between layers.
        form: order 2 on the diagonal and the edges ("sparse") or on all pairs ("dense").
        normalize_sums: layers average over a class' entries where Eq. 1 sums (authors: True).
        light: only classes without sums in the layers 2 -> 2.
        global_classes: False drops the classes in which input and output share no node.
        edge_columns, degree_embeddings: see `TensorEncoder`.
    """

    def __init__(
        self,
        in_dim: int | Sequence[int],
        out_dim: int,
        level: str = "graph",
        edge_dim: int | Sequence[int] | None = None,
        hidden_dim: int = 64,
        num_layers: int = 4,
        dropout: float = 0.0,
        activation: Literal["relu", "gelu"] = "relu",
        form: Literal["sparse", "dense"] = "sparse",
        normalize_sums: bool = False,
        light: bool = False,
        global_classes: bool = True,
        edge_columns: Literal["sum", "mean"] = "sum",
        degree_embeddings: int = 0,
    ):
        super().__init__()
        if level not in ("graph", "node"):
            raise ValueError(f"unknown level {level!r}; known: graph, node")
        if form not in ("sparse", "dense"):
            raise ValueError(f"unknown form {form!r}; known: sparse, dense")
        at_least(1, hidden_dim=hidden_dim)
        at_least(0, num_layers=num_layers, degree_embeddings=degree_embeddings)
        self.form = form
        self.input = TensorEncoder(2, in_dim, edge_dim, hidden_dim, edge_columns, degree_embeddings)
        widths = [self.input.width] + [hidden_dim] * num_layers
        self.layers = nn.ModuleList(
            EquivariantLinear(2, 2, width, hidden_dim, light, normalize_sums, global_classes=global_classes)
            for width in widths[:-1]
        )
        self.activation, self.dropout = make_activation(activation), nn.Dropout(dropout)
        l = 0 if level == "graph" else 1
        self.readout = EquivariantLinear(
            2, l, widths[-1], hidden_dim, normalize=normalize_sums, global_classes=global_classes
        )
        self.head = nn.Linear(hidden_dim, out_dim)

    def reset_parameters(self) -> None:
        for module in (self.input, *self.layers, self.readout, self.head):
            module.reset_parameters()

    def forward_features(self, batch: GraphBatch) -> Tensor:
        """[B, hidden_dim] or [N, hidden_dim]."""
        batch = GraphBatch.of(batch)
        support = Support.complete(batch, 2) if self.form == "dense" else Support.sparse(batch)
        values = self.input(batch, support, dtype_of(self.head))  # [rows of order 2, width]
        for layer in self.layers:
            values = self.dropout(self.activation(layer(values, support)))
        return self.readout(values, support)

    def forward_head(self, features: Tensor, batch: GraphBatch) -> Tensor:
        """[B, hidden_dim] -> [B, out_dim], or of nodes [N, hidden_dim] -> [N, out_dim]."""
        return self.head(features)
