"""TokenGT: a plain Transformer on node and edge tokens (Kim et al. 2022), https://arxiv.org/abs/2207.02505.

Section 2: with orthonormal node identifiers P and trainable type identifiers E, a node v is the token
[X_v, P_v, P_v, E_V] and an edge (u, v) is [X_uv, P_u, P_v, E_E]. They are the rows of X^in. The input of the encoder is
Z^(0) = [X_graph; X^in w^in], and its layers are PreLN: H = Z + MSA(LN(Z)), Z' = H + MLP(LN(H)).

Section 3: self-attention then approximates every equivariant linear layer. For order k a token has k node identifiers.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from gt_models.batch import GraphBatch
from gt_models.layers import identifiers as ids
from gt_models.layers.dropout import Dropout
from gt_models.layers.eigenvectors import drop_eigenvectors, laplacian_eigenvectors
from gt_models.layers.equivariant_basis import bell, equality_pattern
from gt_models.layers.features import FeatureEncoder
from gt_models.layers.packing import Packing
from gt_models.layers.precision import dtype_of
from gt_models.layers.settings import at_least, check_rates
from gt_models.layers.static_shapes import needs_static_shapes
from gt_models.layers.transformer import EncoderLayer
from gt_models.registry import Registration, register_model

NodeIdentifiers = Literal[
    "laplacian", "orf", "near-orf", "random", "orf-first-order", "random-first-order", "given", "none"
]
REGISTERED: Registration = {
    "levels": ("graph", "node", "edge", "hyperedge"),
    "cost": "(n + m)^2 d, or (n + m) d^2 with Performer",
    "encodings": ("laplacian_eigenvectors",),
    "sparse_x": True,
    "paper": "Kim et al.: Pure Transformers are Powerful Graph Learners, NeurIPS 2022. "
    "https://arxiv.org/abs/2207.02505",
}


@register_model("tokengt", **REGISTERED)
class TokenGT(nn.Module):
    """Node, edge or hyperedge tokens through a PreLN Transformer.

    Args:
        in_dim: width of continuous node features, or vocabulary sizes of categorical columns.
        out_dim: width of the prediction.
        level: "graph" reads the [graph] token; "node", "edge" and "hyperedge" read the tokens of their kind. The tokens
            of "hyperedge" are nodes and hyperedges, `extras["hyperedge_index"]` (or an attribute of a torch_geometric
            Data), long [H, order], node ids of the batch, all of a row in one graph.
        edge_dim: as `in_dim`, of edge features; with hyperedges, of `extras["hyperedge_attr"]`. None if there are none.
        hidden_dim: width d of the tokens.
        num_heads: number of heads.
        num_layers: number of layers.
        ffn_dim: width of the feed-forward layers. None for `hidden_dim`.
        node_identifiers: "laplacian" reads the encoding "laplacian_eigenvectors"; "orf", "near-orf" and "random" are
            drawn in every forward pass; with the first-order variants each token has its own vector instead of those of
            its nodes; "given" reads the encoding "node_identifiers" [N, d_p]; "none".
        node_id_dim: number of channels d_p of a node identifier.
        type_identifiers: whether tokens have a trainable vector of their kind, the equality pattern of their nodes.
        order: number of nodes per token, k. Above 2, tokens are nodes and `extras["hyperedge_index"]`, and `edge_index`
            is not read.
        graph_token: whether each graph has a [graph] token.
        dropout: rate of dropout on the input, after attention and after the feed-forward layer.
        attn_dropout: rate of dropout on attention weights.
        activation_dropout: rate of dropout after the GELU.
        drop_path: rate of stochastic depth at the last layer; it rises linearly.
        sign_flip: whether, in training, each eigenvector of a graph gets a random sign.
        eigenvector_dropout: rate at which, in training, eigenvectors of a graph are dropped.
        attention: "softmax" or "performer", whose gradient does not flow through the stabiliser of its features
            (authors: jw9730/tokengt, large-scale-regression/tokengt/modules/performer_pytorch.py, lines 79 and 81).
        num_features: number of random features of the Performer. None for int(d_h ln d_h).
        redraw_interval: training forward passes between two draws of the random features. None never draws again.
        sparse_equivariant_basis: after each layer, the sum of its outgoing edge tokens is added to a node token (SEB).

    Raises:
        ValueError: arguments do not fit each other.
        MissingEncoding: in `forward`, if the encoding of the identifiers is missing or too narrow.
    """

    def __init__(
        self,
        in_dim: int | Sequence[int],
        out_dim: int,
        level: Literal["graph", "node", "edge", "hyperedge"] = "graph",
        edge_dim: int | Sequence[int] | None = None,
        hidden_dim: int = 768,
        num_heads: int = 32,
        num_layers: int = 12,
        ffn_dim: int | None = None,
        node_identifiers: NodeIdentifiers = "laplacian",
        node_id_dim: int = 16,
        type_identifiers: bool = True,
        order: int = 2,
        graph_token: bool = True,
        dropout: float = 0.0,
        attn_dropout: float = 0.0,
        activation_dropout: float = 0.0,
        drop_path: float = 0.0,
        sign_flip: bool = True,
        eigenvector_dropout: float = 0.0,
        attention: Literal["softmax", "performer"] = "softmax",
        num_features: int | None = None,
        redraw_interval: int | None = 1000,
        sparse_equivariant_basis: bool = False,
    ):
        super().__init__()
        if node_identifiers not in NodeIdentifiers.__args__:
            raise ValueError(
                f"unknown node identifiers {node_identifiers!r}; known: {', '.join(NodeIdentifiers.__args__)}"
            )
        if level == "graph" and not graph_token:
            raise ValueError("a prediction for the graph is read from the [graph] token: set graph_token to True")
        if num_layers < 1 or node_id_dim < 1:
            raise ValueError(f"num_layers {num_layers}, node_id_dim {node_id_dim}: give at least one of each")
        if order < 2 or (order > 2 and level == "edge"):
            raise ValueError(
                f"order {order} with level {level!r}: order is 2 or more, and above 2 the tokens are hyperedges, not "
                "edges"
            )
        at_least(1, hidden_dim=hidden_dim, ffn_dim=ffn_dim)
        check_rates(eigenvector_dropout=eigenvector_dropout)
        if sparse_equivariant_basis and (order > 2 or level == "hyperedge"):
            raise ValueError("the sparse equivariant basis adds edge tokens to node tokens: it needs order 2 and edges")
        self.level, self.order, self.hyperedges = level, order, order > 2 or level == "hyperedge"
        self.node_identifiers, self.node_id_dim = node_identifiers, node_id_dim
        self.sign_flip, self.eigenvector_dropout = sign_flip, eigenvector_dropout
        self.sparse_equivariant_basis = sparse_equivariant_basis

        # deviates: w_in is one matrix over [X, P, P, E] in the paper; here one block per part, as in the
        # implementation, and node and edge features have encoders of their own, since their widths differ. The
        # functions are the same.
        self.node_encoder = FeatureEncoder(in_dim, hidden_dim, bias=False)
        self.edge_encoder = None if edge_dim is None else FeatureEncoder(edge_dim, hidden_dim, bias=False)
        copies = 1 if node_identifiers.endswith("first-order") else order
        self.identifier_encoder = (
            None if node_identifiers == "none" else nn.Linear(copies * node_id_dim, hidden_dim, bias=False)
        )
        # deviates: E is d_e = d wide and goes through w_in in the paper; it is added here, which reaches the same
        # vectors
        self.type_encoder = nn.Embedding(bell(order), hidden_dim) if type_identifiers else None
        self.graph_token = nn.Parameter(torch.empty(1, hidden_dim)) if graph_token else None
        self.dropout = Dropout(dropout)
        # unstated: the width of the feed-forward layer; d as in the implementation (and 48.5M parameters as printed)
        ffn_dim, rates = ffn_dim or hidden_dim, [drop_path * (layer + 1) / num_layers for layer in range(num_layers)]
        dropouts, features = (dropout, attn_dropout, activation_dropout), (attention, num_features, redraw_interval)
        self.layers = nn.ModuleList(
            EncoderLayer(hidden_dim, num_heads, ffn_dim, *dropouts, rate, *features) for rate in rates
        )
        self.build_output(hidden_dim, out_dim)
        self.reset_parameters()

    def build_output(self, hidden_dim: int, out_dim: int) -> None:
        """What follows the layers: a layer norm and a linear head."""
        self.final_norm = nn.LayerNorm(hidden_dim)
        self.head = nn.Linear(hidden_dim, out_dim)

    def special_tokens(self) -> list[Tensor]:
        """Trainable tokens before a graph's nodes, [1, d] each."""
        return [] if self.graph_token is None else [self.graph_token]

    def reset_parameters(self) -> None:
        """Normal(0, 0.02) matrices and embeddings, zero biases, norms at one."""
        # unstated: the paper names no initialisation; this is the implementation's
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
                if isinstance(module, nn.Linear) and module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.LayerNorm) or hasattr(module, "redraw"):
                module.reset_parameters()
        for token in self.special_tokens():
            nn.init.normal_(token, std=0.02)

    def forward(self, batch: GraphBatch, identifiers: Tensor | None = None) -> Tensor:
        """Predictions [B, out], [N, out], [E, out] or [H, out] by level.

        `identifiers`: node identifiers to use in place of drawn ones.
        """
        batch = GraphBatch.of(batch)
        return self.forward_head(self.forward_features(batch, identifiers), batch)

    def forward_features(self, batch: GraphBatch, identifiers: Tensor | None = None) -> Tensor:
        """The tokens that the level reads, after the encoder: [B, d], [N, d], [E, d] or [H, d]."""
        batch = GraphBatch.of(batch)
        tuples = ids.node_tuples(batch, self.order, self.hyperedges)  # [M, k], nodes first
        packing, places = self._pack(batch, tuples)
        z = self.dropout(self.tokens(batch, tuples, packing, places, identifiers))  # Z^(0), [T, d]
        for layer in self.layers:
            if layer.attn.features is not None:
                layer.attn.features.step()
        for layer in self.layers[:-1] if self.level == "graph" else self.layers:
            z = layer(z, packing)
            if self.sparse_equivariant_basis:
                z = self._add_edges_to_nodes(z, batch, places)
        if self.level == "graph":  # of the last layer only the [graph] tokens are read, so only they are computed
            z = self.layers[-1](z, packing, first_only=True).index_select(0, packing.rank)  # [B, d]
        else:
            z = z.index_select(0, places[: batch.num_nodes] if self.level == "node" else places[batch.num_nodes :])
        return self.final_norm(z)

    def forward_head(self, features: Tensor, batch: GraphBatch) -> Tensor:
        """[..., d] -> [..., out], in the precision of the weights: bfloat16 is too coarse for PCQM4Mv2's targets."""
        with torch.autocast(features.device.type, enabled=False):
            return self.head(features.to(dtype_of(self.head)))

    def tokens(
        self, batch: GraphBatch, tuples: Tensor, packing: Packing, places: Tensor, identifiers: Tensor | None
    ) -> Tensor:
        """X^in w^in of nodes and edges, and the special tokens: Z^(0), [T, d].

        `tuples` [M, k] are the nodes and edges, `places` their rows in Z^(0).
        """
        rows = self.node_encoder(batch.x)  # [N, d]
        if self.edge_encoder is None:
            rows = torch.cat([rows, rows.new_zeros(len(tuples) - len(rows), rows.size(1))])
        else:
            rows = torch.cat([rows, self.edge_encoder(batch.edge_features(self.hyperedges))])  # [M, d]
        if self.identifier_encoder is not None:
            rows = rows + self._encode_identifiers(batch, tuples, packing, places, identifiers).to(rows.dtype)
        if self.type_encoder is not None:
            # row 0: all nodes differ; last row: one node
            rows = rows + self.type_encoder(equality_pattern(tuples)).to(rows.dtype)
        specials = [token.to(rows.dtype).expand(batch.num_graphs, -1) for token in self.special_tokens()]
        place = torch.cat([places, *(packing.start + i for i in range(len(specials)))])  # of each row in Z
        source = torch.empty_like(place).scatter(0, place, torch.arange(place.numel(), device=place.device))
        return torch.cat([rows, *specials]).index_select(0, source)  # [T, d]

    def _encode_identifiers(
        self, batch: GraphBatch, tuples: Tensor, packing: Packing, places: Tensor, identifiers: Tensor | None
    ) -> Tensor:
        """[P_v1, ..., P_vk] of each token through its block of w_in, [M, d]."""
        dtype = dtype_of(self.identifier_encoder)
        if not self.node_identifiers.endswith("first-order"):
            identifiers = self.draw_identifiers(batch) if identifiers is None else identifiers  # [N, d_p]
            # one row for each token: its nodes' identifiers side by side, [M, k d_p]
            identifiers = torch.cat([identifiers.index_select(0, nodes) for nodes in tuples.T], 1)
            return self.identifier_encoder(identifiers.to(dtype))
        if identifiers is None:  # one vector for each token
            owner, specials = batch.batch[tuples[:, 0]], len(self.special_tokens())  # [M]
            local = places - packing.start[owner] - specials
            identifiers = self._draw(
                packing.counts - specials, owner, local, packing.groups[0].length - specials, dtype
            )
        return self.identifier_encoder(identifiers.to(dtype))

    def draw_identifiers(self, batch: GraphBatch) -> Tensor:
        """Node identifiers P [N, d_p] of a forward pass.

        They are drawn, or read from the batch, with random signs and dropout in training.
        """
        if self.node_identifiers == "given":
            return batch.encoding("node_identifiers", self.node_id_dim)
        if self.node_identifiers != "laplacian":
            return self._draw(batch.sizes, batch.batch, batch.local, batch.max_nodes, dtype_of(self.identifier_encoder))
        vectors = laplacian_eigenvectors(batch, self.node_id_dim, flip=self.training and self.sign_flip)
        return self.drop_eigenvectors(vectors, batch) if self.training and self.eigenvector_dropout else vectors

    def drop_eigenvectors(self, vectors: Tensor, batch: GraphBatch) -> Tensor:
        """[N, k] -> [N, k]: whole eigenvectors of a graph are dropped."""
        return drop_eigenvectors(vectors, self.eigenvector_dropout, batch.batch, batch.num_graphs)

    def _draw(self, sizes: Tensor, owner: Tensor, local: Tensor, max_size: int, dtype: torch.dtype) -> Tensor:
        # unstated: how often identifiers are drawn; in every forward, also at evaluation, as the implementation does
        kind = self.node_identifiers.removesuffix("-first-order")
        if kind == "orf":
            return self.orthogonal_rows(sizes, owner, local, max_size, self.node_id_dim, dtype)
        rows = ids.near_orthogonal_rows if kind == "near-orf" else ids.random_rows
        return rows(owner.numel(), self.node_id_dim, dtype, owner.device)

    orthogonal_rows = staticmethod(ids.orthogonal_rows)

    def _pack(self, batch: GraphBatch, tuples: Tensor) -> tuple[Packing, Tensor]:
        """The packing, and the place of each token of `tuples` in it, long [M].

        A graph's tokens: special ones, nodes, (hyper)edges.
        """
        specials, edge_graph = len(self.special_tokens()), batch.batch[tuples[batch.num_nodes :, 0]]  # [E]
        edges = torch.zeros_like(batch.sizes).index_add_(0, edge_graph, torch.ones_like(edge_graph))  # [B]
        bound = batch.max_nodes + specials + (edge_graph.numel() if self.hyperedges else batch.max_edges)
        longest, total = bound if needs_static_shapes(batch.ptr) else None, len(tuples) + batch.num_graphs * specials
        # one padded group, or groups of similar length
        packing = Packing.of(batch.sizes + edges + specials, total, longest)
        order = edge_graph.argsort(stable=True)
        ranks = torch.arange(order.numel(), device=order.device) - (edges.cumsum(0) - edges)[edge_graph[order]]
        rank = torch.empty_like(order).scatter(0, order, ranks)  # of an edge among the edges of its graph
        return packing, specials + torch.cat(
            [packing.start[batch.batch] + batch.local, (packing.start + batch.sizes)[edge_graph] + rank]
        )

    def _add_edges_to_nodes(self, x: Tensor, batch: GraphBatch, places: Tensor) -> Tensor:
        """SEB: X_ii += sum over j != i of X_ij, [T, d]; a self-loop (i, i) is no edge here."""
        # unstated: whether edges run to or from i where they have a direction; from i, as the indices are written
        source, target = batch.edge_index
        edges = x.index_select(0, places[batch.num_nodes :]) * (source != target).to(x.dtype)[:, None]  # [E, d]
        return x.index_add(0, places[source], edges)
