"""TokenGT: a plain Transformer on node and edge tokens (Kim et al. 2022, "Pure Transformers are Powerful Graph Learners").

Section 2: node tokens [X_v, P_v, P_v, E_V], edge tokens [X_uv, P_u, P_v, E_E] and a [graph] token go through one projection and a standard
encoder. Section 3: with orthonormal P the layers approximate every equivariant linear layer; order k > 2 has tokens of k identifiers.
"""

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gt_models.batch import GraphBatch
from gt_models.nn import identifiers as ids
from gt_models.nn.dropout import Dropout
from gt_models.nn.equivariant_basis import bell, equality_pattern
from gt_models.nn.features import FeatureEncoder
from gt_models.nn.transformer import EncoderLayer, Packing
from gt_models.registry import register_model

NodeIdentifiers = Literal["laplacian", "orf", "near-orf", "random", "orf-first-order", "random-first-order", "given", "none"]


@register_model(
    "tokengt",
    levels=("graph", "node", "edge", "hyperedge"),
    cost="(n + m)^2 d, or (n + m) d^2 with Performer",
    encodings=("laplacian_eigenvectors",),
)
class TokenGT(nn.Module):
    """Node, edge or hyperedge tokens through a PreLN Transformer.

    Args:
        in_dim, edge_dim: node and edge features (see `FeatureEncoder`); `edge_dim` None where edges carry nothing. With hyperedges
            `edge_dim` is about `extras["hyperedge_attr"]`.
        out_dim: width of the prediction.
        level: "graph" reads the [graph] token, "node", "edge" and "hyperedge" the tokens of their kind. "hyperedge" has node and hyperedge
            tokens; `extras["hyperedge_index"]` (or an attribute of a torch_geometric Data) is long [H, order], node ids of the batch, all
            of a row in one graph.
        hidden_dim, num_heads, num_layers, ffn_dim: encoder; `ffn_dim` None is `hidden_dim`.
        node_identifiers: "laplacian" reads the encoding "laplacian_eigenvectors"; "orf", "near-orf" and "random" are drawn in every
            forward; the first-order variants give each token one vector of its own and not those of its nodes; "given" reads the encoding
            "node_identifiers" [N, d_p]; "none".
        node_id_dim: channels d_p of an identifier.
        type_identifiers: whether tokens carry a trainable vector of their kind, the equality pattern of their nodes (a self-loop is a
            node).
        order: nodes per token k; above 2 tokens are nodes and `extras["hyperedge_index"]`, and `edge_index` is not read.
        graph_token, null_token: whether each graph has a [graph] and a [null] token.
        dropout: on the input, after attention and after the feed-forward layer.
        attn_dropout, activation_dropout: on attention weights; after the GELU.
        drop_path: stochastic depth, rising linearly to this rate at the last layer.
        sign_flip: whether each eigenvector of each graph gets a random sign in training.
        eigenvector_dropout: rate in training, of whole eigenvectors of a graph ("eigenvector") or of single entries ("entry").
        attention: "softmax" or "performer"; num_features, redraw_interval: its random features (None: int(d_h ln d_h); never redrawn).
        sparse_equivariant_basis: after each layer a node token takes the sum of the edge tokens that leave it (SEB).
        orf_form: "graph", an n x n matrix for each graph, d_p random channels (paper); "batch", n_max x n_max with n_max the largest graph
            of the batch, the first d_p channels, rows of unit length (implementation; then a batch differs from its graphs alone).
        embedding_norm: layer norm on the tokens before the first layer (implementation).
        final_norm: layer norm after the last layer (paper).
        head: "linear" (paper), or "transform": Linear, GELU, LN, Linear without bias, and one scalar bias (implementation).
        build_unused: build the pooler and the final norm that the implementation has and never applies (for its parameter counts only).

    Raises:
        ValueError: for heads that do not divide the width, dropout on weights that the Performer does not have, other impossible choices.
        MissingEncoding: in forward, where the identifiers' encoding is absent or too narrow.
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
        null_token: bool = False,
        dropout: float = 0.0,
        attn_dropout: float = 0.0,
        activation_dropout: float = 0.0,
        drop_path: float = 0.0,
        sign_flip: bool = True,
        eigenvector_dropout: float = 0.0,
        eigenvector_dropout_unit: Literal["eigenvector", "entry"] = "eigenvector",
        attention: Literal["softmax", "performer"] = "softmax",
        num_features: int | None = None,
        redraw_interval: int | None = 1000,
        sparse_equivariant_basis: bool = False,
        orf_form: Literal["graph", "batch"] = "graph",
        embedding_norm: bool = False,
        final_norm: bool = True,
        head: Literal["linear", "transform"] = "linear",
        build_unused: bool = False,
    ):
        super().__init__()
        if node_identifiers not in NodeIdentifiers.__args__:
            raise ValueError(f"unknown node identifiers {node_identifiers!r}; known: {', '.join(NodeIdentifiers.__args__)}")
        if level == "graph" and not graph_token:
            raise ValueError("a prediction for the graph is read from the [graph] token: set graph_token to True")
        if num_layers < 1 or node_id_dim < 1:
            raise ValueError(f"num_layers {num_layers}, node_id_dim {node_id_dim}: give at least one of each")
        if order < 2 or (order > 2 and level == "edge"):
            raise ValueError(f"order {order} with level {level!r}: order is 2 or more, and above 2 the tokens are hyperedges, not edges")
        if sparse_equivariant_basis and (order > 2 or level == "hyperedge"):
            raise ValueError("the sparse equivariant basis adds edge tokens to node tokens: it needs order 2 and edges")
        if (
            eigenvector_dropout_unit not in ("eigenvector", "entry")
            or orf_form not in ("graph", "batch")
            or head not in ("linear", "transform")
        ):
            raise ValueError(
                f"eigenvector_dropout_unit {eigenvector_dropout_unit!r}, orf_form {orf_form!r}, head {head!r}: known are "
                "eigenvector or entry, graph or batch, linear or transform"
            )
        self.level, self.order, self.hyperedges = level, order, order > 2 or level == "hyperedge"
        self.node_identifiers, self.node_id_dim, self.orf_form = node_identifiers, node_id_dim, orf_form
        self.sign_flip, self.eigenvector_dropout, self.eigenvector_dropout_unit = sign_flip, eigenvector_dropout, eigenvector_dropout_unit
        self.sparse_equivariant_basis = sparse_equivariant_basis

        # deviates: w_in is one matrix over [X, P, P, E] in the paper; here one block per part, as in the implementation, and node and edge
        # features have encoders of their own, since their widths differ. The functions are the same.
        self.node_encoder = FeatureEncoder(in_dim, hidden_dim, bias=False)
        self.edge_encoder = None if edge_dim is None else FeatureEncoder(edge_dim, hidden_dim, bias=False)
        copies = 1 if node_identifiers.endswith("first-order") else order
        self.identifier_encoder = None if node_identifiers == "none" else nn.Linear(copies * node_id_dim, hidden_dim, bias=False)
        # deviates: E is d_e = d wide and goes through w_in in the paper; it is added here, which reaches the same vectors
        self.type_encoder = nn.Embedding(bell(order), hidden_dim) if type_identifiers else None
        self.graph_token = nn.Parameter(torch.empty(1, hidden_dim)) if graph_token else None
        self.null_token = nn.Parameter(torch.empty(1, hidden_dim)) if null_token else None
        self.num_specials = graph_token + null_token
        self.embedding_norm = nn.LayerNorm(hidden_dim) if embedding_norm else None
        self.dropout = Dropout(dropout)
        # unstated: the width of the feed-forward layer; d as in the implementation (and 48.5M parameters as printed)
        self.layers = nn.ModuleList(
            EncoderLayer(
                hidden_dim,
                num_heads,
                hidden_dim if ffn_dim is None else ffn_dim,
                dropout,
                attn_dropout,
                activation_dropout,
                drop_path * (layer + 1) / num_layers,
                attention,
                num_features,
                redraw_interval,
            )
            for layer in range(num_layers)
        )
        self.final_norm = nn.LayerNorm(hidden_dim) if final_norm else None
        self.head = nn.Linear(hidden_dim, out_dim) if head == "linear" else TransformHead(hidden_dim, out_dim)
        self.unused = nn.ModuleList([nn.Linear(hidden_dim, hidden_dim), nn.LayerNorm(hidden_dim)]) if build_unused else None
        self.reset_parameters()

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
            elif isinstance(module, TransformHead):
                nn.init.zeros_(module.bias)
        for token in (self.graph_token, self.null_token):
            if token is not None:
                nn.init.normal_(token, std=0.02)

    def forward(self, batch: GraphBatch, identifiers: Tensor | None = None) -> Tensor:
        """Predictions [B, out], [N, out], [E, out] or [H, out] by level. `identifiers`: node identifiers to use in place of drawn ones."""
        batch = GraphBatch.of(batch)
        return self.forward_head(self.forward_features(batch, identifiers), batch)

    def forward_features(self, batch: GraphBatch, identifiers: Tensor | None = None) -> Tensor:
        """The tokens that the level reads, after the encoder: [B, d], [N, d], [E, d] or [H, d]."""
        batch = GraphBatch.of(batch)
        tuples = self._tuples(batch)  # [M, k], nodes first
        if batch.num_graphs == 0:
            raise ValueError("the batch holds no graph: give at least one")
        packing, places = self._pack(batch, tuples)
        x = self._tokens(batch, tuples, packing, places, identifiers)  # [T, d]
        x = x if self.embedding_norm is None else self.embedding_norm(x)
        x = self.dropout(x)
        for layer in self.layers:
            if layer.attn.features is not None:
                layer.attn.features.step()
        for layer in self.layers[:-1] if self.level == "graph" else self.layers:
            x = layer(x, packing)
            if self.sparse_equivariant_basis:
                x = self._add_edges_to_nodes(x, batch, places)
        if self.level == "graph":  # of the last layer only the [graph] tokens are read, so only they are computed
            x = self.layers[-1](x, packing, first_only=True).index_select(0, packing.rank)  # [B, d]
        else:
            x = x.index_select(0, places[: batch.num_nodes] if self.level == "node" else places[batch.num_nodes :])
        return x if self.final_norm is None else self.final_norm(x)

    def forward_head(self, features: Tensor, batch: GraphBatch) -> Tensor:
        """[..., d] -> [..., out], in the weights' own precision: bfloat16 has steps of 1/32 where PCQM4Mv2's gaps are."""
        with torch.autocast(features.device.type, enabled=False):
            return self.head(features.to(next(self.head.parameters()).dtype))

    def load_softmax_state(self, state: dict[str, Tensor]) -> None:
        """Takes the weights of a TokenGT trained with softmax attention into this Performer model, to fine-tune it (appendix on PCQM4Mv2).

        Random features keep what this model drew; everything else must be there, and nothing more.

        Raises:
            ValueError: where this model has softmax attention, or names or shapes differ.
        """
        own = self.state_dict()
        drawn = {f"layers.{i}.attn.features.{name}" for i in range(len(self.layers)) for name in ("projection", "forwards")}
        if not drawn <= own.keys():
            raise ValueError("this model has softmax attention: build it with attention='performer', or use load_state_dict")
        missing, unknown = sorted(own.keys() - drawn - state.keys()), sorted(state.keys() - (own.keys() - drawn))
        shapes = [
            f"{k} {tuple(state[k].shape)} for {tuple(own[k].shape)}" for k in own.keys() & state.keys() if state[k].shape != own[k].shape
        ]
        if missing or unknown or shapes:
            raise ValueError(f"not the weights of this model with softmax attention: missing {missing}, unknown {unknown}, shapes {shapes}")
        self.load_state_dict({**state, **{name: own[name] for name in drawn}})

    def _tuples(self, batch: GraphBatch) -> Tensor:
        """Node ids of each token, long [M, k]: nodes as (v, ..., v), then edges or hyperedges."""
        nodes = torch.arange(batch.num_nodes, device=batch.x.device)[:, None].expand(-1, self.order)
        if not self.hyperedges:
            return torch.cat([nodes, batch.edge_index.T])
        hyperedges = _extra(batch, "hyperedge_index")
        if hyperedges is None:
            raise ValueError('hyperedge tokens need batch.extras["hyperedge_index"], long [H, order], the node ids of each hyperedge')
        if hyperedges.dim() != 2 or hyperedges.size(1) != self.order:
            raise ValueError(f"hyperedge_index of shape {tuple(hyperedges.shape)} in a model of order {self.order}: give [H, {self.order}]")
        if hyperedges.numel() and bool((hyperedges < 0).any() | (hyperedges >= batch.num_nodes).any()):
            raise ValueError(f"hyperedge_index names a node outside 0..{batch.num_nodes - 1}: it holds node ids of the whole batch")
        if hyperedges.numel() and (batch.batch[hyperedges] != batch.batch[hyperedges[:, :1]]).any():
            raise ValueError("a hyperedge joins nodes of two graphs: hyperedge_index must name nodes of the batch, not of each graph")
        return torch.cat([nodes, hyperedges])

    def _pack(self, batch: GraphBatch, tuples: Tensor) -> tuple[Packing, Tensor]:
        """The packing, and the place of each token of `tuples` in it, long [M]. A graph's tokens: [graph], [null], nodes, (hyper)edges."""
        edge_graph = batch.batch[tuples[batch.num_nodes :, 0]]  # [E]
        edges = torch.zeros_like(batch.sizes).index_add_(0, edge_graph, torch.ones_like(edge_graph))  # [B]
        num_tokens = tuples.size(0) + batch.num_graphs * self.num_specials
        # a compiler wants one padded group: how many groups there are would be another graph to compile for each batch
        longest = batch.max_nodes + self._most_edges(batch, tuples) + self.num_specials if torch.compiler.is_compiling() else None
        packing = Packing.of(batch.sizes + edges + self.num_specials, num_tokens, longest)
        order = edge_graph.argsort(stable=True)
        rank = torch.empty_like(order)  # of an edge among the edges of its graph
        rank[order] = torch.arange(order.numel(), device=order.device) - (edges.cumsum(0) - edges)[edge_graph[order]]
        node_place = packing.start[batch.batch] + self.num_specials + batch.local
        edge_place = (packing.start + self.num_specials + batch.sizes)[edge_graph] + rank
        return packing, torch.cat([node_place, edge_place])

    def _most_edges(self, batch: GraphBatch, tuples: Tensor) -> int:
        """At least as many as a graph has (hyper)edges, without asking the device."""
        return tuples.size(0) - batch.num_nodes if self.hyperedges else batch.max_edges

    def _tokens(self, batch: GraphBatch, tuples: Tensor, packing: Packing, places: Tensor, identifiers: Tensor | None) -> Tensor:
        """Input tokens Z^(0), [T, d]."""
        rows = self.node_encoder(batch.x)  # [N, d]
        num_edges = tuples.size(0) - batch.num_nodes
        features = _extra(batch, "hyperedge_attr") if self.hyperedges else batch.edge_attr
        if self.edge_encoder is None:
            rows = torch.cat([rows, rows.new_zeros(num_edges, rows.size(1))])
        elif features is None:
            where = 'extras["hyperedge_attr"]' if self.hyperedges else "edge_attr"
            raise ValueError(f"the model was built with edge_dim and the batch has no {where}: give it, or build with edge_dim=None")
        else:
            rows = torch.cat([rows, self.edge_encoder(features)])  # [M, d]
        if self.identifier_encoder is not None:
            rows = rows + self._encode_identifiers(batch, tuples, packing, places, identifiers, rows.dtype)
        if self.type_encoder is not None:
            # row 0: all nodes differ; last row: one node
            rows = rows + self.type_encoder(equality_pattern(tuples)).to(rows.dtype)
        source = [places]
        specials = [t for t in (self.graph_token, self.null_token) if t is not None]
        for i, token in enumerate(specials):
            rows = torch.cat([rows, token.to(rows.dtype).expand(batch.num_graphs, -1)])
            source.append(packing.start + i)
        source = torch.cat(source)  # place of each row
        inverse = torch.empty_like(source)
        inverse[source] = torch.arange(source.numel(), device=source.device)
        return rows.index_select(0, inverse)  # [T, d]

    def _encode_identifiers(
        self, batch: GraphBatch, tuples: Tensor, packing: Packing, places: Tensor, identifiers: Tensor | None, dtype: torch.dtype
    ) -> Tensor:
        """[P_v1, ..., P_vk] of each token through its block of w_in, [M, d]."""
        weight = self.identifier_encoder.weight
        if not self.node_identifiers.endswith("first-order"):
            if identifiers is None:
                identifiers = self.draw_identifiers(batch)  # [N, d_p]
            return self.identifier_encoder(identifiers.to(weight.dtype)[tuples].flatten(1)).to(dtype)
        if identifiers is None:  # one vector for each token
            owner = batch.batch[tuples[:, 0]]  # [M]
            local = places - packing.start[owner] - self.num_specials
            longest = packing.groups[0].length - self.num_specials
            identifiers = self._draw(packing.counts - self.num_specials, owner, local, longest, weight.dtype)
        return self.identifier_encoder(identifiers.to(weight.dtype)).to(dtype)

    def draw_identifiers(self, batch: GraphBatch) -> Tensor:
        """Node identifiers P [N, d_p] as a forward would use them now: drawn, or read from the batch with signs and dropout in training."""
        dtype = self.identifier_encoder.weight.dtype
        if self.node_identifiers == "given":
            return batch.encoding("node_identifiers", self.node_id_dim)
        if self.node_identifiers != "laplacian":
            return self._draw(batch.sizes, batch.batch, batch.local, batch.max_nodes, dtype)
        vectors = batch.encoding("laplacian_eigenvectors", self.node_id_dim)
        if not self.training:
            return vectors
        if self.sign_flip:
            vectors = ids.flip_signs(vectors, batch.batch, batch.num_graphs)
        if self.eigenvector_dropout == 0.0:
            return vectors
        if self.eigenvector_dropout_unit == "entry":
            return F.dropout(vectors, self.eigenvector_dropout)
        return ids.drop_eigenvectors(vectors, self.eigenvector_dropout, batch.batch, batch.num_graphs)

    def _draw(self, sizes: Tensor, owner: Tensor, local: Tensor, max_size: int, dtype: torch.dtype) -> Tensor:
        # unstated: how often identifiers are drawn; in every forward, also at evaluation, as the implementation does
        kind, width = self.node_identifiers.removesuffix("-first-order"), self.node_id_dim
        if kind == "near-orf":
            return ids.near_orthogonal_rows(owner.numel(), width, dtype, owner.device)
        if kind == "random":
            return ids.random_rows(owner.numel(), width, dtype, owner.device)
        if self.orf_form == "batch":
            return ids.orthogonal_rows_of_largest(sizes.numel(), owner, local, max_size, width, dtype)
        return ids.orthogonal_rows(sizes, owner, local, max_size, width, dtype)

    def _add_edges_to_nodes(self, x: Tensor, batch: GraphBatch, places: Tensor) -> Tensor:
        """SEB: X_ii += sum over j != i of X_ij, [T, d]; a self-loop (i, i) is no edge here."""
        # unstated: whether edges run to or from i where they have a direction; from i, as the indices are written
        source, target = batch.edge_index
        edges = x.index_select(0, places[batch.num_nodes :]) * (source != target).to(x.dtype)[:, None]  # [E, d]
        return x.index_add(0, places[source], edges)


def _extra(batch: GraphBatch, name: str) -> Tensor | None:
    """`batch.extras[name]`, or an attribute of that name of a torch_geometric Data; None where there is neither."""
    return batch.extras.get(name, batch.encodings.get(name))


class TransformHead(nn.Module):
    """The implementation's head: Linear, GELU, LN, Linear without bias, and one scalar bias: [..., d] -> [..., out]."""

    def __init__(self, hidden_dim: int, out_dim: int):
        super().__init__()
        self.transform = nn.Linear(hidden_dim, hidden_dim)
        self.norm = nn.LayerNorm(hidden_dim)
        self.out = nn.Linear(hidden_dim, out_dim, bias=False)
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.norm(F.gelu(self.transform(x)))) + self.bias
