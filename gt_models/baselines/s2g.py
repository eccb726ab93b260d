"""Set2Graph, S2G and S2G+ (Serviansky et al. 2020), the baselines of Kim et al. 2021, Section 5.

Equivariant linear layers L_{1->1}, then L_{1->2} (pairs) or L_{1->3} (hyperedges), and an MLP on the result.
"""

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gt_models.batch import GraphBatch
from gt_models.hot.encoders import make_encoder
from gt_models.hot.equivariant_linear import EquivariantLinear
from gt_models.hot.head import hyperedge_index
from gt_models.hot.support import Support
from gt_models.layers.graph_model import GraphModel
from gt_models.layers.mlp import MLP
from gt_models.layers.precision import dtype_of
from gt_models.layers.settings import at_least
from gt_models.registry import register_model


@register_model("s2g", levels=("pair", "hyperedge"), cost="n^2 d^2 (pairs); (n + h) d^2 for h hyperedges")
class SetToGraph(GraphModel):
    """L_{1->1} with ReLU through `set_dims`, broadcast to pairs or hyperedges, MLP through `pair_dims`.

    Args:
        in_dim: width of node features, or vocabulary sizes of categorical columns.
        out_dim: width of the output.
        level: "pair" (all pairs of a graph) or "hyperedge" (`batch.extras["hyperedge_index"]`, long [H,
            hyperedge_order]).
        plus: False (S2G): a tuple gets its nodes' vectors side by side. True (S2G+): L_{1->l} in full.
        set_dims: widths of the layers on the set; none: tuples are made of the input.
        pair_dims: hidden widths of the MLP on tuples.
        normalize_sums: layers average over a class' entries where Eq. 1 sums (authors: True).
        unit_norm: each node's vector is divided by its length after each layer on the set (authors, Delaunay).
        dropout: in the MLP on tuples.
        hyperedge_order: nodes of a hyperedge.
        broadcast_activation: ReLU and dropout between the broadcast and the MLP (authors, hyperedges).
        node_encoder, node_dim: as in `HigherOrderTransformer`; the width of its result, None for the first of
            `set_dims`.

    Raises:
        ValueError: an unknown level or node encoder, no width to embed nodes to.
    """

    def __init__(
        self,
        in_dim: int | Sequence[int],
        out_dim: int,
        level: str = "pair",
        plus: bool = False,
        set_dims: Sequence[int] = (256, 256, 256, 80),
        pair_dims: Sequence[int] = (256,),
        normalize_sums: bool = False,
        unit_norm: bool = False,
        dropout: float = 0.0,
        hyperedge_order: int = 3,
        broadcast_activation: bool = False,
        node_encoder: Literal["features", "cooccurrence"] = "features",
        node_dim: int | None = None,
    ):
        super().__init__()
        if level not in ("pair", "hyperedge"):
            raise ValueError(f"unknown level {level!r}; known: pair, hyperedge")
        at_least(1, node_dim=node_dim, hyperedge_order=hyperedge_order)
        if not set_dims and node_dim is None:
            raise ValueError("set_dims is empty: give at least one width, or node_dim")
        self.level, self.order, self.unit_norm = level, 2 if level == "pair" else hyperedge_order, unit_norm
        self.input = make_encoder(node_encoder, 1, in_dim, None, set_dims[0] if node_dim is None else node_dim)
        widths = [self.input.width, *set_dims]
        self.layers = nn.ModuleList(
            EquivariantLinear(1, 1, a, b, normalize=normalize_sums) for a, b in zip(widths, set_dims, strict=False)
        )
        broadcast = self.order * widths[-1]
        self.broadcast = None
        if plus:
            broadcast = widths[-1]
            distinct = level == "hyperedge"
            self.broadcast = EquivariantLinear(
                1, self.order, broadcast, broadcast, normalize=normalize_sums, distinct_output=distinct
            )
        self.broadcast_dropout = nn.Dropout(dropout) if broadcast_activation else None
        self.head = MLP([broadcast, *pair_dims, out_dim], "relu", dropout)

    def reset_parameters(self) -> None:
        for module in (self.input, *self.layers, self.broadcast, self.head):
            if module is not None:
                module.reset_parameters()

    def forward_features(self, batch: GraphBatch) -> Tensor:
        """[rows of the output, width of the broadcast]."""
        batch = GraphBatch.of(batch)
        pairs = self.level == "pair"
        support = (
            Support.complete(batch, 2) if pairs else Support(batch).add_hyperedges(hyperedge_index(batch, self.order))
        )
        x = self.input(batch, support, dtype_of(self.head[0]))
        for layer in self.layers:
            x = layer(x, support).relu()  # [n, width]
            x = F.normalize(x, dim=1) if self.unit_norm else x
        if self.broadcast is not None:
            values = self.broadcast(x, support)  # [tuples, width]
        else:
            values = torch.cat(
                [x.index_select(0, nodes) for nodes in support.sets[self.order].index.unbind(1)], 1
            )  # [tuples, order x width]
        values = values.index_select(0, support.flat_rows[2]) if pairs else values
        return values if self.broadcast_dropout is None else self.broadcast_dropout(values.relu())

    def forward_head(self, features: Tensor, batch: GraphBatch) -> Tensor:
        """The MLP on tuples: [rows, width] -> [rows, out_dim]."""
        return self.head(features)
