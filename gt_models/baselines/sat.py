"""Structure-Aware Transformer with the k-subgraph extractor.

Chen et al., ICML 2022, https://arxiv.org/abs/2202.03036. A GNN on the subgraph around a node gives its query and key.
"""

# mypy: disable-error-code="operator"

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.nn import PNAConv

from gt_models.batch import GraphBatch
from gt_models.layers.features import FeatureEncoder
from gt_models.layers.gnn import check_level
from gt_models.layers.graph_model import GraphModel
from gt_models.layers.mlp_head import MLPHead
from gt_models.layers.pooling import pool
from gt_models.layers.precision import dtype_of
from gt_models.layers.settings import at_least
from gt_models.layers.static_shapes import needs_static_shapes
from gt_models.registry import register_model


@register_model(
    "sat",
    levels=("graph", "node"),
    cost="n (m + n) d^2 + n^2 d where k hops reach all",
    encodings=("rwse",),
    paper="Chen et al.: Structure-Aware Transformer for Graph Representation Learning, ICML 2022. "
    "https://arxiv.org/abs/2202.03036",
    sparse_x=True,
)
class SAT(GraphModel):
    """Graph [B, out_dim] or node [N, out_dim].

    Each layer computes

        s_i = Linear(norm([x_i, sum of GNN(the subgraph of nodes up to k hops from i)]))
        x <- norm(x + dropout(scale_i sum_j softmax_j(Q s_i . K s_j / sqrt(d_h)) V x_j))
        x <- norm(x + dropout(feed-forward(x)))

    with batch norms, heads side by side and through a Linear, scale_i = 1 / sqrt(1 + degree). The GNN is `hops` layers
    of PNA with mean, sum and maximum and a ReLU after each; it has no scalers of degrees, so that no degree of the
    training graphs decides anything.

    Args:
        in_dim, edge_dim: node and edge features (see `FeatureEncoder`); `edge_dim` None: edges carry nothing.
        out_dim: targets or classes.
        level: "graph" or "node".
        hidden_dim, num_layers, num_heads: width d, which `num_heads` must divide. Feed-forward layers are 2 d wide.
        hops: k, of the subgraphs and of the GNN.
        towers: of PNA, which must divide d.
        edge_width: channels of an edge in PNA.
        rwse_dim: steps of the encoding "rwse", added through a Linear; 0: none.
        degree_scale: whether scale_i is there.
        dropout: on attention weights, after attention, and twice in the feed-forward layer.
        pooling: "sum", "mean" or "max", at graph level.

    Raises:
        ValueError: for heads or towers that do not divide the width and other impossible choices.
        MissingEncoding: in forward, where the encoding is absent or too narrow.
    """

    def __init__(
        self,
        in_dim: int | Sequence[int],
        out_dim: int,
        level: Literal["graph", "node"] = "graph",
        edge_dim: int | Sequence[int] | None = None,
        hidden_dim: int = 64,
        num_layers: int = 6,
        num_heads: int = 8,
        hops: int = 3,
        towers: int = 4,
        edge_width: int = 32,
        rwse_dim: int = 0,
        degree_scale: bool = True,
        dropout: float = 0.2,
        pooling: Literal["sum", "mean", "max"] = "mean",
    ):
        super().__init__()
        check_level("sat", level, pooling, num_layers)
        if min(num_heads, towers, hops) < 1 or hidden_dim % num_heads or hidden_dim % towers:
            raise ValueError(
                f"hidden_dim {hidden_dim} does not split into {num_heads} heads and {towers} towers, with {hops} "
                "hops: choose others"
            )
        at_least(1, edge_width=edge_width)
        at_least(0, rwse_dim=rwse_dim)
        self.level, self.pooling, self.hops, self.rwse_dim, self.degree_scale = (
            level,
            pooling,
            hops,
            rwse_dim,
            degree_scale,
        )
        self.encoder = FeatureEncoder(in_dim, hidden_dim)
        self.rwse_encoder = nn.Linear(rwse_dim, hidden_dim) if rwse_dim else None
        self.edge_encoder = None if edge_dim is None else FeatureEncoder(edge_dim, edge_width, bias=False)
        width = None if edge_dim is None else edge_width
        self.layers = nn.ModuleList(
            SATLayer(hidden_dim, num_heads, hops, towers, width, dropout) for _ in range(num_layers)
        )
        self.head = MLPHead(hidden_dim, out_dim, "constant", 1)

    def reset_parameters(self) -> None:
        for module in [self.encoder, self.rwse_encoder, self.edge_encoder, *self.layers, self.head]:
            if module is not None:
                module.reset_parameters()

    def forward_features(self, batch: GraphBatch) -> Tensor:
        """Nodes after the last layer, [N, d]."""
        x = self.encoder(batch.x)  # [N, d]
        if self.rwse_encoder is not None:
            x = x + self.rwse_encoder(batch.encoding("rwse", self.rwse_dim).to(dtype_of(self.rwse_encoder)))
        edges = None if self.edge_encoder is None else self.edge_encoder(batch.edge_features())  # [E, d_e]
        around = subgraphs(batch, self.hops)
        if edges is not None:
            edges = edges[around.edges]  # [Q, d_e]
        scale = (1 + batch.out_degree(x.dtype)).rsqrt()[:, None] if self.degree_scale else None
        for layer in self.layers:
            x = layer(x, batch, around, edges, scale)
        return x

    def forward_head(self, features: Tensor, batch: GraphBatch) -> Tensor:
        """Pooled at graph level, then Linear, ReLU, Linear: [N, d] -> [B, out_dim] or [N, out_dim]."""
        return self.head(pool(features, batch, self.pooling) if self.level == "graph" else features)


