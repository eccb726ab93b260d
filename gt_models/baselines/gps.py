"""GraphGPS (Rampasek et al. 2022, "Recipe for a General, Powerful, Scalable Graph Transformer").

Message passing and attention side by side.
"""

# mypy: disable-error-code="misc, operator"

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv, GINConv, GINEConv

from gt_models.batch import GraphBatch
from gt_models.layers.eigenvectors import laplacian_eigenvectors
from gt_models.layers.features import FeatureEncoder
from gt_models.layers.fusion_barrier import fusion_barrier
from gt_models.layers.gnn import check_level
from gt_models.layers.graph_model import GraphModel
from gt_models.layers.mlp import MLP
from gt_models.layers.mlp import activation as hidden_activation
from gt_models.layers.mlp_head import MLPHead
from gt_models.layers.packing import Packing
from gt_models.layers.performer import RandomFeatures
from gt_models.layers.pooling import pool
from gt_models.layers.precision import dtype_of
from gt_models.layers.self_loops import attend, with_self_loops
from gt_models.layers.settings import at_least
from gt_models.layers.static_shapes import needs_static_shapes
from gt_models.layers.transformer import SelfAttention
from gt_models.registry import register_model

VERSION = 2  # since gradients flow through the stabiliser of the random features

LOCAL_LAYERS = ("gin", "gat", "gcn", "none")
ATTENTIONS = ("softmax", "performer", "none")


