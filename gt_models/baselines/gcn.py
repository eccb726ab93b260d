"""Graph convolutional network (Kipf and Welling 2017) on torch_geometric's GCNConv, with the options that benchmark baselines use."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch_geometric.nn import GCNConv

from gt_models.batch import GraphBatch
from gt_models.nn.features import FeatureEncoder
from gt_models.nn.mlp import activation as hidden_activation
from gt_models.nn.node_wise import check_level
from gt_models.nn.pooling import pool
from gt_models.registry import register_model

NORMALISATIONS = ("none", "batch", "layer")


@register_model("gcn", levels=("node", "graph"), cost="m d + n d^2", encodings=("rrwp", "laplacian_eigenvectors"))
class GCN(nn.Module):
    """Feature encoder, `num_layers` x [GCNConv, normalisation, activation, dropout, (residual)], (pooling,) Linear.

    Node [N, out_dim] or graph [B, out_dim]. GCNConv adds the self-loops a graph lacks; edge features are not used.

    Args:
        in_dim: width of continuous node features, or vocabulary sizes of categorical columns.
        out_dim: targets or classes.
        level: "node" or "graph".
        hidden_dim: width of all layers.
        num_layers: convolutions.
        dropout: after each activation.
        activation: "relu", "gelu", ... (`gt_models.nn.mlp.ACTIVATIONS`).
        normalisation: "none", "batch" or "layer", between convolution and activation.
        residual: each layer adds its input.
        pooling: "sum", "mean" or "max", at graph level.
        rrwp_dim: return probabilities appended to the features: the diagonal of this many channels of the encoding "rrwp"; 0: none.
        laplacian_dim: eigenvectors of the encoding "laplacian_eigenvectors" appended to the features, signs flipped at random per graph in
            training; 0: none.
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
        super().__init__()
        check_level("gcn", level, pooling, num_layers)
        if normalisation not in NORMALISATIONS:
            raise ValueError(f"unknown normalisation {normalisation!r}; known: {', '.join(NORMALISATIONS)}")
        self.level, self.pooling, self.residual = level, pooling, residual
        self.rrwp_dim, self.laplacian_dim = rrwp_dim, laplacian_dim
        self.encoder = FeatureEncoder(in_dim, hidden_dim)
        width = rrwp_dim + laplacian_dim  # [x, encodings] through one Linear: the sum of two
        self.encoding_encoder = nn.Linear(width, hidden_dim, bias=False) if width else None
        self.convs = nn.ModuleList(GCNConv(hidden_dim, hidden_dim) for _ in range(num_layers))
        kinds = {"none": nn.Identity, "batch": nn.BatchNorm1d, "layer": nn.LayerNorm}
        self.norms = nn.ModuleList(kinds[normalisation](hidden_dim) for _ in range(num_layers))
        self.activation, self.dropout = hidden_activation(activation), nn.Dropout(dropout)
        self.head = nn.Linear(hidden_dim, out_dim)

    def reset_parameters(self) -> None:
        for module in [self.encoder, self.encoding_encoder, *self.convs, *self.norms, self.head]:
            if module is not None and not isinstance(module, nn.Identity):
                module.reset_parameters()

    def forward_features(self, batch: GraphBatch) -> Tensor:
        x = self.encoder(batch.x)  # [N, d]
        if self.encoding_encoder is not None:
            x = x + self.encoding_encoder(self._encodings(batch).to(self.encoding_encoder.weight.dtype))
        for conv, norm in zip(self.convs, self.norms, strict=True):
            update = self.dropout(self.activation(norm(conv(x, batch.edge_index))))  # [N, d]
            x = x + update if self.residual else update
        return x

    def forward_head(self, features: Tensor, batch: GraphBatch) -> Tensor:
        if self.level == "graph":
            features = pool(features, batch, self.pooling)  # [B, d]
        return self.head(features)

    def forward(self, batch: GraphBatch) -> Tensor:
        batch = GraphBatch.of(batch)
        return self.forward_head(self.forward_features(batch), batch)

    def _encodings(self, batch: GraphBatch) -> Tensor:
        parts = []
        if self.rrwp_dim:
            sizes = batch.sizes[batch.batch]
            diagonal = batch.pair_ptr[batch.batch] + batch.local * (sizes + 1)  # slot of (i, i)
            parts.append(batch.encoding("rrwp", self.rrwp_dim)[diagonal])  # [N, rrwp_dim]
        if self.laplacian_dim:
            vectors = batch.encoding("laplacian_eigenvectors", self.laplacian_dim)  # [N, laplacian_dim]
            if self.training:
                signs = torch.randint(0, 2, (batch.num_graphs, self.laplacian_dim), device=vectors.device) * 2 - 1
                vectors = vectors * signs[batch.batch]
            parts.append(vectors)
        return torch.cat(parts, 1)