class SATLayer(nn.Module):
    """x [N, d] -> [N, d]; see `SAT`."""

    def __init__(self, hidden_dim: int, num_heads: int, hops: int, towers: int, edge_width: int | None, dropout: float):
        super().__init__()
        self.num_heads = num_heads
        self.convs = nn.ModuleList(
            PNAConv(
                hidden_dim,
                hidden_dim,
                ["mean", "sum", "max"],
                ["identity"],
                # a histogram of degrees, of which only scalers other than the identity would read more than its device
                torch.ones(2, dtype=torch.long, device="cpu"),
                edge_dim=edge_width,
                towers=towers,
                divide_input=True,
            )
            for _ in range(hops)
        )
        self.structure_norm, self.structure_out = nn.BatchNorm1d(2 * hidden_dim), nn.Linear(2 * hidden_dim, hidden_dim)
        self.keys_queries, self.values = (
            nn.Linear(hidden_dim, 2 * hidden_dim, bias=False),
            nn.Linear(hidden_dim, hidden_dim, bias=False),
        )
        self.out = nn.Linear(hidden_dim, hidden_dim)
        self.ffn_in, self.ffn_out = nn.Linear(hidden_dim, 2 * hidden_dim), nn.Linear(2 * hidden_dim, hidden_dim)
        self.attn_norm, self.ffn_norm, self.dropout = (
            nn.BatchNorm1d(hidden_dim),
            nn.BatchNorm1d(hidden_dim),
            nn.Dropout(dropout),
        )
        self._xavier()

    def reset_parameters(self) -> None:
        for module in self.modules():
            if module is not self and hasattr(module, "reset_parameters"):
                module.reset_parameters()
        self._xavier()

    def _xavier(self) -> None:
        for linear in (self.keys_queries, self.values):
            nn.init.xavier_uniform_(linear.weight)

    def forward(
        self, x: Tensor, batch: GraphBatch, around: "Subgraphs", edges: Tensor | None, scale: Tensor | None
    ) -> Tensor:
        """`edges`: features [Q, d_e] of the edges of the subgraphs, or None; `scale` [N, 1] of attention, or None."""
        received = self._attend(self._structure(x, around, edges), x, batch)
        x = self.attn_norm(x + self.dropout(received if scale is None else scale * received))
        return self.ffn_norm(x + self.dropout(self.ffn_out(self.dropout(self.ffn_in(x).relu()))))

    def _structure(self, x: Tensor, around: "Subgraphs", edges: Tensor | None) -> Tensor:
        """s, [N, d]."""
        h = x[around.nodes]  # [P, d]
        for conv in self.convs:
            h = conv(h, around.edge_index, edges).relu()
        h = h * around.there.to(h.dtype)[:, None]
        return self.structure_out(
            self.structure_norm(torch.cat([x, torch.zeros_like(x).index_add(0, around.centres, h)], 1))
        )

    def _attend(self, s: Tensor, x: Tensor, batch: GraphBatch) -> Tensor:
        k, q = self.keys_queries(s).chunk(2, 1)
        q, k, v = (
            batch.to_dense(t).unflatten(2, (self.num_heads, -1)).transpose(1, 2) for t in (q, k, self.values(x))
        )  # [B, H, n, d_h]
        scores = (q @ k.transpose(2, 3) / q.size(3) ** 0.5).masked_fill(
            ~batch.node_mask[:, None, None], torch.finfo(q.dtype).min
        )
        received = self.dropout(scores.softmax(3)) @ v
        return self.out(batch.from_dense(received.transpose(1, 2).flatten(2)))


