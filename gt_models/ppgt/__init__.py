"""PPGT, https://arxiv.org/abs/2504.12588: nodes are tokens of a plain transformer with simplified L2 attention and AdaRMSNorm; the graph enters
by one encoding per ordered pair of nodes (RRWP through a stem of MLPs), which every layer reads as a bias and a gate of its attention.

Equation numbers are the paper's: norms (Eqs. 1 and 3) are in `norms`, the stem (Eqs. 8 right, 9 and 10) in `stem`, the class token in
`class_attention`. What the authors' code does otherwise is in `gt_models.released.ppgt`.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gt_models.batch import GraphBatch
from gt_models.kernels.dropout import draw_seed
from gt_models.kernels.gated_attention import gated_attention
from gt_models.kernels.gelu_mlp import feed_forward
from gt_models.kernels.row_linear import RowLinear, row_linear
from gt_models.layers.features import FeatureEncoder
from gt_models.layers.pooling import pool
from gt_models.ppgt.class_attention import ClassAttention, Residual
from gt_models.ppgt.norms import make_norm
from gt_models.ppgt.stem import PairStem, stem_init
from gt_models.registry import register_model

PAPER = "Ma, Pal, Zhang, Torr, Coates: Plain Transformers Can be Powerful Graph Learners, 2025. https://arxiv.org/abs/2504.12588"


@register_model("ppgt", levels=("graph", "node"), cost="n^2 d", encodings=("rrwp",), paper=PAPER)
class PPGT(nn.Module):
    """Predicts [B, out_dim] (graph) or [N, out_dim] (node).

    Args:
        in_dim, out_dim, level, edge_dim: as everywhere (see `create_model`); `edge_dim=None` reads no edge features.
        hidden_dim, num_layers, num_heads, ffn_expansion: the backbone.
        rrwp_dim: RRWP channels read: the identity and the K powers of the paper's "PE-dim K", K + 1, as the printed counts have it.
        stem_dim, pair_dim, num_stem_ffn, stem_ffn_expansion: the pair stem (MLP-dim, edge-dim, FFN blocks); pair_dim None is hidden_dim.
        num_frequencies: S of the sinusoidal enhancement (Eq. 9); 0 leaves it out.
        attention: "sl2" (Eq. 4) or "sdp" (Eq. 2). urpe: whether weights are multiplied by the gate phi(p) (Eq. 5).
        norm: "adarms" (Eq. 3), "rms" (Eq. 1), "batch" or "layer", everywhere in backbone and stem.
        edge_vector: add one learnt vector to every edge's pair, for graphs whose edges carry nothing.
        attn_dropout: rate at which gated weights are dropped. drop_path: rate of stochastic depth, per graph, alike for every branch.
        pooling: "sum", "mean" or "class-attention" (graph level).
        head, head_layers: "halving" widths, as the printed ZINC count has it (Table 7), or "constant", as BREC's has (Table 10); how many.

    Raises ValueError for impossible choices and a batch without nodes, MissingEncoding for "rrwp" absent or too narrow.
    """

    # for subclasses, which set them before this constructor
    scale_queries: bool = True  # whether <q, k> is divided by sqrt(d / H), as Eq. 5 has it
    node_extras: ClassVar[dict[str, int]] = {
        "degree": 1,
        "order": 1,
    }  # channels of `extra_node_channels` (Appendix B.3)
    pair_extras: int = 3  # channels of `extra_pair_channels`
    stem_class: type[PairStem] = PairStem
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
                f"num_heads={num_heads} does not divide hidden_dim={hidden_dim}: choose heads that split the width evenly"
            )
        given: dict[str, tuple] = {"level": (level, ("graph", "node")), "attention": (attention, ("sl2", "sdp"))}
        given |= {"urpe": (urpe, (True, False)), "head": (head, ("halving", "constant"))}
        given |= {"pooling": (pooling, ("sum", "mean", "class-attention"))}
        for name, (value, known) in given.items():
            if value not in known:
                raise ValueError(f"unknown {name} {value!r}; known: {', '.join(map(str, known))}")
        if head == "halving" and hidden_dim >> (head_layers - 1) < 1:
            raise ValueError(
                f"a head of width {hidden_dim} cannot halve {head_layers - 1} times: head='constant', or fewer head_layers"
            )
        pair_dim = pair_dim or hidden_dim
        self.level, self.rrwp_dim, self.num_heads, self.urpe, self.pooling = level, rrwp_dim, num_heads, urpe, pooling
        self.node_encoder = FeatureEncoder(in_dim, hidden_dim)
        self.diagonal_encoder = nn.Linear(rrwp_dim, hidden_dim)
        for name, width in self.node_extras.items():
            self.add_module(f"{name}_encoder", nn.Linear(width, hidden_dim))
        self.edge_encoder = None if edge_dim is None else FeatureEncoder(edge_dim, pair_dim)
        self.edge_vector = nn.Parameter(torch.empty(pair_dim)) if edge_vector else None
        stem = (
            rrwp_dim + self.pair_extras,
            pair_dim,
            stem_dim,
            num_stem_ffn,
            stem_ffn_expansion,
            num_frequencies,
            norm,
        )
        self.stem = self.stem_class(*stem)
        layer = (hidden_dim, num_heads, ffn_expansion, norm, attention, self.scale_queries, attn_dropout, drop_path)
        self.layers = nn.ModuleList([PPGTLayer(*layer, pair_dim, urpe) for _ in range(num_layers)])
        self.norm = make_norm(norm, hidden_dim)
        by_class = level == "graph" and pooling == "class-attention"
        self.class_attention = ClassAttention(*layer, self.class_attention_layers) if by_class else None
        widths = [hidden_dim >> i if head == "halving" else hidden_dim for i in range(head_layers)] + [out_dim]
        self.head = nn.ModuleList([nn.Linear(a, b) for a, b in pairwise(widths)])
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
        stems = [self.diagonal_encoder, *(getattr(self, f"{name}_encoder") for name in self.node_extras)]
        for linear in (*stems, *(e.linear for e in (self.node_encoder, self.edge_encoder) if e and e.linear)):
            stem_init(linear, 1.0)
        # unstated: the learnt vectors; as in the authors' implementation N(0, 1) for edges, truncated normal 0.02 for target and class
        if self.edge_vector is not None:
            nn.init.normal_(self.edge_vector)

    def forward(self, batch: GraphBatch, edge_values: Tensor | None = None) -> Tensor:
        """[B, out_dim] or [N, out_dim]. `edge_values` [E, pair_dim] join the pairs of the edges (encodings learnt elsewhere)."""
        batch = GraphBatch.of(batch)
        return self.forward_head(self.forward_features(batch, edge_values), batch)

    def forward_features(self, batch: GraphBatch, edge_values: Tensor | None = None) -> Tensor:
        """Nodes after the backbone's last norm, [N, hidden_dim] (Eq. 7)."""
        if batch.num_nodes == 0:
            raise ValueError("the batch has no nodes: drop empty graphs before batching")
        x, p = self.encode_nodes(batch), self.encode_pairs(batch, edge_values)  # [N, d], [P, pair_dim], P = sum n^2
        # theta and phi of Eq. 5 are linear in the same p in every layer: one product for all of them
        weight = torch.cat([layer.attention.pair_linear.weight for layer in self.layers])
        for layer, theta_phi in zip(
            self.layers, row_linear(p, weight, self.pair_bias()).chunk(len(self.layers), 1), strict=True
        ):
            x = layer(x, theta_phi, batch)
        return self.norm(x)

    def forward_head(self, features: Tensor, batch: GraphBatch) -> Tensor:
        """Pooling where the level is the graph, then the MLP: [N, hidden_dim] -> [B or N, out_dim]."""
        h = self.class_attention(features, batch) if self.class_attention is not None else features
        return self.predict(
            pool(h, batch, self.pooling) if self.level == "graph" and self.class_attention is None else h
        )

    def predict(self, h: Tensor) -> Tensor:  # the head: [rows, hidden_dim] -> [rows, out_dim]
        for i, linear in enumerate(self.head):
            h = linear(F.gelu(h) if i else h)
        return h

    def encode_nodes(self, batch: GraphBatch) -> Tensor:
        """Eq. 8 left with Appendix B.3: [N, hidden_dim]."""
        rrwp, nodes = batch.encoding("rrwp", self.rrwp_dim), torch.arange(batch.num_nodes, device=batch.ptr.device)
        if rrwp.size(0) != batch.num_pairs:
            wanted = f"one per ordered pair of nodes of one graph: {batch.num_pairs}"
            raise ValueError(f"encoding 'rrwp' has {rrwp.size(0)} rows; it needs {wanted}")
        dtype = self.diagonal_encoder.weight.dtype
        x = self.embed_nodes(batch) + self.diagonal_encoder(rrwp[batch.pair_of(nodes, nodes)].to(dtype))  # [N, d]
        for name, channels in self.extra_node_channels(batch, dtype).items():
            x = x + getattr(self, f"{name}_encoder")(channels)
        return x

    def embed_nodes(self, batch: GraphBatch) -> Tensor:  # [N, hidden_dim]
        return self.node_encoder(batch.x)

    def encode_pairs(self, batch: GraphBatch, edge_values: Tensor | None) -> Tensor:
        """Eq. 10 with Appendix B.3: [P, pair_dim]."""
        dtype = self.diagonal_encoder.weight.dtype
        raw = torch.cat(
            [batch.encoding("rrwp", self.rrwp_dim).to(dtype), *self.extra_pair_channels(batch, dtype)], 1
        )  # [P, K + 3]
        edge = self.encode_edges(batch, edge_values)  # [E, pair_dim] or None
        if edge is not None:  # edges stored twice add up
            edge = edge.new_zeros(raw.size(0), edge.size(1)).index_add(0, batch.pair_of(*self.edge_ends(batch)), edge)
        return self.stem(raw, edge, self.keep_branches(batch))

    def keep_branches(self, batch: GraphBatch) -> Tensor | None:  # for stochastic depth in the stem
        return None  # factors of the branches of the stem's FFN blocks, [P, blocks]

    def encode_edges(self, batch: GraphBatch, edge_values: Tensor | None) -> Tensor | None:
        """What edges bring to their pairs, [E, pair_dim]; None where nothing does."""
        parts = [] if edge_values is None else [edge_values]
        if self.edge_encoder is not None:
            if batch.edge_attr is None:
                raise ValueError(
                    "the model was built with edge_dim and the batch has no edge_attr: set it, or build with edge_dim=None"
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

    def degree(self, batch: GraphBatch, dtype: torch.dtype) -> Tensor:  # edges that leave each node, [N]
        return batch.out_degree(dtype)

    def edge_ends(self, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """Query and key of the pair that reads each edge's features, long [E] each."""
        return tuple(batch.edge_index)

    def pair_bias(self) -> Tensor:
        """Bias of theta and phi in all layers, [L G H], G = 2 or, without a gate, 1."""
        return torch.cat([layer.attention.pair_linear.bias for layer in self.layers])


class PPGTLayer(nn.Module):
    """Eq. 7: x + Attention(norm(x)), then x + MLP(norm(x)), on flat nodes [N, dim]."""

    def __init__(
        self, dim: int, num_heads: int, expansion: int, norm: str, attention: str, scale_queries: bool, attn_dropout: float,
        drop_path: float, pair_dim: int, urpe: bool,
    ):  # fmt: skip
        super().__init__()
        self.norm1, self.norm2 = make_norm(norm, dim), make_norm(norm, dim)
        self.attention = SL2Attention(dim, num_heads, attention, scale_queries, attn_dropout, pair_dim, urpe)
        self.linear1, self.linear2 = nn.Linear(dim, expansion * dim), nn.Linear(expansion * dim, dim)
        self.residual1, self.residual2 = Residual(drop_path), Residual(drop_path)

    def forward(self, x: Tensor, theta_phi: Tensor, batch: GraphBatch) -> Tensor:  # [N, dim]
        x = self.residual1(x, self.attention(self.norm1(x), theta_phi, batch), batch.batch, batch.num_graphs)
        return self.residual2(x, feed_forward(self.norm2(x), self.linear1, self.linear2), batch.batch, batch.num_graphs)


class SL2Attention(nn.Module):
    """Multi-head Eq. 5 on flat nodes [N, dim]: out_i = sum_j phi_ij softmax_j(<q_i, k_j> / sqrt(d) - |k_j|^2 / (2 sqrt(d)) + theta_ij) v_j,
    d the width of a head; theta and phi, side by side [P, G H], are this layer's `pair_linear` on the pair encodings; G is 1 without a gate."""

    def __init__(
        self, dim: int, num_heads: int, attention: str, scale_queries: bool, dropout: float, pair_dim: int, urpe: bool
    ):
        super().__init__()
        self.num_heads, self.dropout, root = num_heads, dropout, (dim // num_heads) ** 0.5
        self.scale = 1.0 / root if scale_queries else 1.0
        self.key_scale = -0.5 / root if attention == "sl2" else 0.0  # Eq. 4; without it Eq. 2
        self.qkv, self.out = RowLinear(dim, 3 * dim), RowLinear(dim, dim)
        self.pair_linear = nn.Linear(pair_dim, num_heads * (2 if urpe else 1))  # theta, phi

    def forward(self, x: Tensor, theta_phi: Tensor, batch: GraphBatch) -> Tensor:  # [N, dim]
        seed = draw_seed() if self.training and self.dropout else None
        return self.out(
            gated_attention(
                self.qkv(x), theta_phi, self.num_heads, batch, self.scale, self.key_scale, self.dropout, seed
            )
        )
