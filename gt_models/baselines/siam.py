"""SIAM, the siamese baseline of Set2Graph (Serviansky et al. 2020, Section 5).

Each element by itself, then an MLP on pairs.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gt_models.batch import GraphBatch
from gt_models.layers.features import FeatureEncoder
from gt_models.layers.graph_model import GraphModel
from gt_models.layers.mlp import MLP
from gt_models.registry import register_model


@register_model("siam", levels=("pair",), cost="n^2 d^2")
class Siam(GraphModel):
    """Pairs [sum n_b^2, out_dim]: MLP([u_j, u_i]) where u_i is an MLP of element i alone; edges are not used.

    Args:
        in_dim: width of node features, or vocabulary sizes of categorical columns.
        out_dim: width of the output.
        level: "pair".
        set_dims: widths of the MLP on elements.
        pair_dims: hidden widths of the MLP on pairs.
        normalisation: of elements after each Linear: "unit", divided by their length, or "batch".
        last_activation: whether u ends with a ReLU.

    Raises:
        ValueError: another level, an unknown normalisation, or no layer on elements.
    """

    def __init__(
        self,
        in_dim: int | Sequence[int],
        out_dim: int,
        level: Literal["pair"] = "pair",
        set_dims: Sequence[int] = (384, 384, 384, 384, 5),
        pair_dims: Sequence[int] = (256,),
        normalisation: Literal["unit", "batch"] = "unit",
        last_activation: bool = True,
    ):
        super().__init__()
        if level != "pair":
            raise ValueError(f"siam cannot predict at level {level!r}; it predicts: pair")
        if normalisation not in ("unit", "batch"):
            raise ValueError(f"unknown normalisation {normalisation!r}; known: unit, batch")
        if not set_dims:
            raise ValueError("set_dims is empty: give at least one width")
        self.last_activation = last_activation
        self.encoder = FeatureEncoder(in_dim, set_dims[0])
        self.linears = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(set_dims))
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for width in set_dims) if normalisation == "batch" else None
        self.head = MLP([2 * set_dims[-1], *pair_dims, out_dim])

    def reset_parameters(self) -> None:
        for module in [self.encoder, *self.linears, *(self.norms or ()), self.head]:
            module.reset_parameters()

    def forward_features(self, batch: GraphBatch) -> Tensor:
        """u, [N, last of set_dims]."""
        u = batch.x
        for i, layer in enumerate([self.encoder, *self.linears]):
            u = layer(u)
            u = F.normalize(u, dim=1) if self.norms is None else self.norms[i](u)
            u = u.relu() if i < len(self.linears) or self.last_activation else u
        return u

    def forward_head(self, features: Tensor, batch: GraphBatch) -> Tensor:
        """Elements [N, d] -> ordered pairs [sum n_b^2, out_dim]."""
        first, second = batch.pair_nodes
        return self.head(torch.cat([features[second], features[first]], 1))
