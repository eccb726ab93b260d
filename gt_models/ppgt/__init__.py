"""PPGT: nodes are the tokens of a plain transformer with simplified L2 attention and AdaRMSNorm.

The graph enters by one encoding per ordered pair of nodes (RRWP through a stem of MLPs), which each layer reads as a
bias and a gate of its attention.

Ma, Pal, Zhang, Torr, Coates: Plain Transformers Can be Powerful Graph Learners, 2025,
https://arxiv.org/abs/2504.12588: Section 3 and Appendix B. Equations 1 and 3 are in `norms`, 9 and 10 in `stem`, the
class token of Section 3.3 in `class_attention`. What the authors' code does differently: `gt_models.released.ppgt`.
"""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gt_models.batch import GraphBatch
from gt_models.layers.accelerated import accelerated
from gt_models.layers.features import FeatureEncoder
from gt_models.layers.pair_dropout import PairDropout
from gt_models.layers.pooling import pool
from gt_models.layers.precision import dtype_of, full_precision
from gt_models.ppgt.class_attention import ClassAttention, ClassAttentionLayer, Residual
from gt_models.ppgt.norms import make_norm
from gt_models.ppgt.stem import PairStem, stem_init
from gt_models.registry import register_model

PAPER = (
    "Ma, Pal, Zhang, Torr, Coates: Plain Transformers Can be Powerful Graph Learners, 2025. "
    "https://arxiv.org/abs/2504.12588"
)


