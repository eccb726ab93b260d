"""Exphormer (Shirzad et al., ICML 2023, https://arxiv.org/abs/2303.06147).

Message passing in parallel with attention along the edges of the graph, of a random regular graph and of virtual nodes.
"""

# mypy: disable-error-code="arg-type, misc, operator"

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv

from gt_models.baselines.gatedgcn import GatedGCNLayer
from gt_models.batch import GraphBatch
from gt_models.layers.edge_softmax import sum_over_edges
from gt_models.layers.eigenvectors import laplacian_eigenvectors
from gt_models.layers.features import FeatureEncoder
from gt_models.layers.gnn import check_level, normalised_edges
from gt_models.layers.graph_model import GraphModel
from gt_models.layers.mlp import MLP
from gt_models.layers.mlp_head import MLPHead
from gt_models.layers.pooling import pool
from gt_models.layers.precision import dtype_of
from gt_models.layers.self_loops import attend, with_self_loops
from gt_models.layers.settings import at_least
from gt_models.registry import register_model

LOCAL_LAYERS = ("gat", "gcn", "gatedgcn", "none")
Links = tuple[Tensor, Tensor, Tensor]


@register_model(
    "exphormer",
    levels=("graph", "node"),
    cost="(m + n) d^2",
    encodings=("expander", "laplacian_eigenvectors", "laplacian_eigenvalues"),
    paper="Shirzad et al.: Exphormer: Sparse Transformers for Graphs, ICML 2023. https://arxiv.org/abs/2303.06147",
    sparse_x=True,
)
class Exphormer(GraphModel):
    """Graph [B, out_dim] or node [N, out_dim].

    Layers of GraphGPS, whose attention is sparse; for the edges of all kinds from j to i

        x_i <- sum_j s_ij V x_j / (sum_j s_ij + 1e-6)
        s_ij = exp(clamp(sum((Q x_i) (K x_j) (E e_ij)) / sqrt(d_h), -5, 5))

    in each head, where e_ij is the feature of an edge of the graph, or a learned vector: one for edges of the random
    regular graph, and one to and one from each virtual node. Virtual nodes begin as learned vectors and become what
    they hear.

    Args:
        in_dim, edge_dim: node and edge features (see `FeatureEncoder`); `edge_dim` None: one learned vector for the
            edges of the graph too.
        out_dim: targets or classes.
        level: "graph" or "node".
        hidden_dim, num_layers, num_heads: width d, which `num_heads` must divide. Feed-forward layers are 2 d wide.
        local_layer: "gat", "gcn", "gatedgcn" (whose edge states attention does not see) or "none", in parallel with
            attention.
        expander_degree: of the encoding "expander", whose graph has twice that degree; 0: no such edges.
        virtual_nodes: of each graph.
        laplacian_dim, pe_dim: eigenvectors and -values, each pair through an MLP, whose sum is `pe_dim` channels next
            to the features (see `GPS`).
        self_loops: attention also from each node to itself, as along an edge of the graph without features.
        pre_layer: Linear, norm, dropout, ReLU between the features' Linear and the first layer, divided by its length.
        dropout: after message passing, after attention and twice in the feed-forward layer.
        pooling: "sum", "mean" or "max", at graph level.
        head, head_layers: hidden layers of the head, each half as wide as the one before, or all of width d.

    Raises:
        ValueError: for heads that do not divide the width and other impossible choices.
        MissingEncoding: in forward, where the encoding is absent or too narrow.
    """

    def __init__(
        self,
        in_dim: int | Sequence[int],
        out_dim: int,
        level: Literal["graph", "node"] = "graph",
        edge_dim: int | Sequence[int] | None = None,
        hidden_dim: int = 64,
        num_layers: int = 4,
        num_heads: int = 4,
        local_layer: Literal["gat", "gcn", "gatedgcn", "none"] = "gcn",
        expander_degree: int = 3,
        virtual_nodes: int = 0,
        laplacian_dim: int = 0,
        pe_dim: int = 16,
        self_loops: bool = False,
        pre_layer: bool = False,
        dropout: float = 0.0,
        pooling: Literal["sum", "mean", "max"] = "mean",
        head: Literal["halving", "constant"] = "constant",
        head_layers: int = 0,
    ):
        super().__init__()
        check_level("exphormer", level, pooling, num_layers)
        if local_layer not in LOCAL_LAYERS:
            raise ValueError(f"unknown local_layer {local_layer!r}; known: {', '.join(LOCAL_LAYERS)}")
        if num_heads < 1 or hidden_dim % num_heads:
            raise ValueError(
                f"hidden_dim {hidden_dim} does not split into {num_heads} heads: choose a multiple of num_heads"
            )
        if min(expander_degree, virtual_nodes) < 0:
            raise ValueError(
                f"expander_degree {expander_degree} and virtual_nodes {virtual_nodes}: give no negative number"
            )
        at_least(1, hidden_dim=hidden_dim, pe_dim=pe_dim)
        at_least(0, laplacian_dim=laplacian_dim)
        width = hidden_dim - pe_dim * bool(laplacian_dim)
        if width < 1:
            raise ValueError(
                f"pe_dim {pe_dim} leaves nothing of hidden_dim {hidden_dim} for the features: lower pe_dim"
            )
        self.level, self.pooling, self.laplacian_dim = level, pooling, laplacian_dim
        self.expander_degree, self.num_virtual, self.self_loops = expander_degree, virtual_nodes, self_loops
        self.node_encoder = FeatureEncoder(in_dim, width)
        self.laplacian_encoder = MLP([2, 2 * pe_dim, pe_dim]) if laplacian_dim else None
        self.edge_encoder = None if edge_dim is None else FeatureEncoder(edge_dim, hidden_dim)
        self.pre_linear = nn.Linear(hidden_dim, hidden_dim, bias=False) if pre_layer else None
        self.pre_norm = nn.BatchNorm1d(hidden_dim) if pre_layer else None
        self.dropout = nn.Dropout(dropout)
        # edges of the graph without features, of the regular graph, to each virtual node, from each
        self.kinds = nn.Embedding(2 + 2 * virtual_nodes, hidden_dim)
        self.virtual = nn.Embedding(virtual_nodes, hidden_dim) if virtual_nodes else None
        self.layers = nn.ModuleList(
            ExphormerLayer(hidden_dim, num_heads, local_layer, edge_dim is not None, dropout) for _ in range(num_layers)
        )
        self.head = MLPHead(hidden_dim, out_dim, head, head_layers)

    def reset_parameters(self) -> None:
        own = [
            self.node_encoder,
            self.laplacian_encoder,
            self.edge_encoder,
            self.pre_linear,
            self.pre_norm,
            self.kinds,
            self.virtual,
            *self.layers,
            self.head,
        ]
        for module in own:
            if module is not None:
                module.reset_parameters()

    def forward_features(self, batch: GraphBatch) -> Tensor:
        """Nodes after the last layer, [N, d]."""
        x = self.node_encoder(batch.x)  # [N, d - pe_dim]
        if self.laplacian_encoder is not None:
            x = torch.cat([x, self._positions(batch).to(x.dtype)], 1)  # [N, d]
        if self.pre_linear is not None:
            x = nn.functional.normalize(self.dropout(self.pre_norm(self.pre_linear(x))).relu(), dim=1)
        kinds = self.kinds(torch.arange(self.kinds.num_embeddings, device=x.device))  # [2 + 2 V, d]
        plain = kinds[0].expand(batch.num_edges, -1)
        edges = plain if self.edge_encoder is None else self.edge_encoder(batch.edge_features())  # [E, d]
        links = self.links(batch, edges, kinds)
        virtual = (
            x.new_zeros(0, x.size(1))
            if self.virtual is None
            else self.virtual(torch.arange(self.num_virtual, device=x.device).repeat_interleave(batch.num_graphs))
        )
        for layer in self.layers:
            x, virtual, edges = layer(x, virtual, edges, links, batch)
        return x

    def _positions(self, batch: GraphBatch) -> Tensor:
        """The sum over eigenpairs of an MLP of both numbers, [N, pe_dim]."""
        vectors = laplacian_eigenvectors(batch, self.laplacian_dim, self.training)  # [N, k]
        values = batch.encoding("laplacian_eigenvalues", self.laplacian_dim)[batch.batch]  # [N, k]
        dtype = dtype_of(self.laplacian_encoder[0])  # type: ignore[index]
        pairs = torch.stack([vectors, values], 2).to(dtype)  # [N, k, 2]
        real = (
            torch.arange(self.laplacian_dim, device=pairs.device) < batch.sizes[batch.batch, None]
        )  # a graph of n nodes has n of them
        return (self.laplacian_encoder(pairs).relu() * real[..., None]).sum(1)

    def links(self, batch: GraphBatch, edges: Tensor, kinds: Tensor) -> Links:
        """Sources and targets [L] of attention, and the features of each link, [L, d].

        `edges` [E, d]: features of the edges of the graph; `kinds` [2 + 2 V, d]: of each kind of link.

        Virtual node v of graph b is number N + v B + b; a target beyond the last is that of an edge that is none.
        """
        nodes, total = (
            torch.arange(batch.num_nodes, device=batch.ptr.device),
            batch.num_nodes + self.num_virtual * batch.num_graphs,
        )
        sources, targets = [batch.edge_index[0]], [batch.edge_index[1]]
        features = [edges]

        def add(source: Tensor, target: Tensor, kind: int) -> None:
            sources.append(source)
            targets.append(target)
            features.append(kinds[kind].expand(source.numel(), -1))

        if self.self_loops:
            add(nodes, nodes, 0)
        if self.expander_degree:
            local = batch.encoding("expander", self.expander_degree).long()  # [N, degree]
            real, here = local >= 0, nodes[:, None].expand_as(local)
            there = torch.where(real, local + batch.ptr[batch.batch][:, None], 0)
            add(there.flatten(), torch.where(real, here, total).flatten(), 1)
            add(here.flatten(), torch.where(real, there, total).flatten(), 1)
        for v in range(self.num_virtual):
            virtual = batch.num_nodes + v * batch.num_graphs + batch.batch
            add(nodes, virtual, 2 + v)
            add(virtual, nodes, 2 + self.num_virtual + v)
        return torch.cat(sources), torch.cat(targets), torch.cat(features)

    def forward_head(self, features: Tensor, batch: GraphBatch) -> Tensor:
        """Pooled at graph level, then the head: [N, d] -> [B, out_dim] or [N, out_dim]."""
        return self.head(pool(features, batch, self.pooling) if self.level == "graph" else features)


