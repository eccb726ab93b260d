"""What baselines share that work node by node, along edges, and pool at the end."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from gt_models.batch import GraphBatch
from gt_models.layers.eigenvectors import laplacian_eigenvectors
from gt_models.layers.features import FeatureEncoder
from gt_models.layers.graph_model import GraphModel
from gt_models.layers.mlp import activation as hidden_activation
from gt_models.layers.pooling import POOLINGS, pool
from gt_models.layers.precision import dtype_of
from gt_models.layers.settings import at_least

NORMALISATIONS = ("none", "batch", "layer")


class GNN(GraphModel):
    """Feature encoder, `num_layers` x [convolution, normalisation, activation, dropout, (residual)], (pooling,) Linear.

    Node [N, out_dim] or graph [B, out_dim]. `convolution()` builds a message passing layer of torch_geometric, which is
    called with x and the result of `edges()`.

    Args:
        name: of the model, for errors.
        convolution: makes one convolution, hidden_dim -> hidden_dim.
        in_dim: width of continuous node features, or vocabulary sizes of categorical columns.
        out_dim: targets or classes.
        level: "node" or "graph".
        edge_dim: of edge features, as `in_dim`; None where they are not used.
        hidden_dim: width of all layers.
        num_layers: convolutions.
        dropout: after each activation.
        activation: "relu", "gelu", ... (`gt_models.layers.mlp.ACTIVATIONS`).
        normalisation: "none", "batch" or "layer", between convolution and activation.
        residual: each layer adds its input.
        pooling: "sum", "mean" or "max", at graph level.
        all_layers: the head reads the input of the first layer and the output of every layer, side by side, not the
            last one's alone.
        rrwp_dim: return probabilities appended to the features: the diagonal of this many channels of the encoding
            "rrwp"; 0: none.
        laplacian_dim: eigenvectors of the encoding "laplacian_eigenvectors" appended to the features, signs flipped at
            random per graph in training; 0: none.
    """

    def __init__(
        self,
        name: str,
        convolution: Callable[[], nn.Module],
        *,
        in_dim: int | Sequence[int],
        out_dim: int,
        level: str,
        edge_dim: int | Sequence[int] | None,
        hidden_dim: int,
        num_layers: int,
        dropout: float,
        activation: str,
        normalisation: str,
        residual: bool,
        pooling: str,
        rrwp_dim: int,
        laplacian_dim: int,
        all_layers: bool = False,
    ):
        super().__init__()
        check_level(name, level, pooling, num_layers)
        at_least(1, hidden_dim=hidden_dim)
        at_least(0, rrwp_dim=rrwp_dim, laplacian_dim=laplacian_dim)
        if normalisation not in NORMALISATIONS:
            raise ValueError(f"unknown normalisation {normalisation!r}; known: {', '.join(NORMALISATIONS)}")
        self.level, self.pooling, self.residual, self.all_layers = level, pooling, residual, all_layers
        self.rrwp_dim, self.laplacian_dim = rrwp_dim, laplacian_dim
        self.encoder = FeatureEncoder(in_dim, hidden_dim)
        width = rrwp_dim + laplacian_dim  # [x, encodings] through one Linear: the sum of two
        self.encoding_encoder = nn.Linear(width, hidden_dim, bias=False) if width else None
        self.edge_encoder = None if edge_dim is None else FeatureEncoder(edge_dim, hidden_dim)
        self.convs = nn.ModuleList(convolution() for _ in range(num_layers))
        kinds = {"none": nn.Identity, "batch": nn.BatchNorm1d, "layer": nn.LayerNorm}
        self.norms = nn.ModuleList(kinds[normalisation](hidden_dim) for _ in range(num_layers))
        self.activation, self.dropout = hidden_activation(activation), nn.Dropout(dropout)
        self.head = nn.Linear(hidden_dim * (num_layers + 1 if all_layers else 1), out_dim)

    def reset_parameters(self) -> None:
        for module in [self.encoder, self.encoding_encoder, self.edge_encoder, *self.convs, *self.norms, self.head]:
            if module is not None and not isinstance(module, nn.Identity):
                module.reset_parameters()

    def convolve(self, index: int, x: Tensor, first: Tensor, edges: tuple[Any, ...]) -> Tensor:
        """Convolution `index`: [N, d] -> [N, d]; `first` is the input of layer 0."""
        return self.convs[index](x, *edges)

    def edges(self, batch: GraphBatch) -> tuple[Any, ...]:
        """edge_index, and encoded features [E, d] where `edge_dim` was given; the same for all layers."""
        return (
            (batch.edge_index,)
            if self.edge_encoder is None
            else (batch.edge_index, self.edge_encoder(batch.edge_features()))
        )

    def forward_features(self, batch: GraphBatch) -> Tensor:
        """What the head reads of the nodes: [N, d], or with `all_layers` [N, (1 + num_layers) d]."""
        x = self.encoder(batch.x)  # [N, d]
        if self.encoding_encoder is not None:
            x = x + self.encoding_encoder(self._encodings(batch).to(dtype_of(self.encoding_encoder)))
        states, edges = [x], self.edges(batch)
        for i, norm in enumerate(self.norms):
            update = self.dropout(self.activation(norm(self.convolve(i, x, states[0], edges))))  # [N, d]
            x = x + update if self.residual else update
            states.append(x)
        return torch.cat(states, 1) if self.all_layers else x

    def forward_head(self, features: Tensor, batch: GraphBatch) -> Tensor:
        """Pooled at graph level, then a Linear: -> [B, out_dim] or [N, out_dim]."""
        if self.level == "graph":
            features = pool(features, batch, self.pooling)  # [B, d]
        return self.head(features)

    def _encodings(self, batch: GraphBatch) -> Tensor:
        columns = []
        if self.rrwp_dim:
            columns.append(return_probabilities(batch, self.rrwp_dim))  # [N, rrwp_dim]
        if self.laplacian_dim:
            columns.append(laplacian_eigenvectors(batch, self.laplacian_dim, self.training))  # [N, laplacian_dim]
        return torch.cat(columns, 1)


def return_probabilities(batch: GraphBatch, width: int) -> Tensor:
    """The diagonal of the encoding "rrwp", [N, width]."""
    sizes = batch.sizes[batch.batch]
    return batch.encoding("rrwp", width)[batch.pair_ptr[batch.batch] + batch.local * (sizes + 1)]  # slot of (i, i)


def normalised_edges(batch: GraphBatch, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """D^-1/2 (A + I) D^-1/2 as (edge_index [2, E + N], weights [E + N]), once for all layers.

    As torch_geometric's `gcn_norm`, but a self-loop that is there already stays, with weight 0, so that no size depends
    on how many there are.
    """
    nodes = torch.arange(batch.num_nodes, device=batch.ptr.device)
    edge_index = torch.cat([batch.edge_index, torch.stack([nodes, nodes])], 1)
    (source, target), is_loop = edge_index, batch.edge_index[0] == batch.edge_index[1]
    weight = torch.cat([(~is_loop).to(dtype), torch.ones_like(nodes, dtype=dtype)])
    scale = weight.new_zeros(batch.num_nodes).index_add(0, target, weight).pow(-0.5)
    return edge_index, scale[source] * weight * scale[target]


def check_level(name: str, level: str, pooling: str, num_layers: int) -> None:
    """Check the arguments of a baseline.

    Raises:
        ValueError: an unknown level or pooling, or no layer.
    """
    if level not in ("node", "graph"):
        raise ValueError(f"{name} cannot predict at level {level!r}; it predicts: node, graph")
    if pooling not in POOLINGS:
        raise ValueError(f"unknown pooling {pooling!r}; known: {', '.join(POOLINGS)}")
    if num_layers < 1:
        raise ValueError(f"{name} needs at least one layer, not {num_layers}")