class SL2Attention(nn.Module):
    """Multi-head attention with simplified L2 scores, a bias and a gate per pair (equation 5), within graphs.

    Args:
        dim, num_heads: width of all heads together, and their number.
        attention: "sl2" (equation 4) or "sdp" (equation 2).
        scale_queries: whether <q, k> is divided by the root of a head's width, as the paper has it.
        attn_dropout: rate at which gated weights are dropped.
        pair_dim: width of the pair encodings.
        urpe: whether there is a gate phi.
    """

    def __init__(
        self, dim: int, num_heads: int, attention: str, scale_queries: bool, attn_dropout: float, pair_dim: int,
        urpe: bool,
    ):  # fmt: skip
        super().__init__()
        root = (dim // num_heads) ** 0.5
        self.num_heads, self.urpe, self.dropout = num_heads, urpe, PairDropout(attn_dropout)
        self.scale = 1.0 / root if scale_queries else 1.0  # equation 2
        self.key_scale = -0.5 / root if attention == "sl2" else 0.0  # equation 4
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.pair_linear = nn.Linear(pair_dim, num_heads * (2 if urpe else 1))

    def forward(self, x: Tensor, p: Tensor, batch: GraphBatch) -> Tensor:
        """Nodes [N, dim] and pair encodings [P, pair_dim], P = sum n_b^2 -> [N, dim]."""
        return self.attend(x, self.bias_and_gate(p), batch)

    def bias_and_gate(self, p: Tensor) -> Tensor:
        """theta(p) and, where there is a gate, phi(p), side by side: [P, pair_dim] -> [P, G H], G = 2 or 1."""
        return self.pair_linear(p)

    def attend(self, x: Tensor, pairs: Tensor, batch: GraphBatch) -> Tensor:
        """Attention with theta and phi given, of nodes [N, dim] and pairs [P, G H] -> [N, dim]."""
        qkv = self.qkv(x)
        return self.out(self.heads(qkv, pairs, batch).to(qkv.dtype))

    @full_precision
    @accelerated
    def heads(self, qkv: Tensor, pairs: Tensor, batch: GraphBatch) -> Tensor:
        """Equation 5 of all heads, of queries, keys and values [N, 3 dim] and pairs [P, G H] -> [N, dim]."""
        # graph by graph and head by head, zero behind a graph's last node: [B, H, n, d] and [B, H, n, n]
        split = batch.to_dense(qkv).unflatten(2, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4).contiguous()
        q, k, v = split.unbind(0)
        theta, *gate = (t.permute(0, 3, 1, 2) for t in batch.pairs_to_dense(pairs).split(self.num_heads, -1))
        scores = self.scale * q @ k.mT  # equation 2
        if self.key_scale:
            scores = scores + self.key_scale * k.square().sum(-1)[..., None, :]  # equation 4
        scores = (scores + theta).masked_fill(~batch.node_mask[:, None, None], -torch.inf)
        weights = scores.softmax(-1)
        if self.urpe:
            weights = gate[0] * weights  # equation 5
        y = self.dropout(weights, batch) @ v  # [B, H, n, d]
        return batch.from_dense(y.transpose(1, 2).flatten(2))


class PPGTLayer(nn.Module):
    """X' = X + MSA(Norm(X), P), then X' + MLP(Norm(X')) (equation 7), on nodes [N, dim]."""

    def __init__(self, dim: int, attention: nn.Module, expansion: int, norm: str, drop_path: float):
        super().__init__()
        self.norm1, self.norm2 = make_norm(norm, dim), make_norm(norm, dim)
        self.attention = attention
        self.linear1, self.linear2 = nn.Linear(dim, expansion * dim), nn.Linear(expansion * dim, dim)
        self.residual1, self.residual2 = Residual(drop_path), Residual(drop_path)

    def forward(self, x: Tensor, p: Tensor, batch: GraphBatch) -> Tensor:
        """Nodes [N, dim] and pair encodings [P, pair_dim] -> [N, dim]."""
        return self.add(x, self.attention(self.norm1(x), p, batch), batch)

    def add(self, x: Tensor, attended: Tensor, batch: GraphBatch) -> Tensor:
        """X' and then its MLP (equation 7), of X and MSA(Norm(X), P): [N, dim] each -> [N, dim]."""
        x = self.residual1(x, attended, batch.batch, batch.num_graphs)
        return self.residual2(x, self.mlp(self.norm2(x)), batch.batch, batch.num_graphs)

    def mlp(self, x: Tensor) -> Tensor:
        """[N, dim] -> [N, dim]."""
        return self.linear2(F.gelu(self.linear1(x)))


class Backbone(nn.ModuleList):
    """The layers of equation 7, one after the other, on nodes [N, dim] and the pair encodings that all of them read."""

    @accelerated
    def forward(self, x: Tensor, p: Tensor, batch: GraphBatch) -> Tensor:
        """Nodes [N, dim] and pair encodings [P, pair_dim] -> [N, dim]."""
        for layer in self:
            x = layer(x, p, batch)
        return x


@register_model("ppgt", levels=("graph", "node"), cost="n^2 d", encodings=("rrwp",), paper=PAPER)
class PPGT(nn.Module):
    """Predicts [B, out_dim] (graph) or [N, out_dim] (node).

    Args:
        in_dim, out_dim, level, edge_dim: see `create_model`; `edge_dim=None` reads no edge features.
        hidden_dim, num_layers, num_heads, ffn_expansion: the backbone.
        rrwp_dim: RRWP channels that are read, K + 1 for the "PE-dim K" of the paper: the identity and K powers, by
            the published parameter counts.
        stem_dim, pair_dim, num_stem_ffn, stem_ffn_expansion: the pair stem (MLP-dim, edge-dim, FFN blocks); pair_dim
            None is hidden_dim.
        num_frequencies: S of the sinusoidal enhancement (equation 9); 0 leaves it out.
        attention: "sl2" (equation 4) or "sdp" (equation 2).
        urpe: whether weights are multiplied by the gate phi(p) (equation 5).
        norm: "adarms" (equation 3), "rms" (equation 1), "batch" or "layer", everywhere in backbone and stem.
        edge_vector: adds one learnt vector to the pair of each edge, for graphs without edge features.
        attn_dropout: rate at which gated weights are dropped.
        drop_path: rate of stochastic depth, per graph, the same for every branch.
        pooling: "sum", "mean" or "class-attention" (graph level).
        head: "halving" widths, as in the published count of ZINC (Table 7), or "constant", as in that of BREC (Table
            10).
        head_layers: linear layers of the head.

    Raises:
        ValueError: impossible choices, or a batch without nodes.
        MissingEncoding: "rrwp" is missing or too narrow.
    """

    # for subclasses, which set them before this constructor
    scale_queries: bool = True  # whether <q, k> is divided by the root of a head's width, as in equation 5
    node_extras: ClassVar[dict[str, int]] = {
        "degree": 1,
        "order": 1,
    }  # channels of `extra_node_channels` (Appendix B.3)
    pair_extras: int = 3  # channels of `extra_pair_channels`
    stem_class: type[PairStem] = PairStem
    attention_class: type[SL2Attention] = SL2Attention
    class_attention_layers: int = 2

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
        urpe: bool = True,
        norm: Literal["adarms", "rms", "batch", "layer"] = "adarms",
        edge_vector: bool = False,
        attn_dropout: float = 0.0,
        drop_path: float = 0.0,
        pooling: Literal["sum", "mean", "class-attention"] = "sum",
        head: Literal["halving", "constant"] = "halving",
        head_layers: int = 3,
    ):
        super().__init__()
        if hidden_dim % num_heads:
            raise ValueError(
                f"num_heads={num_heads} does not divide hidden_dim={hidden_dim}: "
                "choose heads that split the width evenly"
            )
        given: dict[str, tuple] = {"level": (level, ("graph", "node")), "attention": (attention, ("sl2", "sdp"))}
        given |= {"urpe": (urpe, (True, False)), "head": (head, ("halving", "constant"))}
        given |= {"pooling": (pooling, ("sum", "mean", "class-attention"))}
        for name, (value, known) in given.items():
            if value not in known:
                raise ValueError(f"unknown {name} {value!r}; known: {', '.join(map(str, known))}")
        if head == "halving" and hidden_dim >> (head_layers - 1) < 1:
            raise ValueError(
                f"a head of width {hidden_dim} cannot halve {head_layers - 1} times: "
                "head='constant', or fewer head_layers"
            )
        pair_dim = pair_dim or hidden_dim
        self.level, self.rrwp_dim, self.num_heads, self.urpe, self.pooling = level, rrwp_dim, num_heads, urpe, pooling
        self.node_encoder = FeatureEncoder(in_dim, hidden_dim)
        self.diagonal_encoder = nn.Linear(rrwp_dim, hidden_dim)
        for name, width in self.node_extras.items():
            self.add_module(f"{name}_encoder", nn.Linear(width, hidden_dim))
        self.edge_encoder = None if edge_dim is None else FeatureEncoder(edge_dim, pair_dim)
        self.edge_vector = nn.Parameter(torch.empty(pair_dim)) if edge_vector else None
        sizes = (rrwp_dim + self.pair_extras, pair_dim, stem_dim, num_stem_ffn, stem_ffn_expansion, num_frequencies)
        self.stem = self.stem_class(*sizes, norm)
        heads, layer = (num_heads, attention, self.scale_queries, attn_dropout), (ffn_expansion, norm, drop_path)
        self.layers = Backbone(
            PPGTLayer(hidden_dim, self.attention_class(hidden_dim, *heads, pair_dim, urpe), *layer)
            for _ in range(num_layers)
        )
        self.norm = make_norm(norm, hidden_dim)
        self.class_attention = None
        if level == "graph" and pooling == "class-attention":
            make_layer = partial(ClassAttentionLayer, hidden_dim, *heads, *layer)
            self.class_attention = ClassAttention(hidden_dim, norm, make_layer, self.class_attention_layers)
        widths = [hidden_dim >> i if head == "halving" else hidden_dim for i in range(head_layers)] + [out_dim]
        self.head = nn.ModuleList([nn.Linear(a, b) for a, b in pairwise(widths)])
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Appendix B.2: truncated normal 0.02 in backbone and head, Kaiming uniform in stems, N(0, 1) in embeddings."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)
            elif not isinstance(module, PPGT | FeatureEncoder | PairStem) and hasattr(module, "reset_parameters"):
                module.reset_parameters()
        self.stem.reset_parameters()
        stems = [self.diagonal_encoder, *(getattr(self, f"{name}_encoder") for name in self.node_extras)]
        for linear in (*stems, *(e.linear for e in (self.node_encoder, self.edge_encoder) if e and e.linear)):
            stem_init(linear, 1.0)
        # unstated: the learnt vectors; as in the authors' implementation N(0, 1) for edges, truncated normal 0.02 for
        # target and class
        if self.edge_vector is not None:
            nn.init.normal_(self.edge_vector)

    def forward(self, batch: GraphBatch, edge_values: Tensor | None = None) -> Tensor:
        """[B, out_dim] or [N, out_dim].

        `edge_values` [E, pair_dim] join the pairs of the edges (encodings learnt elsewhere).
        """
        batch = GraphBatch.of(batch)
        return self.forward_head(self.forward_features(batch, edge_values), batch)

    def forward_features(self, batch: GraphBatch, edge_values: Tensor | None = None) -> Tensor:
        """Y of equation 7: nodes after the backbone's last norm, [N, hidden_dim]."""
        if batch.num_nodes == 0:
            raise ValueError("the batch has no nodes: drop empty graphs before batching")
        x, p = (
            self.encode_nodes(batch),
            self.encode_pairs(batch, edge_values),
        )  # equations 8 and 10: [N, d], [P, pair_dim]
        return self.norm(self.layers(x, p, batch))  # equation 7

    def forward_head(self, features: Tensor, batch: GraphBatch) -> Tensor:
        """Pooling where the level is the graph, then the MLP: [N, hidden_dim] -> [B or N, out_dim]."""
        if self.class_attention is not None:
            features = self.class_attention(features, batch)
        elif self.level == "graph":
            features = pool(features, batch, self.pooling)
        return self.predict(features)

    def predict(self, h: Tensor) -> Tensor:
        """The head, [rows, hidden_dim] -> [rows, out_dim]."""
        for i, linear in enumerate(self.head):
            h = linear(F.gelu(h) if i else h)
        return h

    def encode_nodes(self, batch: GraphBatch) -> Tensor:
        """x^0 of equation 8 with Appendix B.3, [N, hidden_dim]."""
        rrwp, nodes = batch.encoding("rrwp", self.rrwp_dim), torch.arange(batch.num_nodes, device=batch.ptr.device)
        if rrwp.size(0) != batch.num_pairs:
            wanted = f"one per ordered pair of nodes of one graph: {batch.num_pairs}"
            raise ValueError(f"encoding 'rrwp' has {rrwp.size(0)} rows; it needs {wanted}")
        dtype = dtype_of(self.diagonal_encoder)
        x = self.embed_nodes(batch) + self.diagonal_encoder(rrwp[batch.pair_of(nodes, nodes)].to(dtype))  # [N, d]
        for name, channels in self.extra_node_channels(batch, dtype).items():
            x = x + getattr(self, f"{name}_encoder")(channels)
        return x

    def embed_nodes(self, batch: GraphBatch) -> Tensor:
        """FC(x') of equation 8, [N, hidden_dim]."""
        return self.node_encoder(batch.x)

    def encode_pairs(self, batch: GraphBatch, edge_values: Tensor | None) -> Tensor:
        """p^0 of equation 10 with Appendix B.3, [P, pair_dim]."""
        dtype = dtype_of(self.diagonal_encoder)
        rrwp = batch.encoding("rrwp", self.rrwp_dim).to(dtype)
        raw = torch.cat([rrwp, *self.extra_pair_channels(batch, dtype)], 1)  # p', [P, K + 3]
        edge = self.encode_edges(batch, edge_values)  # [E, pair_dim] or None
        if edge is not None:  # edges stored twice add up
            edge = edge.new_zeros(raw.size(0), edge.size(1)).index_add(0, batch.pair_of(*self.edge_ends(batch)), edge)
        return self.stem(raw, edge, self.keep_branches(batch))

    def keep_branches(self, batch: GraphBatch) -> Tensor | None:
        """Stochastic depth of the stem: `keep` of `PairStem.forward`; None is without."""
        return None

    def encode_edges(self, batch: GraphBatch, edge_values: Tensor | None) -> Tensor | None:
        """FC(e') of equation 8, [E, pair_dim]; None if edges have no features."""
        parts = [] if edge_values is None else [edge_values]
        if self.edge_encoder is not None:
            if batch.edge_attr is None:
                raise ValueError(
                    "the model was built with edge_dim and the batch has no edge_attr: "
                    "set it, or build with edge_dim=None"
                )
            parts.append(self.edge_encoder(batch.edge_attr))
        if self.edge_vector is not None:
            parts.append(self.edge_vector.expand(batch.num_edges, -1))
        return sum(parts[1:], parts[0]) if parts else None

    def extra_node_channels(self, batch: GraphBatch, dtype: torch.dtype) -> dict[str, Tensor]:
        """Appendix B.3: log degree and log order of nodes, [N, 1] each."""
        return {
            "degree": self.degree(batch, dtype).log1p()[:, None],
            "order": batch.sizes[batch.batch].to(dtype).log1p()[:, None],
        }

    def extra_pair_channels(self, batch: GraphBatch, dtype: torch.dtype) -> list[Tensor]:
        """Appendix B.3: 1 / order and 1 / degree of the key and of the query, [P, 1] each."""
        (query, key), degree = batch.pair_nodes, self.degree(batch, dtype)
        # unstated: 1/degree of a node without edges; 0, as in the authors' implementation
        inverse = degree.reciprocal().where(degree > 0, 0.0)  # [N]
        return [
            batch.sizes[batch.batch[query]].to(dtype).reciprocal()[:, None],
            inverse[key][:, None],
            inverse[query][:, None],
        ]

    def degree(self, batch: GraphBatch, dtype: torch.dtype) -> Tensor:
        """Edges that leave each node, [N]."""
        return batch.out_degree(dtype)

    def edge_ends(self, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """Query and key of the pair that reads each edge's features, long [E] each."""
        return tuple(batch.edge_index)
