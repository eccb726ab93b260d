"""Higher-order Transformer (Kim, Oh, Hong 2021, "Transformers Generalize DeepSets and Can be Extended to Graphs and Hypergraphs").

Encoder layers Enc_{k->l} on order-k tensors: order 1 are nodes, order 2 nodes and edges, order 3 and more hyperedges. Forms of the paper:
dense (D) or sparse (S) support, softmax or kernel (phi) attention; (S, phi) is linear in edges.
"""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from gt_models.batch import GraphBatch
from gt_models.hot.attention import HigherOrderAttention, check_attention
from gt_models.hot.cooccurrence import node_input
from gt_models.hot.equivariant_linear import EquivariantLinear
from gt_models.hot.support import Support
from gt_models.hot.tensor_head import TensorHead, hyperedge_index
from gt_models.nn.mlp import activation as make_activation
from gt_models.nn.performer import RandomFeatures
from gt_models.registry import register_model


@register_model(
    "hot",
    levels=("graph", "node", "pair", "hyperedge"),
    cost="m d^2 (S, phi); m^2 d (S); n^2 d^2 (D, phi); n^4 d (D)",
    paper="Kim, Oh, Hong: Transformers Generalize DeepSets and Can be Extended to Graphs and Hypergraphs, NeurIPS 2021. "
    "https://arxiv.org/abs/2110.14416",
)
class HigherOrderTransformer(nn.Module):
    """Input map, `num_layers` x Enc_{k->k}, Enc_{k->l}, head. What the authors' code does otherwise: `gt_models/released/hot.py`.

    Args:
        in_dim: width of node features, or vocabulary sizes of categorical columns.
        out_dim: width of the output.
        level: "graph" (l = 0), "node" (l = 1), "pair" (l = 2 on all pairs of a graph), "hyperedge" (l = `hyperedge_order` on the tuples
            `batch.extras["hyperedge_index"]`, long [H, order]).
        edge_dim: width or vocabulary sizes of edge features; None: the adjacency alone.
        input_order: k; None is 2 for graphs and nodes, 1 for pairs and hyperedges.
        form: support of order 2: "sparse" (S) the diagonal and the edges, "dense" (D) all pairs. Pairs are always all pairs.
        attention: "softmax" (Eq. 17) or "kernel" (phi, Eq. 21).
        kernel: feature map of the kernel: "softmax" (Performer's, Section 4.3) or "generalized" (relu).
        num_features: random features per head; None is int(d ln d).
        redraw_interval: training forwards between draws of the projection; None never.
        hidden_dim, num_layers, num_heads: width, number of layers k -> k, heads.
        qk_dim, v_dim, ffn_dim: widths of queries and keys, of values (all heads), of the feed-forward; None is `hidden_dim`.
        dropout: after attention and feed-forward.
        global_classes: False is the ablation "w/o global" (Section 5).
        hyperedge_order: nodes of a hyperedge.
        node_encoder: "features" takes or embeds node features; "cooccurrence" encodes how often nodes are in one known hyperedge, see
            `CooccurrenceInput` (input order 1).

    Raises:
        ValueError: heads that do not divide a width, unknown settings, features or hyperedges that do not fit.
    """

    def __init__(
        self,
        in_dim: int | Sequence[int],
        out_dim: int,
        level: str = "graph",
        edge_dim: int | Sequence[int] | None = None,
        input_order: int | None = None,
        form: Literal["sparse", "dense"] = "sparse",
        attention: Literal["softmax", "kernel"] = "kernel",
        kernel: Literal["softmax", "generalized"] = "softmax",
        num_features: int | None = None,
        redraw_interval: int | None = 1,
        hidden_dim: int = 64,
        num_layers: int = 4,
        num_heads: int = 4,
        qk_dim: int | None = None,
        v_dim: int | None = None,
        ffn_dim: int | None = None,
        dropout: float = 0.0,
        global_classes: bool = True,
        hyperedge_order: int = 3,
        node_encoder: Literal["features", "cooccurrence"] = "features",
    ):
        super().__init__()
        if level not in ("graph", "node", "pair", "hyperedge"):
            raise ValueError(f"unknown level {level!r}; known: graph, node, pair, hyperedge")
        if form not in ("sparse", "dense") or kernel not in ("softmax", "generalized"):
            raise ValueError(f"form {form!r} (sparse or dense) or kernel {kernel!r} (softmax or generalized) is unknown")
        if level == "hyperedge" and hyperedge_order < 2:
            raise ValueError(f"hyperedge_order {hyperedge_order}: a hyperedge has two nodes or more")
        qk_dim, v_dim, ffn_dim = (hidden_dim if width is None else width for width in (qk_dim, v_dim, ffn_dim))
        check_attention(qk_dim, v_dim, num_heads, attention)
        self.level, self.hyperedge_order = level, hyperedge_order
        self.k = (2 if level in ("graph", "node") else 1) if input_order is None else input_order
        self.l = {"graph": 0, "node": 1, "pair": 2, "hyperedge": hyperedge_order}[level]
        if level == "hyperedge" and self.k == self.l:
            raise ValueError("hyperedges of two nodes need input_order=1 (their pairs are not the graph's edges)")
        # a last layer 2 -> 2 for pairs needs its input on all pairs too
        self.form = "dense" if level == "pair" else form
        self.input = self.make_input(node_encoder, in_dim, edge_dim, hidden_dim)
        self.input_map = EquivariantLinear(self.k, self.k, self.input.width, hidden_dim, light=True)
        # one map for all layers, as the authors do (unstated in the paper)
        self.features = None
        if attention == "kernel":
            self.features = RandomFeatures(qk_dim // num_heads, num_features, redraw_interval, "softmax" if kernel == "softmax" else "relu")

        def layer(l: int, qk: int, v: int, heads: int, distinct_output: bool = False) -> EncoderLayer:
            attend = HigherOrderAttention(
                self.k, l, hidden_dim, qk, v, heads, dropout, attention, global_classes=global_classes, distinct_output=distinct_output,
                **self.attention_settings(attention),
            )  # fmt: skip
            return EncoderLayer(attend, hidden_dim, ffn_dim, dropout, self.activation, distinct_output)

        self.layers = nn.ModuleList(layer(self.k, qk_dim, v_dim, num_heads) for _ in range(num_layers))
        self.layers.append(layer(self.l, *self.last_widths(qk_dim, v_dim, num_heads), level == "hyperedge"))
        self.head = self.make_head(hidden_dim, out_dim)

    # the places at which the released code does otherwise
    activation = "relu"  # Eq. (8)

    def make_input(
        self, node_encoder: str, in_dim: int | Sequence[int], edge_dim: int | Sequence[int] | None, hidden_dim: int
    ) -> nn.Module:
        return node_input(node_encoder, self.k, in_dim, edge_dim, hidden_dim)

    def attention_settings(self, attention: str) -> dict[str, Any]:
        """Arguments of `HigherOrderAttention`."""
        return {}

    def last_widths(self, qk_dim: int, v_dim: int, num_heads: int) -> tuple[int, int, int]:
        """Of the last layer, Enc_{k->l}."""
        return qk_dim, v_dim, num_heads

    def make_head(self, hidden_dim: int, out_dim: int) -> nn.Module:
        return TensorHead(hidden_dim, out_dim)

    def reset_parameters(self) -> None:
        for part in (self.input, self.input_map, self.features, *self.layers, self.head):
            if part is not None:
                part.reset_parameters()

    def forward(self, batch: GraphBatch) -> Tensor:
        """GraphBatch or torch_geometric Data -> [B, out], [N, out], [sum n_b^2, out] or [H, out]."""
        batch = GraphBatch.of(batch)
        return self.forward_head(self.forward_features(batch), batch)

    def forward_features(self, batch: GraphBatch) -> Tensor:
        """[rows of the output, hidden_dim]; pairs are flat and row-major per graph."""
        batch = GraphBatch.of(batch)
        support = self.support(batch)
        if self.features is not None:
            self.features.step()
        values = self.embed(batch, support)  # [rows of order k, hidden]
        for layer in self.layers:
            values = layer(values, support, self.features)
        return values.index_select(0, support.flat_rows[2]) if self.level == "pair" else values

    def embed(self, batch: GraphBatch, support: Support) -> Tensor:
        """[rows of order k, hidden_dim]."""
        return self.input_map(self.input(batch, support, self.input_map.weight.dtype), support)

    def forward_head(self, features: Tensor, batch: GraphBatch) -> Tensor:
        return self.head(features, GraphBatch.of(batch))

    @torch.compiler.disable  # integer look-ups decide its shapes: nothing to compile
    def support(self, batch: GraphBatch) -> Support:
        """The tuples that this model's tensors live on; all layers share what is looked up in it."""
        if self.level == "pair" or (self.k == 2 and self.form == "dense"):
            support = Support.complete(batch, 2)
        else:
            support = Support.sparse(batch) if self.k == 2 else Support(batch)
        if self.level == "hyperedge":
            support.add_hyperedges(hyperedge_index(batch, self.hyperedge_order))
        return support


class EncoderLayer(nn.Module):
    """Enc_{k->l} (Eq. 8, 9): a = Attn(LN(A)); a + L2(act(L1(LN(a)))) with lightweight L1, L2. No residual around the attention: it has its
    own lightweight linear path."""

    def __init__(
        self, attention: HigherOrderAttention, hidden_dim: int, ffn_dim: int, dropout: float, activation: str, distinct_output: bool = False
    ):
        super().__init__()
        l = attention.l
        # unstated: where normalisation is (footnote 1 omits it). Before attention and feed-forward, as the authors' implementation
        self.attention_norm = nn.LayerNorm(hidden_dim)
        self.attention = attention
        self.ffn_norm = nn.LayerNorm(hidden_dim)
        self.ffn_in = EquivariantLinear(l, l, hidden_dim, ffn_dim, light=True, distinct_output=distinct_output)
        self.activation = make_activation(activation)
        self.ffn_out = EquivariantLinear(l, l, ffn_dim, hidden_dim, light=True, distinct_output=distinct_output)
        self.dropout = nn.Dropout(dropout)

    def reset_parameters(self) -> None:
        for part in (self.attention_norm, self.attention, self.ffn_norm, self.ffn_in, self.ffn_out):
            part.reset_parameters()

    def forward(self, values: Tensor, support: Support, features: RandomFeatures | None = None) -> Tensor:
        """[rows of order k, hidden] -> [rows of order l, hidden]."""
        attended = self.attention(self.attention_norm(values), support, features)
        hidden = self.activation(self.ffn_in(self.ffn_norm(attended), support))  # Eq. (8)
        return attended + self.dropout(self.ffn_out(hidden, support))  # Eq. (9)
