"""Graphormer (Ying et al. 2021, "Do Transformers Really Perform Badly for Graph Representation?").

Softmax attention over nodes with centrality (Eq. 5), spatial (Eq. 6) and edge encodings (Eq. 7) and a graph token.
"""

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gt_models.batch import GraphBatch
from gt_models.layers.dropout import Dropout
from gt_models.layers.features import FeatureEncoder
from gt_models.layers.gnn import check_level
from gt_models.layers.graph_model import GraphModel
from gt_models.layers.pair_dropout import PairDropout
from gt_models.layers.precision import dtype_of
from gt_models.layers.settings import at_least
from gt_models.registry import register_model


@register_model(
    "graphormer",
    levels=("graph", "node"),
    cost="n^2 d",
    encodings=("shortest_path_distance", "shortest_path_edges"),
    sparse_x=True,
)
class Graphormer(GraphModel):
    """Predicts [B, out_dim] (graph, from the graph token) or [N, out_dim] (node).

    Args:
        in_dim, edge_dim: node and edge features (see `FeatureEncoder`); `edge_dim` None: no edge encoding.
        out_dim: width of the prediction.
        level: "graph" or "node".
        hidden_dim, num_layers, num_heads, ffn_dim: width d, which `num_heads` must divide; `ffn_dim` None is d.
        max_distance: distances of the encoding "shortest-path" have a bias each up to here, longer ones the last one's;
            pairs without a path have their own. The encoding must not be cut below it.
        path_length: edges of a shortest path that the edge encoding reads (`path_length` of the encoding
            "shortest-path", or fewer).
        max_degree: in- and out-degrees have an embedding each up to here, higher ones the last one's.
        dropout: on the input, after attention and after the feed-forward layer.
        attn_dropout, activation_dropout: on attention weights; after the GELU.
        norm: "post", LN(x + branch(x)) (the implementation's default), or "pre", x + branch(LN(x)) (paper, Eqs. 8 and
            9).
        embedding_norm: layer norm before the first layer (implementation).
        final_norm: layer norm after the last layer (for "pre").
        build_unused: build what the implementation has and never reads: a pooler, and edge-path weights up to 128 edges
            (for its parameter counts only).

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
        hidden_dim: int = 80,
        num_layers: int = 12,
        num_heads: int = 8,
        ffn_dim: int | None = None,
        max_distance: int = 20,
        path_length: int = 5,
        max_degree: int = 64,
        dropout: float = 0.0,
        attn_dropout: float = 0.0,
        activation_dropout: float = 0.0,
        norm: Literal["post", "pre"] = "post",
        embedding_norm: bool = True,
        final_norm: bool = False,
        build_unused: bool = False,
    ):
        super().__init__()
        check_level("graphormer", level, "sum", num_layers)
        at_least(1, hidden_dim=hidden_dim, ffn_dim=ffn_dim)
        if norm not in ("post", "pre"):
            raise ValueError(f"unknown norm {norm!r}; known: post, pre")
        if min(max_distance, path_length, max_degree) < 1:
            raise ValueError(
                f"max_distance {max_distance}, path_length {path_length}, max_degree {max_degree}: give at least 1 each"
            )
        self.level, self.num_heads = level, num_heads
        self.max_distance, self.path_length, self.max_degree = max_distance, path_length, max_degree
        self.node_encoder = FeatureEncoder(in_dim, hidden_dim)
        self.in_degree, self.out_degree = (nn.Embedding(max_degree + 1, hidden_dim) for _ in range(2))
        self.graph_token = nn.Parameter(torch.empty(hidden_dim))
        self.distance_bias = nn.Embedding(max_distance + 2, num_heads)  # the last row: no path
        self.token_bias = nn.Parameter(torch.empty(num_heads))
        # unstated: d_E of Eq. 7; one channel a head, which an H x H matrix for each place on the path mixes, as in the
        # implementation
        self.edge_encoder = None if edge_dim is None else FeatureEncoder(edge_dim, num_heads)
        places = 128 if build_unused else path_length
        self.path_weight = None if edge_dim is None else nn.Parameter(torch.empty(places, num_heads, num_heads))
        self.embedding_norm = nn.LayerNorm(hidden_dim) if embedding_norm else None
        self.dropout = Dropout(dropout)
        self.layers = nn.ModuleList(
            GraphormerLayer(
                hidden_dim, num_heads, ffn_dim or hidden_dim, dropout, attn_dropout, activation_dropout, norm == "pre"
            )
            for _ in range(num_layers)
        )
        self.final_norm = nn.LayerNorm(hidden_dim) if final_norm else None
        # unstated: the head; Linear, GELU, LN, Linear without bias, one scalar bias, as in the implementation
        self.head_in, self.head_norm = nn.Linear(hidden_dim, hidden_dim), nn.LayerNorm(hidden_dim)
        self.head_out, self.head_bias = nn.Linear(hidden_dim, out_dim, bias=False), nn.Parameter(torch.zeros(1))
        self.unused = nn.Linear(hidden_dim, hidden_dim) if build_unused else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Normal(0, 0.02) matrices, embeddings and tokens, zero biases, norms at one."""
        # unstated: initialisation; the implementation's for linear maps and embeddings
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
                if isinstance(module, nn.Linear) and module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.LayerNorm):
                module.reset_parameters()
        nn.init.zeros_(self.head_bias)
        for parameter in (self.graph_token, self.token_bias, self.path_weight):
            if parameter is not None:
                nn.init.normal_(parameter, std=0.02)

    def forward_features(self, batch: GraphBatch) -> Tensor:
        """Graph tokens [B, d] or nodes [N, d] after the last layer."""
        nodes = self.node_encoder(batch.x)  # [N, d]
        for ends, table in zip(batch.edge_index, (self.out_degree, self.in_degree), strict=True):
            degree = torch.zeros_like(batch.batch).index_add(0, ends, torch.ones_like(ends, dtype=torch.long))
            nodes = nodes + table(degree.clamp(max=self.max_degree))  # Eq. 5
        tokens, place, first = with_tokens(batch)
        x = nodes.new_zeros(tokens.num_nodes, nodes.size(1)).index_copy(0, place, nodes)  # [T, d]
        x = x.index_copy(0, first, self.graph_token.to(nodes.dtype).expand(batch.num_graphs, -1))
        x = self.dropout(x if self.embedding_norm is None else self.embedding_norm(x))
        bias = self.bias(batch, tokens, place).to(x.dtype)
        for layer in self.layers:
            x = layer(x, bias, tokens)
        x = x.index_select(0, first if self.level == "graph" else place)
        return x if self.final_norm is None else self.final_norm(x)

    def forward_head(self, features: Tensor, batch: GraphBatch) -> Tensor:
        """[B, d] or [N, d] -> [B, out_dim] or [N, out_dim], in the weights' own precision."""
        with torch.autocast(features.device.type, enabled=False):  # see TokenGT.forward_head
            features = features.to(dtype_of(self.head_in))
            return self.head_out(self.head_norm(F.gelu(self.head_in(features)))) + self.head_bias

    def bias(self, batch: GraphBatch, tokens: GraphBatch, place: Tensor) -> Tensor:
        """Bias of attention from token i to token j, [sum (1 + n_b)^2, H]; `tokens`, `place`: see `with_tokens`.

        The implementation also adds, twice, a bias of the data's own, which is zero for all pairs.
        """
        pairs = self.pair_bias(batch)  # [P, H]
        near_token = torch.stack([tokens.local[end] == 0 for end in tokens.pair_nodes]).any(
            0
        )  # either end is the graph token
        bias = near_token[:, None] * self.token_bias.to(pairs.dtype)
        first, second = batch.pair_nodes
        return bias.index_copy(0, tokens.pair_of(place[first], place[second]), pairs)

    def pair_bias(self, batch: GraphBatch) -> Tensor:
        """`b` of Eq. 6 plus c of Eq. 7 for all ordered pairs, [sum n_b^2, H]."""
        distance = batch.encoding("shortest_path_distance", 1)[:, 0]  # [P], -1 without a path
        bias = self.distance_bias(
            torch.where(distance < 0, self.max_distance + 1, distance.clamp(max=self.max_distance))
        )
        if self.edge_encoder is None:
            return bias
        path = batch.encoding("shortest_path_edges", self.path_length)  # [P, K], -1 beyond the end
        # one row of zeros, which -1 finds
        edges = F.pad(self.edge_encoder(batch.edge_features()), (0, 0, 0, 1))  # [E + 1, H]
        if isinstance(self.edge_encoder.in_dim, tuple):
            edges = edges / len(
                self.edge_encoder.in_dim
            )  # unstated: several columns; their mean, as in the implementation
        # each edge through the weights of each place: E K products instead of P K
        placed = torch.einsum("eh,khg->keg", edges, self.path_weight[: self.path_length].to(edges.dtype))  # type: ignore[index]  # [K, E + 1, H]
        steps = torch.arange(self.path_length, device=path.device) * edges.size(0)
        rows = torch.where(path < 0, edges.size(0) - 1, path) + steps  # [P, K]
        read = placed.flatten(0, 1).index_select(0, rows.flatten()).view(*rows.shape, self.num_heads).sum(1)  # [P, H]
        # deviates: Eq. 7 divides by the length of the path; where only its first K edges are read, by K
        # (implementation)
        return bias + read / distance.clamp(1, self.path_length)[:, None].to(read.dtype)