@register_model(
    "gps",
    levels=("graph", "node"),
    cost="n^2 d + m d + n d^2, or n d^2 + m d with Performer",
    encodings=("rwse", "laplacian_eigenvectors", "laplacian_eigenvalues"),
    sparse_x=True,
)
class GPS(GraphModel):
    """Predicts [B, out_dim] (graph) or [N, out_dim] (node).

    Args:
        in_dim, edge_dim: node and edge features (see `FeatureEncoder`); `edge_dim` None where edges carry nothing.
        out_dim: width of the prediction.
        level: "graph" or "node".
        hidden_dim, num_layers, num_heads: width d, which `num_heads` must divide. Feed-forward layers are 2 d wide.
        local_layer: "gin" (GINE where edges have features), "gat", "gcn" (edge features not used) or "none".
        attention: "softmax", "performer" or "none"; num_features, redraw_interval: random features of the Performer.
        rwse_dim: steps of the encoding "rwse", batch-normalised and through a Linear to `pe_dim` channels next to the
            features; 0: none.
        laplacian_dim: eigenvectors of the encoding "laplacian_eigenvectors" (signs flipped at random per graph in
            training) with "laplacian_eigenvalues", each pair through an MLP, summed to `pe_dim` channels next to the
            features; 0: none.
        pe_dim: channels of each encoding that is on; the features get what is left of `hidden_dim`.
        dropout: after message passing, after attention and twice in the feed-forward layer.
        attn_dropout: on attention weights.
        activation: in the feed-forward layers and the head.
        norm: "batch" or "layer", after each residual.
        pooling: "sum", "mean" or "max", at graph level.
        head, head_layers: hidden layers of the head, each half as wide as the one before, or all of width d.

    Raises:
        ValueError: for heads that do not divide the width and other impossible choices.
        MissingEncoding: in forward, where an encoding is absent or too narrow.
    """

    def __init__(
        self,
        in_dim: int | Sequence[int],
        out_dim: int,
        level: Literal["graph", "node"] = "graph",
        edge_dim: int | Sequence[int] | None = None,
        hidden_dim: int = 64,
        num_layers: int = 10,
        num_heads: int = 4,
        local_layer: Literal["gin", "gat", "gcn", "none"] = "gin",
        attention: Literal["softmax", "performer", "none"] = "softmax",
        num_features: int | None = None,
        redraw_interval: int | None = 1000,
        rwse_dim: int = 0,
        laplacian_dim: int = 0,
        pe_dim: int = 28,
        dropout: float = 0.0,
        attn_dropout: float = 0.0,
        activation: str = "relu",
        norm: Literal["batch", "layer"] = "batch",
        pooling: Literal["sum", "mean", "max"] = "sum",
        head: Literal["halving", "constant"] = "halving",
        head_layers: int = 2,
    ):
        super().__init__()
        check_level("gps", level, pooling, num_layers)
        if local_layer not in LOCAL_LAYERS or attention not in ATTENTIONS or norm not in ("batch", "layer"):
            raise ValueError(
                f"local_layer {local_layer!r}, attention {attention!r}, norm {norm!r}: known are "
                f"{', '.join(LOCAL_LAYERS)}; "
                f"{', '.join(ATTENTIONS)}; batch, layer"
            )
        if local_layer == attention == "none":
            raise ValueError("a layer with neither message passing nor attention: choose one of them")
        at_least(1, pe_dim=pe_dim, num_heads=num_heads, num_features=num_features, redraw_interval=redraw_interval)
        at_least(0, rwse_dim=rwse_dim, laplacian_dim=laplacian_dim)
        width = hidden_dim - pe_dim * (bool(rwse_dim) + bool(laplacian_dim))
        if width < 1:
            raise ValueError(
                f"encodings of {pe_dim} channels each leave nothing of hidden_dim {hidden_dim} for the features: "
                "lower pe_dim"
            )
        self.level, self.pooling, self.rwse_dim, self.laplacian_dim = level, pooling, rwse_dim, laplacian_dim
        self.node_encoder = FeatureEncoder(in_dim, width)
        # edge features reach GCN in no way
        self.edge_encoder = (
            FeatureEncoder(edge_dim, hidden_dim) if edge_dim is not None and local_layer in ("gin", "gat") else None
        )
        self.rwse_norm = nn.BatchNorm1d(rwse_dim) if rwse_dim else None
        self.rwse_encoder = nn.Linear(rwse_dim, pe_dim) if rwse_dim else None
        # unstated: depth and widths of this MLP; two layers with a ReLU after each, as in the implementation
        self.laplacian_encoder = nn.Sequential(MLP([2, 2 * pe_dim, pe_dim]), nn.ReLU()) if laplacian_dim else None
        self.layers = nn.ModuleList(
            GPSLayer(
                hidden_dim,
                num_heads,
                local_layer,
                with_edges=self.edge_encoder is not None,
                attention=attention,
                num_features=num_features,
                redraw_interval=redraw_interval,
                dropout=dropout,
                attn_dropout=attn_dropout,
                activation=activation,
                norm=norm,
            )
            for _ in range(num_layers)
        )
        self.head = MLPHead(hidden_dim, out_dim, head, head_layers, activation)

    def reset_parameters(self) -> None:
        own = [self.node_encoder, self.edge_encoder, self.rwse_norm, self.rwse_encoder, *self.layers, self.head]
        for module in own + ([] if self.laplacian_encoder is None else [self.laplacian_encoder[0]]):
            if module is not None:
                module.reset_parameters()

    def forward_features(self, batch: GraphBatch) -> Tensor:
        """Nodes after the last layer, [N, d]."""
        x = self.encode(batch)
        edges = None if self.edge_encoder is None else self.edge_encoder(batch.edge_features())
        nodes = pack(batch)
        for module in self.modules():
            if isinstance(module, RandomFeatures):
                module.step()
        for layer in self.layers:
            x = layer(x, edges, batch, nodes)
        return x

    def forward_head(self, features: Tensor, batch: GraphBatch) -> Tensor:
        """Pooled at graph level, then the head: [N, d] -> [B, out_dim] or [N, out_dim]."""
        return self.head(pool(features, batch, self.pooling) if self.level == "graph" else features)

    def encode(self, batch: GraphBatch) -> Tensor:
        """Features and encodings side by side, [N, d]."""
        columns = [self.node_encoder(batch.x)]
        if self.rwse_encoder is not None:
            walk = batch.encoding("rwse", self.rwse_dim).to(dtype_of(self.rwse_encoder))  # [N, rwse_dim]
            columns.append(self.rwse_encoder(self.rwse_norm(walk)))
        if self.laplacian_encoder is not None:
            vectors = laplacian_eigenvectors(batch, self.laplacian_dim, self.training)  # [N, k]
            values = batch.encoding("laplacian_eigenvalues", self.laplacian_dim)[batch.batch]  # [N, k]
            pairs = torch.stack([vectors, values], 2).to(dtype_of(self.laplacian_encoder[0][0]))  # type: ignore[index]  # [N, k, 2]
            real = (
                torch.arange(self.laplacian_dim, device=pairs.device) < batch.sizes[batch.batch, None]
            )  # a graph of n nodes has n of them
            columns.append((self.laplacian_encoder(pairs) * real[..., None]).sum(1))  # [N, pe_dim]
        dtype = columns[0].dtype
        return torch.cat([column.to(dtype) for column in columns], 1)


