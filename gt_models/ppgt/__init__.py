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
from gt_models.layers.settings import at_least
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
        dim: width of all heads together.
        num_heads: number of heads.
        attention: "sl2" (equation 4) or "sdp" (equation 2).
        scale_queries: whether <q, k> is divided by the square root of the width of a head, as in the paper.
        attn_dropout: rate of dropout on the gated weights.
        pair_dim: width of the pair encodings.
        urpe: whether weights are multiplied by the gate phi.
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
        """Returns theta(p) and, with a gate, phi(p) next to it: [P, pair_dim] -> [P, G H] with G = 1 or 2."""
        return self.pair_linear(p)

    def attend(self, x: Tensor, pairs: Tensor, batch: GraphBatch) -> Tensor:
        """Attention of nodes [N, dim] with theta and phi of the pairs, [P, G H] -> [N, dim]."""
        qkv = self.qkv(x)
        return self.out(self.heads(qkv, pairs, batch).to(qkv.dtype))

    @full_precision
    @accelerated
    def heads(self, qkv: Tensor, pairs: Tensor, batch: GraphBatch) -> Tensor:
        """Equation 5 for all heads: queries, keys and values [N, 3 dim], pairs [P, G H] -> [N, dim]."""
        # padded with zeros behind the last node of a graph, [B, H, n, d] and [B, H, n, n]
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
    """X' = X + MSA(Norm(X), P), then X' + MLP(Norm(X')) (equation 7).

    Args:
        dim: width of the nodes.
        attention: the module MSA.
        expansion: hidden width of the MLP as a multiple of `dim`.
        norm: see `make_norm`.
        drop_path: rate of stochastic depth.
    """

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
        """Equation 7 from X and `attended`, MSA(Norm(X), P): [N, dim] each -> [N, dim]."""
        x = self.residual1(x, attended, batch.batch, batch.num_graphs)
        return self.residual2(x, self.mlp(self.norm2(x)), batch.batch, batch.num_graphs)

    def mlp(self, x: Tensor) -> Tensor:
        """[N, dim] -> [N, dim]."""
        return self.linear2(F.gelu(self.linear1(x)))


class Backbone(nn.ModuleList):
    """The layers of equation 7 in sequence. All of them read the same pair encodings."""

    @accelerated
    def forward(self, x: Tensor, p: Tensor, batch: GraphBatch) -> Tensor:
        """Nodes [N, dim] and pair encodings [P, pair_dim] -> [N, dim]."""
        for layer in self:
            x = layer(x, p, batch)
        return x