def with_tokens(batch: GraphBatch) -> tuple[GraphBatch, Tensor, Tensor]:
    """Graphs with a token before their nodes, without features and edges.

    The place of each node [N] and of each graph's token [B] in them.
    """
    ptr, num_nodes = batch.ptr + torch.arange(batch.num_graphs + 1, device=batch.ptr.device), batch.num_nodes
    features, edges = batch.ptr.new_empty(num_nodes + batch.num_graphs, 0), batch.edge_index.new_empty(2, 0)
    tokens = type(batch)(features, edges, ptr)  # a padded batch has pairs that belong to no graph
    # known already: no synchronisation and no graph break
    tokens.max_nodes = batch.max_nodes + 1
    tokens.num_pairs = batch.num_pairs + 2 * num_nodes + batch.num_graphs
    return tokens, torch.arange(num_nodes, device=ptr.device) + batch.batch + 1, ptr[:-1]


class GraphormerLayer(nn.Module):
    """Attention with bias, then a feed-forward layer, norms before (Eqs. 8 and 9) or after: [T, d] -> [T, d]."""

    def __init__(
        self,
        hidden_dim: int,
        num_heads: int,
        ffn_dim: int,
        dropout: float,
        attn_dropout: float,
        activation_dropout: float,
        pre_norm: bool,
    ):
        super().__init__()
        self.pre_norm = pre_norm
        self.attention = BiasedAttention(hidden_dim, num_heads, attn_dropout)
        self.attn_norm, self.ffn_norm = nn.LayerNorm(hidden_dim), nn.LayerNorm(hidden_dim)
        self.ffn_in, self.ffn_out = nn.Linear(hidden_dim, ffn_dim), nn.Linear(ffn_dim, hidden_dim)
        self.dropout, self.activation_dropout = Dropout(dropout), Dropout(activation_dropout)

    def forward(self, x: Tensor, bias: Tensor, tokens: GraphBatch) -> Tensor:
        """`x`: tokens [T, d]; `bias`: see `Graphormer.bias`; `tokens`: which belong together."""
        if self.pre_norm:
            x = x + self.dropout(self.attention(self.attn_norm(x), bias, tokens))
            return x + self.feed_forward(self.ffn_norm(x))
        x = self.attn_norm(x + self.dropout(self.attention(x, bias, tokens)))
        return self.ffn_norm(x + self.feed_forward(x))

    def feed_forward(self, x: Tensor) -> Tensor:
        """W2 gelu(W1 x) with its dropouts, [T, d] -> [T, d]."""
        return self.dropout(self.ffn_out(self.activation_dropout(F.gelu(self.ffn_in(x)))))


