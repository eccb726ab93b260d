"""PPGT, the powerful plain graph transformer ("Plain Transformers Can be Powerful Graph Learners", Section 3).

Nodes are tokens; the graph enters by one encoding per ordered pair (RRWP through a stem), which every layer reads as a bias and a gate of
its attention. Equation numbers are the paper's. Its printed form is the default; `scale_queries`, `urpe`, `head`, `stem_ffn_init`, `degree`
and `query_end` name what the authors' implementation does otherwise.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from gt_models.batch import GraphBatch
from gt_models.kernels.gated_attention import gated_attention
from gt_models.nn.drop_path import DropPath
from gt_models.nn.features import FeatureEncoder
from gt_models.nn.norms import make_norm
from gt_models.nn.pair_context import PairContext
from gt_models.nn.pe_stem import PairStem, stem_init
from gt_models.nn.pooling import pool
from gt_models.registry import register_model

MASKED = -1e9  # finite: attention to no node stays a number, and so do its gradients


@register_model("ppgt", levels=("graph", "node"), cost="n^2 d", encodings=("rrwp", "position", "target"))
class PPGT(nn.Module):
    """Plain graph transformer with sL2 attention, AdaRMSNorm and a pair stem. Predicts [B, out_dim] (graph) or [N, out_dim] (node).

    Args:
        in_dim, out_dim, level, edge_dim: as everywhere (see `create_model`); `edge_dim=None` reads no edge features.
        hidden_dim, num_layers, num_heads, ffn_expansion: the backbone.
        rrwp_dim: RRWP channels read, identity included. The paper's "PE-dim K" is K powers beside the identity in the authors'
            implementation and in the printed parameter counts: rrwp_dim = K + 1.
        stem_dim, pair_dim, num_stem_ffn, stem_ffn_expansion: the pair stem (MLP-dim, edge-dim, FFN blocks); pair_dim None is hidden_dim.
        num_frequencies: S of the sinusoidal enhancement (Eq. 9); 0 leaves it out.
        attention: "sl2" (Eq. 4) or "sdp" (Eq. 2).
        scale_queries: whether <q, k> is divided by sqrt(head width) (Eq. 5); the authors' implementation divides only |k|^2.
        urpe: the gate: "linear" is phi(p) (Eq. 5), "one-plus" is 1 + phi(p) (the authors' implementation), "none" leaves it out.
        norm: "adarms" (Eq. 3), "rms", "batch" or "layer", everywhere in backbone and stem.
        node_degree, node_order, pair_degree, pair_order: whether log degree and log order join the nodes, 1/degree of both ends and 1/order
            the pairs (Appendix B.3).
        degree: of directed graphs: "out" counts edges that leave, as the walk goes, "neighbours" the nodes joined by an edge either way.
        query_end: which end of an edge is the query of the pair that reads its features.
        position_dim: width of the node encoding "position" that joins nodes, and pairs as p_j - p_i (superpixels); 0 for none.
        edge_vector: add one learnt vector to every edge's pair, for graphs whose edges carry nothing.
        attn_dropout (of gated weights), drop_path (per graph, one rate for every branch), stem_drop_path, head_dropout: in training.
        layer_scale, stem_layer_scale: initial scale of the branches of backbone and class attention, and of the stem's FFN blocks; None
            for no scale.
        stem_ffn_init: see `PairStem`.
        stem_norm: one more norm on nodes before the backbone and on pairs before the stem's FFN blocks.
        node_mask_rate: probability with which a node's embedded features are zeroed in training (Node2Subgraph).
        target_marker: add a learnt vector to nodes where the node encoding "target" [N, 1] is 1 (Node2Subgraph).
        pooling: "sum", "mean" or "class-attention" (graph level). class_attention_layers: layers of the latter.
        pool_norm: batch norm after pooling. out_norm: batch norm on the outputs (BREC).
        head: "halving" widths, as the printed ZINC count has it, or "constant" as the authors' implementation; head_layers linear layers.
        stem_chunk: pairs at a time in the stem on a CPU, recomputed in backward; None computes and keeps all at once.

    Raises ValueError for num_heads that do not divide hidden_dim or a batch without nodes, MissingEncoding for "rrwp" absent or narrow.
    """

    def __init__(
        self,
        in_dim: int | Sequence[int],
        out_dim: int,
        level: Literal["graph", "node"] = "graph",
        edge_dim: int | Sequence[int] | None = None,
        hidden_dim: int = 64,
        num_layers: int = 12,
        num_heads: int = 8,
        ffn_expansion: int = 2,
        rrwp_dim: int = 25,
        stem_dim: int = 128,
        pair_dim: int | None = None,
        num_stem_ffn: int = 2,
        stem_ffn_expansion: int = 2,
        num_frequencies: int = 3,
        attention: Literal["sl2", "sdp"] = "sl2",
        scale_queries: bool = True,
        urpe: Literal["linear", "one-plus", "none"] = "linear",
        norm: Literal["adarms", "rms", "batch", "layer"] = "adarms",
        node_degree: bool = True,
        node_order: bool = True,
        pair_degree: bool = True,
        pair_order: bool = True,
        degree: Literal["out", "neighbours"] = "out",
        query_end: Literal["source", "target"] = "source",
        position_dim: int = 0,
        edge_vector: bool = False,
        attn_dropout: float = 0.0,
        drop_path: float = 0.0,
        stem_drop_path: float = 0.0,
        head_dropout: float = 0.0,
        layer_scale: float | None = None,
        stem_layer_scale: float | None = None,
        stem_ffn_init: Literal["kaiming", "truncated"] = "kaiming",
        stem_norm: bool = False,
        node_mask_rate: float = 0.0,
        target_marker: bool = False,
        pooling: Literal["sum", "mean", "class-attention"] = "sum",
        class_attention_layers: int = 2,
        pool_norm: bool = False,
        out_norm: bool = False,
        head: Literal["halving", "constant"] = "halving",
        head_layers: int = 3,
        stem_chunk: int | None = 2048,
    ):
        super().__init__()
        if hidden_dim % num_heads:
            raise ValueError(f"num_heads={num_heads} does not divide hidden_dim={hidden_dim}: choose heads that split the width evenly")
        for name, value, known in [
            ("level", level, ("graph", "node")),
            ("attention", attention, ("sl2", "sdp")),
            ("urpe", urpe, ("linear", "one-plus", "none")),
            ("pooling", pooling, ("sum", "mean", "class-attention")),
            ("head", head, ("halving", "constant")),
            ("degree", degree, ("out", "neighbours")),
            ("query_end", query_end, ("source", "target")),
        ]:
            if value not in known:
                raise ValueError(f"unknown {name} {value!r}; known: {', '.join(known)}")
        if head == "halving" and hidden_dim >> (head_layers - 1) < 1:
            raise ValueError(
                f"a head of width {hidden_dim} cannot halve {head_layers - 1} times: choose head='constant', or fewer head_layers"
            )
        pair_dim = pair_dim or hidden_dim
        self.level, self.rrwp_dim, self.position_dim, self.pooling = level, rrwp_dim, position_dim, pooling
        self.num_heads = num_heads
        self.node_mask_rate = node_mask_rate
        self.node_degree, self.node_order, self.pair_degree, self.pair_order = node_degree, node_order, pair_degree, pair_order
        self.degree, self.query_end, self.urpe = degree, query_end, urpe
        if urpe == "one-plus":  # 1 on the rows of phi among the pair layers of all layers
            self.register_buffer("_gate_offset", torch.tensor([0.0, 1.0]).repeat_interleave(num_heads).repeat(num_layers), persistent=False)

        # nodes: x' + RRWP diagonal + degree and order (Eq. 8 left, Appendix B.3)
        self.node_encoder = FeatureEncoder(in_dim, hidden_dim)
        self.diagonal_encoder = nn.Linear(rrwp_dim, hidden_dim)
        self.degree_encoder = nn.Linear(1, hidden_dim) if node_degree else None
        self.order_encoder = nn.Linear(1, hidden_dim) if node_order else None
        self.position_encoder = nn.Linear(position_dim, hidden_dim) if position_dim else None
        self.target_vector = nn.Parameter(torch.empty(hidden_dim)) if target_marker else None
        self.node_norm = make_norm(norm, hidden_dim) if stem_norm else nn.Identity()

        # pairs (Eq. 8 right, Eq. 10)
        self.edge_encoder = None if edge_dim is None else FeatureEncoder(edge_dim, pair_dim)
        self.edge_vector = nn.Parameter(torch.empty(pair_dim)) if edge_vector else None
        raw_dim = rrwp_dim + position_dim + pair_order + 2 * pair_degree
        stem = (raw_dim, pair_dim, stem_dim, num_stem_ffn, stem_ffn_expansion, num_frequencies, norm)
        self.stem = PairStem(*stem, stem_chunk, stem_norm, stem_layer_scale, stem_ffn_init)
        self.stem_drop_path = DropPath(stem_drop_path)

        layer = (hidden_dim, num_heads, ffn_expansion, norm, attention, scale_queries)
        rates = (attn_dropout, drop_path, layer_scale)
        self.layers = nn.ModuleList([PPGTLayer(*layer, *rates, pair_dim, urpe) for _ in range(num_layers)])
        self.norm = make_norm(norm, hidden_dim)
        by_class = pooling == "class-attention" and level == "graph"
        self.class_attention = ClassAttention(*layer, *rates, class_attention_layers) if by_class else None
        self.pool_norm = nn.BatchNorm1d(hidden_dim) if pool_norm else nn.Identity()
        widths = [hidden_dim >> i if head == "halving" else hidden_dim for i in range(head_layers)] + [out_dim]
        self.head = nn.ModuleList([nn.Linear(a, b) for a, b in pairwise(widths)])
        self.head_dropout = nn.Dropout(head_dropout)
        self.out_norm = nn.BatchNorm1d(out_dim) if out_norm else nn.Identity()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Appendix B.2: truncated normal 0.02 in backbone and head, Kaiming uniform in the stems, N(0, 1) for embeddings."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)
            elif not isinstance(module, PPGT | FeatureEncoder | PairStem) and hasattr(module, "reset_parameters"):
                module.reset_parameters()
        self.stem.reset_parameters()
        stems = [self.diagonal_encoder, self.degree_encoder, self.order_encoder, self.position_encoder, self.node_encoder.linear]
        stems.append(None if self.edge_encoder is None else self.edge_encoder.linear)
        for linear in stems:
            if linear is not None:
                stem_init(linear, 1.0)
        # unstated: the learnt vectors; as in the authors' implementation N(0, 1) for edges, truncated normal 0.02 for target and class
        if self.edge_vector is not None:
            nn.init.normal_(self.edge_vector)
        if self.target_vector is not None:
            nn.init.trunc_normal_(self.target_vector, std=0.02)

    def forward(self, batch: GraphBatch, edge_values: Tensor | None = None) -> Tensor:
        """[B, out_dim] or [N, out_dim]. `edge_values` [E, pair_dim] join the pairs of the edges (encodings learnt elsewhere)."""
        batch = GraphBatch.of(batch)
        return self.forward_head(self.forward_features(batch, edge_values), batch)

    def forward_features(self, batch: GraphBatch, edge_values: Tensor | None = None) -> Tensor:
        """Nodes after the backbone's last norm, [N, hidden_dim] (Eq. 7)."""
        if batch.num_nodes == 0:
            raise ValueError("the batch has no nodes: drop empty graphs before batching")
        pairs = PairContext(batch, self.query_end)
        x, p = self.encode_nodes(batch, pairs), self.encode_pairs(batch, pairs, edge_values)  # [N, d], [P, pair_dim]
        # every layer's theta and phi are linear in the same p: one product for all of them
        weight = torch.cat([layer.attention.pair_linear.weight for layer in self.layers])  # [L G H, pair_dim], G = 1 or 2
        bias = torch.cat([layer.attention.pair_linear.bias for layer in self.layers])
        if self.urpe == "one-plus":
            bias = bias + self._gate_offset.to(bias.dtype)
        terms = torch.addmm(bias[:, None], weight, p.t()).view(-1, self.num_heads, p.size(0)).unbind()  # [H, P] each
        gates = terms[1::2] if self.urpe != "none" else [None] * len(self.layers)
        for layer, theta, phi in zip(self.layers, terms[:: 1 if self.urpe == "none" else 2], gates, strict=True):
            x = layer(x, theta, phi, batch)
        return self.norm(x)

    def forward_head(self, features: Tensor, batch: GraphBatch) -> Tensor:
        """Pooling where the level is the graph, then the MLP: [N, hidden_dim] -> [B or N, out_dim]."""
        h = features
        if self.class_attention is not None:
            h = self.class_attention(h, batch)  # [B, d]
        elif self.level == "graph":
            h = pool(h, batch, self.pooling)  # [B, d]
        h = self.pool_norm(h)
        for i, linear in enumerate(self.head):
            h = linear(self.head_dropout(h if i == 0 else nn.functional.gelu(h)))
        return self.out_norm(h)

    def encode_nodes(self, batch: GraphBatch, pairs: PairContext) -> Tensor:
        """Eq. 8 left with Appendix B.3: [N, hidden_dim]."""
        x = self.node_encoder(batch.x)  # [N, d]
        if self.training and self.node_mask_rate > 0.0:
            x = x * (torch.rand_like(x[:, :1]) >= self.node_mask_rate)
        rrwp = batch.encoding("rrwp", self.rrwp_dim)
        if rrwp.size(0) != batch.num_pairs:
            raise ValueError(
                f"encoding 'rrwp' has {rrwp.size(0)} rows; it needs one per ordered pair of nodes of one graph: {batch.num_pairs}"
            )
        dtype = self.diagonal_encoder.weight.dtype
        x = x + self.diagonal_encoder(rrwp[pairs.diagonal].to(dtype))
        if self.degree_encoder is not None:
            x = x + self.degree_encoder(self._degree(pairs).to(dtype).log1p()[:, None])
        if self.order_encoder is not None:
            x = x + self.order_encoder(batch.sizes[batch.batch].to(dtype).log1p()[:, None])
        if self.position_encoder is not None:
            x = x + self.position_encoder(batch.encoding("position", self.position_dim).to(dtype))
        if self.target_vector is not None:
            x = x + batch.encoding("target", 1).to(dtype) * self.target_vector
        return self.node_norm(x)

    def encode_pairs(self, batch: GraphBatch, pairs: PairContext, edge_values: Tensor | None) -> Tensor:
        """Eq. 10 with Appendix B.3: [P, pair_dim], P the pairs of the context."""
        query, key = pairs.query, pairs.key
        dtype = self.stem.linear1.weight.dtype
        raw = [batch.encoding("rrwp", self.rrwp_dim).to(dtype)]  # [P, K]
        if self.position_dim:
            position = batch.encoding("position", self.position_dim).to(dtype)
            raw.append(position[key] - position[query])
        if self.pair_order:
            raw.append(batch.sizes[batch.batch[query]].to(dtype).reciprocal()[:, None])
        if self.pair_degree:
            degree = self._degree(pairs).to(dtype)
            # unstated: 1/degree of a node without edges; 0, as in the authors' implementation
            inverse = degree.reciprocal().where(degree > 0, 0.0)  # [N]
            raw += [inverse[key][:, None], inverse[query][:, None]]
        edge = self.encode_edges(batch, edge_values)  # [E, pair_dim] or None
        if edge is not None:  # edges stored twice add up
            edge = edge.new_zeros(query.numel(), edge.size(1)).index_add(0, pairs.edge_rows, edge)
        keep = None
        if self.training and self.stem_drop_path.rate > 0.0:
            ones, graph = torch.ones_like(raw[0][:, :1]), batch.batch[query]
            keep = torch.cat([self.stem_drop_path(ones, graph, batch.num_graphs) for _ in self.stem.blocks] or [ones], 1)
        return self.stem(torch.cat(raw, 1), edge, keep)

    def _degree(self, pairs: PairContext) -> Tensor:
        return pairs.degree if self.degree == "out" else pairs.num_neighbours

    def encode_edges(self, batch: GraphBatch, edge_values: Tensor | None) -> Tensor | None:
        """What edges bring to their pairs, [E, pair_dim]; None where nothing does."""
        parts = [] if edge_values is None else [edge_values]
        if self.edge_encoder is not None:
            if batch.edge_attr is None:
                raise ValueError("the model was built with edge_dim and the batch has no edge_attr: set it, or build with edge_dim=None")
            parts.append(self.edge_encoder(batch.edge_attr))
        if self.edge_vector is not None:
            parts.append(self.edge_vector.expand(batch.num_edges, -1))
        return sum(parts[1:], parts[0]) if parts else None


class PPGTLayer(nn.Module):
    """Eq. 7: x + Attention(norm(x)), then x + MLP(norm(x)), on flat nodes [N, dim]."""

    def __init__(
        self,
        dim: int,
        num_heads: int,
        expansion: int,
        norm: str,
        attention: str,
        scale_queries: bool,
        attn_dropout: float,
        drop_path: float,
        layer_scale: float | None,
        pair_dim: int,
        urpe: str,
    ):
        super().__init__()
        self.norm1, self.norm2 = make_norm(norm, dim), make_norm(norm, dim)
        self.attention = SL2Attention(dim, num_heads, attention, scale_queries, attn_dropout, pair_dim, urpe)
        self.linear1, self.linear2 = nn.Linear(dim, expansion * dim), nn.Linear(expansion * dim, dim)
        self.residual1, self.residual2 = Residual(dim, drop_path, layer_scale), Residual(dim, drop_path, layer_scale)

    def forward(self, x: Tensor, theta: Tensor, phi: Tensor | None, batch: GraphBatch) -> Tensor:
        x = self.residual1(x, self.attention(self.norm1(x), theta, phi, batch), batch.batch, batch.num_graphs)
        branch = self.linear2(nn.functional.gelu(self.linear1(self.norm2(x))))
        return self.residual2(x, branch, batch.batch, batch.num_graphs)


class SL2Attention(nn.Module):
    """Multi-head Eq. 5 on flat nodes; theta and phi [H, P] of this layer, phi None where there is no gate."""

    def __init__(self, dim: int, num_heads: int, attention: str, scale_queries: bool, dropout: float, pair_dim: int, urpe: str):
        super().__init__()
        self.dropout, root = dropout, (dim // num_heads) ** 0.5
        self.scale = 1.0 / root if scale_queries else 1.0
        self.key_scale = -0.5 / root if attention == "sl2" else 0.0
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.pair_linear = nn.Linear(pair_dim, num_heads if urpe == "none" else 2 * num_heads)  # theta, phi

    def forward(self, x: Tensor, theta: Tensor, phi: Tensor | None, batch: GraphBatch) -> Tensor:
        dropout = self.dropout if self.training else 0.0
        seed = torch.randint(2**31 - 1, (1,)) if dropout > 0.0 else torch.zeros(1, dtype=torch.long)
        return self.out(gated_attention(self.qkv(x), theta, phi, batch, self.scale, self.key_scale, dropout, seed))  # [N, d]


class Residual(nn.Module):
    """x + drop_path(scale * branch)."""

    def __init__(self, dim: int, drop_path: float, layer_scale: float | None):
        super().__init__()
        self.drop_path, self.initial = DropPath(drop_path), layer_scale
        self.scale = None if layer_scale is None else nn.Parameter(torch.empty(dim))

    def reset_parameters(self) -> None:
        if self.scale is not None:
            nn.init.constant_(self.scale, self.initial)

    def forward(self, x: Tensor, branch: Tensor, graph: Tensor | None, num_graphs: int | None) -> Tensor:
        return x + self.drop_path(branch if self.scale is None else branch * self.scale, graph, num_graphs)


class ClassAttention(nn.Module):
    """A class token per graph queries the nodes through some layers (Section 3.3, after CaiT), [N, dim] -> [B, dim].

    The token starts as a learnt vector plus an MLP of the graph's number of nodes; no pair bias and no gate, since it has no place.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        expansion: int,
        norm: str,
        attention: str,
        scale_queries: bool,
        attn_dropout: float,
        drop_path: float,
        layer_scale: float | None,
        num_layers: int,
    ):
        super().__init__()
        self.token = nn.Parameter(torch.empty(dim))
        # unstated: the MLP of the order; half as wide and begun as the backbone is, from the authors' implementation
        self.order1, self.order2 = nn.Linear(1, dim // 2), nn.Linear(dim // 2, dim)
        layer = (dim, num_heads, expansion, norm, attention, scale_queries, attn_dropout, drop_path, layer_scale)
        self.layers = nn.ModuleList([ClassAttentionLayer(*layer) for _ in range(num_layers)])
        self.norm = make_norm(norm, dim)

    def reset_parameters(self) -> None:
        nn.init.trunc_normal_(self.token, std=0.02)

    def forward(self, x: Tensor, batch: GraphBatch) -> Tensor:
        order = batch.sizes.to(self.order1.weight.dtype)[:, None]
        token = self.token + self.order2(nn.functional.gelu(self.order1(order)))  # [B, d]
        for layer in self.layers:
            token = layer(token, x, batch)
        return self.norm(token)


class ClassAttentionLayer(nn.Module):
    """One layer of `ClassAttention`: the token attends to nodes, as the backbone's last norm left them, then an MLP on the token."""

    def __init__(
        self,
        dim: int,
        num_heads: int,
        expansion: int,
        norm: str,
        attention: str,
        scale_queries: bool,
        attn_dropout: float,
        drop_path: float,
        layer_scale: float | None,
    ):
        super().__init__()
        self.num_heads, self.dropout, root = num_heads, attn_dropout, (dim // num_heads) ** 0.5
        self.scale = 1.0 / root if scale_queries else 1.0
        self.key_scale = -0.5 / root if attention == "sl2" else 0.0
        self.norm1, self.norm2 = make_norm(norm, dim), make_norm(norm, dim)
        self.query, self.key_value, self.out = nn.Linear(dim, dim), nn.Linear(dim, 2 * dim), nn.Linear(dim, dim)
        self.linear1, self.linear2 = nn.Linear(dim, expansion * dim), nn.Linear(expansion * dim, dim)
        self.residual1, self.residual2 = Residual(dim, drop_path, layer_scale), Residual(dim, drop_path, layer_scale)

    def forward(self, token: Tensor, x: Tensor, batch: GraphBatch) -> Tensor:
        graphs, h = batch.num_graphs, self.num_heads
        q = self.query(self.norm1(token)).view(graphs, h, 1, -1)  # [B, H, 1, d / H]
        kv = batch.to_dense(self.key_value(x))  # [B, n, 2 d]
        k, v = kv.view(graphs, batch.max_nodes, 2, h, -1).permute(2, 0, 3, 1, 4).unbind(0)  # [B, H, n, d / H] each
        mask = (self.key_scale * k.square().sum(-1)).masked_fill(~batch.node_mask[:, None], MASKED)[:, :, None]  # [B, H, 1, n]
        dropout = self.dropout if self.training else 0.0
        y = nn.functional.scaled_dot_product_attention(q, k, v, mask, dropout, scale=self.scale)
        token = self.residual1(token, self.out(y.reshape(graphs, -1)), None, None)
        return self.residual2(token, self.linear2(nn.functional.gelu(self.linear1(self.norm2(token)))), None, None)