class GPSLayer(nn.Module):
    """x + MPNN(x) and x + attention(x), each normalised, added.

    Then a feed-forward layer with residual and norm: [N, d] -> [N, d].
    """

    def __init__(
        self,
        hidden_dim: int,
        num_heads: int,
        local_layer: str,
        *,
        with_edges: bool,
        attention: str,
        num_features: int | None,
        redraw_interval: int | None,
        dropout: float,
        attn_dropout: float,
        activation: str,
        norm: str,
    ):
        super().__init__()
        kind = nn.BatchNorm1d if norm == "batch" else nn.LayerNorm
        self.with_edges = with_edges
        self.local = _local_layer(local_layer, hidden_dim, num_heads, with_edges)
        self.local_norm = None if self.local is None else kind(hidden_dim)
        arguments = (hidden_dim, num_heads, attn_dropout, attention, num_features, redraw_interval)
        # as in the authors' code (graphgps/layer/performer_layer.py), gradients flow through the stabiliser
        self.attention = None if attention == "none" else SelfAttention(*arguments, detach=False)
        self.attn_norm = None if self.attention is None else kind(hidden_dim)
        self.ffn_in, self.ffn_out = nn.Linear(hidden_dim, 2 * hidden_dim), nn.Linear(2 * hidden_dim, hidden_dim)
        self.ffn_norm = kind(hidden_dim)
        self.activation, self.dropout = hidden_activation(activation), nn.Dropout(dropout)

    def reset_parameters(self) -> None:
        for module in (*self.children(), *(() if self.attention is None else self.attention.children())):
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()

    def forward(self, x: Tensor, edges: Tensor | None, batch: GraphBatch, nodes: "PackedNodes") -> Tensor:
        """`edges`: encoded edge features [E, d], or None. `nodes`: see `pack`."""
        branches = []
        if self.local is not None:
            branches.append(self.local_norm(x + self.dropout(self._pass_messages(x, edges, batch))))  # [N, d]
        if self.attention is not None:
            update = self.attention(x.index_select(0, nodes.order), nodes.packing).index_select(0, nodes.place)
            branches.append(self.attn_norm(x + self.dropout(update)))  # [N, d]
        h = sum(branches[1:], start=branches[0])
        return self.ffn_norm(h + self.dropout(self.ffn_out(self.dropout(self.activation(self.ffn_in(h))))))  # [N, d]

    def _pass_messages(self, x: Tensor, edges: Tensor | None, batch: GraphBatch) -> Tensor:
        x, features = fusion_barrier(x), edges if self.with_edges else None
        if isinstance(self.local, GATConv):
            return attend(self.local, x, with_self_loops(x, batch.edge_index, features))
        return self.local(x, batch.edge_index) if features is None else self.local(x, batch.edge_index, features)


class PackedNodes(NamedTuple):
    """Nodes sorted for attention, graphs by falling size.

    Returns:
        The place of each node of the batch in this order, long [N], and the node at each place.
    """

    packing: Packing
    place: Tensor
    order: Tensor


def pack(batch: GraphBatch) -> PackedNodes:
    """Nodes as tokens; in one padded group if sizes must not depend on data, else in groups of similar size."""
    packing = Packing.of(batch.sizes, batch.num_nodes, batch.max_nodes if needs_static_shapes(batch.ptr) else None)
    place = packing.start[batch.batch] + batch.local
    return PackedNodes(
        packing, place, torch.empty_like(place).scatter(0, place, torch.arange(len(place), device=place.device))
    )


def _local_layer(kind: str, hidden_dim: int, num_heads: int, with_edges: bool) -> nn.Module | None:
    if kind == "none":
        return None
    if kind == "gcn":
        return GCNConv(hidden_dim, hidden_dim)
    if kind == "gat":
        if hidden_dim % num_heads:
            raise ValueError(
                f"hidden_dim {hidden_dim} does not split into {num_heads} heads: choose a multiple of num_heads"
            )
        edge_dim = hidden_dim if with_edges else None
        return GATConv(hidden_dim, hidden_dim // num_heads, num_heads, add_self_loops=False, edge_dim=edge_dim)
    mlp = nn.Sequential(nn.Linear(hidden_dim, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, hidden_dim))
    return GINEConv(mlp) if with_edges else GINConv(mlp)