@dataclass(frozen=True)
class Subgraphs:
    """The subgraphs around all nodes, side by side.

    Attributes:
        nodes, centres: long [P]: the node at each place, and the one whose subgraph the place is in.
        there: bool [P], False at a place that is in no subgraph (only where sizes are fixed).
        edge_index: long [2, Q] between places.
        edges: long [Q]: which edge of the batch it is.
    """

    nodes: Tensor
    centres: Tensor
    there: Tensor
    edge_index: Tensor
    edges: Tensor


def subgraphs(batch: GraphBatch, hops: int) -> Subgraphs:
    """Of each node the nodes that reach it along at most `hops` edges, with all edges among them.

    Where sizes must not depend on the data, each pair of nodes has a place, and an edge that is in no subgraph leads
    from one more to itself.
    """
    n, (graph, source, target) = batch.max_nodes, batch.edge_slots()
    step = torch.zeros(batch.num_graphs, n, n, device=graph.device)
    step = step.index_put((graph, target, source), step.new_ones(()))  # from where a node is reached
    reached = torch.diag_embed(batch.node_mask.to(step.dtype))
    for _ in range(hops):
        reached = (reached + reached @ step).clamp(max=1)
    inside = batch.pairs_from_dense((reached > 0)[..., None])[:, 0]  # [sum n_b^2], by centre, then node
    centres, nodes = batch.pair_nodes
    edge = torch.arange(batch.num_edges, device=graph.device)
    local, size = torch.arange(n, device=graph.device), batch.sizes[graph]  # centres of each edge's graph
    first = (
        batch.pair_ptr[graph][:, None] + local * size[:, None]
    )  # [E, n], the place of node 0 of the graph around each
    real = local < size[:, None]
    ends = [torch.where(real, first + end[:, None], 0) for end in (source, target)]  # [E, n]
    whole = real & inside[ends[0]] & inside[ends[1]]
    edge_index, edges = torch.stack([end.flatten() for end in ends]), edge[:, None].expand(-1, n).flatten()
    if needs_static_shapes(inside):
        none = inside.numel()
        edge_index = torch.where(whole.flatten(), edge_index, none)
        more = (F.pad(nodes, (0, 1)), F.pad(centres, (0, 1)), F.pad(inside, (0, 1)))
        return Subgraphs(*more, edge_index, edges)
    kept, places = whole.flatten(), inside.cumsum(0) - 1
    return Subgraphs(nodes[inside], centres[inside], inside[inside], places[edge_index[:, kept]], edges[kept])