class BiasedAttention(nn.Module):
    """softmax(q k^T / sqrt(d_h) + bias) v per head, among the tokens of each graph (Eqs. 3 and 6)."""

    def __init__(self, hidden_dim: int, num_heads: int, dropout: float):
        super().__init__()
        if num_heads < 1 or hidden_dim % num_heads:
            raise ValueError(
                f"hidden_dim {hidden_dim} does not split into {num_heads} heads: choose a multiple of num_heads"
            )
        self.num_heads, self.scale, self.dropout = num_heads, (hidden_dim // num_heads) ** -0.5, PairDropout(dropout)
        self.qkv, self.out = nn.Linear(hidden_dim, 3 * hidden_dim), nn.Linear(hidden_dim, hidden_dim)

    def forward(self, x: Tensor, bias: Tensor, tokens: GraphBatch) -> Tensor:
        """[T, d], [P, H] -> [T, d]."""
        # graph by graph and head by head, zero behind a graph's last token: [B, H, n, d_h] and [B, H, n, n]
        split = tokens.to_dense(self.qkv(x)).unflatten(2, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4).contiguous()
        q, k, v = split.unbind(0)
        scores = self.scale * q @ k.mT + tokens.pairs_to_dense(bias).permute(0, 3, 1, 2)  # Eq. 6
        weights = scores.masked_fill(~tokens.node_mask[:, None, None], -torch.inf).softmax(-1)
        y = self.dropout(weights.to(v.dtype), tokens) @ v
        return self.out(tokens.from_dense(y.transpose(1, 2).flatten(2)))