class ExphormerLayer(nn.Module):
    """x + messages and x + attention, each normalised, added; then a feed-forward layer with residual and norm."""

    def __init__(self, hidden_dim: int, num_heads: int, local_layer: str, with_edges: bool, dropout: float):
        super().__init__()
        self.local_layer, self.with_edges = (
            local_layer,
            with_edges and local_layer == "gat",
        )  # GCN ignores edge features
        self.local: nn.Module | None = None
        if local_layer == "gat":
            edge_dim = hidden_dim if self.with_edges else None
            self.local = GATConv(
                hidden_dim, hidden_dim // num_heads, num_heads, add_self_loops=False, edge_dim=edge_dim
            )
        elif local_layer == "gcn":
            self.local = GCNConv(hidden_dim, hidden_dim, normalize=False)
        elif local_layer == "gatedgcn":
            self.local = GatedGCNLayer(hidden_dim, 0.0, True)
        self.local_norm = None if self.local is None else nn.BatchNorm1d(hidden_dim)
        self.attention, self.attn_norm = SparseAttention(hidden_dim, num_heads), nn.BatchNorm1d(hidden_dim)
        self.ffn_in, self.ffn_out = nn.Linear(hidden_dim, 2 * hidden_dim), nn.Linear(2 * hidden_dim, hidden_dim)
        self.ffn_norm, self.dropout = nn.BatchNorm1d(hidden_dim), nn.Dropout(dropout)

    def reset_parameters(self) -> None:
        for module in self.children():
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()

    def forward(
        self, x: Tensor, virtual: Tensor, edges: Tensor, links: Links, batch: GraphBatch
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Nodes [N, d], virtual nodes [V B, d] and edges [E, d] -> the next ones. `links`: see `Exphormer.links`."""
        received = self.attention(torch.cat([x, virtual]), links)  # [N + V B, d]
        h = self.attn_norm(x + self.dropout(received[: len(x)]))
        if self.local_layer == "gatedgcn":
            nodes, after = self.local(x, edges, batch.edge_index)  # with residuals, to which dropout belongs
            h, edges = h + self.local_norm(x + self.dropout(nodes - x)), edges + self.dropout(after - edges)
        elif self.local is not None:
            h = h + self.local_norm(x + self.dropout(self._pass_messages(x, edges, batch)))
        h = self.ffn_norm(h + self.dropout(self.ffn_out(self.dropout(self.ffn_in(h).relu()))))
        return h, received[len(x) :], edges

    def _pass_messages(self, x: Tensor, edges: Tensor, batch: GraphBatch) -> Tensor:
        if self.local_layer == "gcn":
            return self.local(x, *normalised_edges(batch, x.dtype))
        return attend(self.local, x, with_self_loops(x, batch.edge_index, edges if self.with_edges else None))


class SparseAttention(nn.Module):
    """Attention along links, [N, d] -> [N, d], without biases (see `Exphormer`)."""

    def __init__(self, hidden_dim: int, num_heads: int):
        super().__init__()
        self.num_heads = num_heads
        self.query, self.key, self.value, self.edge = (nn.Linear(hidden_dim, hidden_dim, bias=False) for _ in range(4))

    def reset_parameters(self) -> None:
        for module in (self.query, self.key, self.value, self.edge):
            module.reset_parameters()

    def forward(self, x: Tensor, links: Links) -> Tensor:
        """Attention along links.

        Args:
            x: [N, d].
            links: sources and targets [L], and the features of each link [L, d]. A target that is no row of x is
                dropped.

        Returns:
            [N, d].
        """
        source, target, features = links
        q, k, v, e = (
            t.unflatten(1, (self.num_heads, -1))
            for t in (self.query(x), self.key(x), self.value(x), self.edge(features))
        )
        product = k[source] * q[target.clamp(max=len(x) - 1)] * e  # [L, H, d_h]
        score = (product.sum(2) / q.size(2) ** 0.5).clamp(-5, 5).exp()  # [L, H]
        received = sum_over_edges(score[..., None] * v[source], target, len(x))  # [N, H, d_h]
        return (received / (sum_over_edges(score, target, len(x))[..., None] + 1e-6)).flatten(1)