@register_model("ppgt", levels=("graph", "node"), cost="n^2 d", encodings=("rrwp",), paper=PAPER)
class PPGT(nn.Module):
    """The whole model.

    Args:
        in_dim: width of continuous node features, or vocabulary sizes of categorical columns.
        out_dim: number of outputs per node or graph.
        level: what a row of the output is, "graph" or "node".
        edge_dim: as `in_dim`, of edge features. None to read none.
        hidden_dim: width of the nodes in the backbone.
        num_layers: number of layers of the backbone.
        num_heads: number of heads. It divides `hidden_dim`.
        ffn_expansion: hidden width of the MLPs of the backbone as a multiple of `hidden_dim`.
        rrwp_dim: number of channels of RRWP that are read. It is K + 1 for the paper's "PE-dim K": the identity and K
            powers, by the published numbers of parameters.
        stem_dim: hidden width of the MLP of the pair stem ("MLP-dim").
        pair_dim: width of the pair encodings ("edge-dim"). None for `hidden_dim`.
        num_stem_ffn: number of feed-forward networks of the pair stem.
        stem_ffn_expansion: their hidden width as a multiple of `pair_dim`.
        num_frequencies: S of the sinusoidal enhancement (equation 9). 0 without it.
        attention: "sl2" (equation 4) or "sdp" (equation 2).
        urpe: whether weights are multiplied by the gate phi(p) (equation 5).
        norm: normalisation in backbone and stem: "adarms" (equation 3), "rms" (equation 1), "batch" or "layer".
        edge_vector: whether a learnt vector is added to the pair of each edge, for graphs without edge features.
        attn_dropout: rate of dropout on the gated weights.
        drop_path: rate of stochastic depth, per graph, the same for each branch.
        pooling: "sum", "mean" or "class-attention", for the level "graph".
        head: "halving": each layer has half the width of the one before, as the published number of parameters of
            ZINC implies (Table 7). "constant": all have the same width, as that of BREC implies (Table 10).
        head_layers: number of linear layers of the head.

    Raises:
        ValueError: arguments do not fit each other, or a batch has no nodes.
        MissingEncoding: "rrwp" is missing or too narrow.
    """

    # subclasses override these
    scale_queries: bool = True  # see `SL2Attention`
    node_extras: ClassVar[dict[str, int]] = {"degree": 1, "order": 1}  # widths of `extra_node_channels`
    pair_extras: int = 3  # number of `extra_pair_channels`
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
        at_least(
            1, hidden_dim=hidden_dim, num_layers=num_layers, num_heads=num_heads, ffn_expansion=ffn_expansion,
            stem_dim=stem_dim, pair_dim=pair_dim, stem_ffn_expansion=stem_ffn_expansion, head_layers=head_layers,
        )  # fmt: skip
        at_least(0, rrwp_dim=rrwp_dim, num_stem_ffn=num_stem_ffn, num_frequencies=num_frequencies)
        if hidden_dim % num_heads:
            raise ValueError(
                f"num_heads={num_heads} does not divide hidden_dim={hidden_dim}: "
                "choose heads that split the width evenly"
            )
        choices: dict[str, tuple] = {
            "level": (level, ("graph", "node")),
            "attention": (attention, ("sl2", "sdp")),
            "urpe": (urpe, (True, False)),
            "head": (head, ("halving", "constant")),
            "pooling": (pooling, ("sum", "mean", "class-attention")),
        }
        for name, (value, known) in choices.items():
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
        """Returns graph outputs [B, out_dim] or node outputs [N, out_dim].

        Args:
            batch: the graphs.
            edge_values: added to the encodings of the pairs of the edges, [E, pair_dim]. None for nothing.
        """
        batch = GraphBatch.of(batch)
        return self.forward_head(self.forward_features(batch, edge_values), batch)

    def forward_features(self, batch: GraphBatch, edge_values: Tensor | None = None) -> Tensor:
        """Returns Y of equation 7, the nodes after the last norm of the backbone, [N, hidden_dim]."""
        if batch.num_nodes == 0:
            raise ValueError("the batch has no nodes: drop empty graphs before batching")
        x = self.encode_nodes(batch)  # equation 8, [N, d]
        p = self.encode_pairs(batch, edge_values)  # equation 10, [P, pair_dim]
        return self.norm(self.layers(x, p, batch))  # equation 7

    def forward_head(self, features: Tensor, batch: GraphBatch) -> Tensor:
        """Applies pooling, if the level is "graph", and the head: [N, hidden_dim] -> [B or N, out_dim]."""
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
        """Returns x^0 (equation 8 and Appendix B.3), [N, hidden_dim]."""
        rrwp, nodes = batch.encoding("rrwp", self.rrwp_dim), torch.arange(batch.num_nodes, device=batch.ptr.device)
        dtype = dtype_of(self.diagonal_encoder)
        x = self.embed_nodes(batch) + self.diagonal_encoder(rrwp[batch.pair_of(nodes, nodes)].to(dtype))  # [N, d]
        for name, channels in self.extra_node_channels(batch, dtype).items():
            x = x + getattr(self, f"{name}_encoder")(channels)
        return x

    def embed_nodes(self, batch: GraphBatch) -> Tensor:
        """Returns FC(x') of equation 8, [N, hidden_dim]."""
        return self.node_encoder(batch.x)

    def encode_pairs(self, batch: GraphBatch, edge_values: Tensor | None) -> Tensor:
        """Returns the pair encodings p^0 (equation 10 and Appendix B.3), [P, pair_dim]."""
        dtype = dtype_of(self.diagonal_encoder)
        rrwp = batch.encoding("rrwp", self.rrwp_dim).to(dtype)
        raw = torch.cat([rrwp, *self.extra_pair_channels(batch, dtype)], 1)  # p', [P, K + 3]
        edge = self.encode_edges(batch, edge_values)  # [E, pair_dim] or None
        if edge is not None:  # edges stored twice add up
            edge = edge.new_zeros(raw.size(0), edge.size(1)).index_add(0, batch.pair_of(*self.edge_ends(batch)), edge)
        return self.stem(raw, edge, self.keep_branches(batch))

    def keep_branches(self, batch: GraphBatch) -> Tensor | None:
        """Returns the factors `keep` of `PairStem.forward` for stochastic depth. None without it."""
        return None

    def encode_edges(self, batch: GraphBatch, edge_values: Tensor | None) -> Tensor | None:
        """Returns FC(e') of equation 8, [E, pair_dim]. None if edges have no features."""
        parts = [] if edge_values is None else [edge_values]
        if self.edge_encoder is not None:
            parts.append(self.edge_encoder(batch.edge_features()))
        if self.edge_vector is not None:
            parts.append(self.edge_vector.expand(batch.num_edges, -1))
        return sum(parts[1:], parts[0]) if parts else None

    def extra_node_channels(self, batch: GraphBatch, dtype: torch.dtype) -> dict[str, Tensor]:
        """Returns the logarithms of degree and of the number of nodes (Appendix B.3), [N, 1] each."""
        return {
            "degree": self.degree(batch, dtype).log1p()[:, None],
            "order": batch.sizes[batch.batch].to(dtype).log1p()[:, None],
        }

    def extra_pair_channels(self, batch: GraphBatch, dtype: torch.dtype) -> list[Tensor]:
        """Returns 1 / number of nodes, and 1 / degree of key and of query (Appendix B.3), [P, 1] each."""
        (query, key), degree = batch.pair_nodes, self.degree(batch, dtype)
        # unstated: 1/degree of a node without edges; 0, as in the authors' implementation
        inverse = degree.reciprocal().where(degree > 0, 0.0)  # [N]
        return [
            batch.sizes[batch.batch[query]].to(dtype).reciprocal()[:, None],
            inverse[key][:, None],
            inverse[query][:, None],
        ]

    def degree(self, batch: GraphBatch, dtype: torch.dtype) -> Tensor:
        """Returns the number of outgoing edges of each node, [N]."""
        return batch.out_degree(dtype)

    def edge_ends(self, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """Returns query and key of the pair that reads the features of each edge, long [E] each."""
        return tuple(batch.edge_index)
