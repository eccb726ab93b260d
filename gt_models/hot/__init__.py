"""Higher-order Transformer (HOT).

Source: Kim, Oh and Hong 2021, "Transformers Generalize DeepSets and Can be Extended to Graphs and Hypergraphs",
https://arxiv.org/abs/2110.14416.

What the authors' code does differently: `gt_models.released.hot`.

Encoder layers Enc_{k->l} on order-k tensors: order 1 are nodes, order 2 nodes and edges, order 3 and more hyperedges.
Forms of the paper: dense (D) or sparse (S) support, softmax or kernel (phi) attention; (S, phi) is linear in edges.
"""

from collections.abc import Sequence
from typing import Final, Literal

from torch import Tensor, nn

from gt_models.batch import GraphBatch
from gt_models.hot.attention import HigherOrderAttention, check_attention
from gt_models.hot.encoders import make_encoder
from gt_models.hot.equivariant_linear import EquivariantLinear
from gt_models.hot.head import PredictionHead, hyperedge_index
from gt_models.hot.support import Support
from gt_models.layers.mlp import activation as make_activation
from gt_models.layers.performer import RandomFeatures
from gt_models.layers.precision import dtype_of
from gt_models.layers.reset import ResetParameters
from gt_models.layers.settings import at_least
from gt_models.registry import register_model

PAPER = (
    "Kim, Oh, Hong: Transformers Generalize DeepSets and Can be Extended to Graphs and Hypergraphs, NeurIPS 2021. "
    "https://arxiv.org/abs/2110.14416"
)
LEVELS: Final = ("graph", "node", "pair", "hyperedge")
COST = "m d^2 (S, phi); m^2 d (S); n^2 d^2 (D, phi); n^4 d (D)"


class EncoderLayer(ResetParameters):
    """Enc_{k->l}(A) = Attn_{k->l}(A) + MLP_{l->l}(Attn_{k->l}(A)) (Eq. 9), MLP_{l->l} = L^2(ReLU(L^1(.))) (Eq. 8).

    L^1 and L^2 are lightweight layers.

    Args:
        attention: Attn_{k->l}. It has a linear path, and no residual.
        dim: width of input and output.
        ffn_dim: hidden width d_F of the feed-forward layer.
        dropout: dropout rate of the feed-forward layer's output.
        activation: name of the activation; Eq. (8) has ReLU.
        distinct_output: the output is stored only on tuples of distinct nodes (hyperedges).
    """

    def __init__(
        self,
        attention: HigherOrderAttention,
        dim: int,
        ffn_dim: int,
        dropout: float,
        activation: str,
        distinct_output: bool,
    ):
        super().__init__()
        l = attention.l
        # unstated: where normalisation is (footnote 1 omits it). Before attention and feed-forward, as the authors'
        # implementation
        self.attention_norm = nn.LayerNorm(dim)
        self.attention = attention
        self.ffn_norm = nn.LayerNorm(dim)
        self.ffn_in = EquivariantLinear(l, l, dim, ffn_dim, light=True, distinct_output=distinct_output)
        self.activation = make_activation(activation)
        self.ffn_out = EquivariantLinear(l, l, ffn_dim, dim, light=True, distinct_output=distinct_output)
        self.dropout = nn.Dropout(dropout)

    def forward(self, values: Tensor, support: Support, features: RandomFeatures | None = None) -> Tensor:
        """Apply the layer.

        Args:
            values: A, [rows of order k, dim].
            support: the stored tuples.
            features: feature map of kernel attention.

        Returns:
            [rows of order l, dim].
        """
        attended = self.attention(self.attention_norm(values), support, features)
        hidden = self.activation(self.ffn_in(self.ffn_norm(attended), support))  # Eq. (8)
        return attended + self.dropout(self.ffn_out(hidden, support))  # Eq. (9)


@register_model("hot", levels=LEVELS, cost=COST, paper=PAPER)
class HigherOrderTransformer(ResetParameters):
    """An encoder of the batch, a linear map, `num_layers` x Enc_{k->k}, Enc_{k->l}, a head.

    Args:
        in_dim: width of node features, or vocabulary sizes of categorical columns.
        out_dim: output width.
        level: "graph" (l = 0), "node" (l = 1), "pair" (l = 2 on all pairs of a graph), "hyperedge" (l =
            `hyperedge_order` on the tuples `batch.extras["hyperedge_index"]`, long [H, order]).
        edge_dim: width or vocabulary sizes of edge features; None uses the adjacency alone.
        input_order: k; None is 2 for graphs and nodes, 1 for pairs and hyperedges.
        form: support of order 2: "sparse" (S), the diagonal and the edges, or "dense" (D), all pairs. At level
            "pair" it is always all pairs.
        attention: "softmax" (Eq. 17) or "kernel" (phi, Eq. 21).
        kernel: feature map of the kernel: "softmax" (Performer's, Section 4.3) or "generalized" (ReLU).
        num_features: random features per head; None: int(d ln d).
        redraw_interval: training forward passes between two draws of the random features; None: never drawn again.
        hidden_dim: width.
        num_layers: number of layers Enc_{k->k}.
        num_heads: number of heads.
        qk_dim: width of queries and keys, all heads together; None is `hidden_dim`.
        v_dim: width of values, all heads together; None is `hidden_dim`.
        ffn_dim: hidden width of the feed-forward layers; None is `hidden_dim`.
        dropout: dropout rate after attention and feed-forward.
        global_classes: False is the ablation "w/o global" (Section 5).
        hyperedge_order: nodes of a hyperedge.
        node_encoder: "features" uses or embeds node features; "cooccurrence" encodes how often nodes are in one known
            hyperedge, see `CooccurrenceEncoder` (input order 1).

    Raises:
        ValueError: unknown settings, or heads that do not divide a width; in `forward`, features or hyperedges that do
            not fit.
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
        qk_dim, v_dim, ffn_dim = (hidden_dim if width is None else width for width in (qk_dim, v_dim, ffn_dim))
        at_least(
            1, hidden_dim=hidden_dim, qk_dim=qk_dim, v_dim=v_dim, ffn_dim=ffn_dim, num_features=num_features,
            redraw_interval=redraw_interval, hyperedge_order=hyperedge_order,
        )  # fmt: skip
        at_least(0, num_layers=num_layers)
        check_forms(form, kernel)
        check_attention(qk_dim, v_dim, num_heads, attention)
        self.k, self.l = orders(level, input_order, hyperedge_order)
        # a last layer 2 -> 2 for pairs needs its input on all pairs too
        self.level, self.hyperedge_order, self.form = level, hyperedge_order, "dense" if level == "pair" else form
        self.input = self.make_input(node_encoder, in_dim, edge_dim, hidden_dim)
        self.input_map = EquivariantLinear(self.k, self.k, self.input.width, hidden_dim, light=True)
        # one map for all layers, as the authors do (unstated in the paper)
        phi = {"softmax": "softmax", "generalized": "relu"}[kernel]
        self.features = (
            RandomFeatures(qk_dim // num_heads, num_features, redraw_interval, phi) if attention == "kernel" else None
        )
        widths = [(self.k, qk_dim, v_dim, num_heads, False)] * num_layers
        widths += [(self.l, *self.last_widths(qk_dim, v_dim, num_heads), level == "hyperedge")]
        self.layers = nn.ModuleList()
        for l, qk, v, heads, hyperedges in widths:
            attend = self.attention_class(
                self.k,
                l,
                hidden_dim,
                qk,
                v,
                heads,
                dropout,
                attention,
                global_classes=global_classes,
                distinct_output=hyperedges,
            )
            self.layers.append(EncoderLayer(attend, hidden_dim, ffn_dim, dropout, self.activation, hyperedges))
        self.head = self.make_head(hidden_dim, out_dim)

    # the authors' code differs here (gt_models.released.hot)
    attention_class, activation = HigherOrderAttention, "relu"  # Eq. (8)

    def make_input(
        self, encoder: str, in_dim: int | Sequence[int], edge_dim: int | Sequence[int] | None, hidden_dim: int
    ) -> nn.Module:
        """The encoder of node and edge features as a tensor of order k (see `make_encoder`)."""
        return make_encoder(encoder, self.k, in_dim, edge_dim, hidden_dim)

    def last_widths(self, qk_dim: int, v_dim: int, num_heads: int) -> tuple[int, int, int]:
        """`qk_dim`, `v_dim` and `num_heads` of the last layer, Enc_{k->l}."""
        return qk_dim, v_dim, num_heads

    def make_head(self, hidden_dim: int, out_dim: int) -> nn.Module:
        """The head: [rows, hidden_dim] -> [rows, out_dim]."""
        return PredictionHead(hidden_dim, out_dim)

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
        return self.input_map(self.input(batch, support, dtype_of(self.input_map)), support)

    def forward_head(self, features: Tensor, batch: GraphBatch) -> Tensor:
        """The head: rows of the output order [rows, hidden_dim] -> [rows, out_dim]."""
        return self.head(features, GraphBatch.of(batch))

    def support(self, batch: GraphBatch) -> Support:
        """The tuples on which this model's tensors are stored; all layers share its index tensors."""
        if self.k == 2 or self.level == "pair":
            support = Support.complete(batch, 2) if self.form == "dense" else Support.sparse(batch)
        else:
            support = Support(batch)
        if self.level == "hyperedge":
            support.add_hyperedges(hyperedge_index(batch, self.hyperedge_order))
        return support


def orders(level: str, input_order: int | None, hyperedge_order: int) -> tuple[int, int]:
    """Input order k and output order l of a model.

    Raises:
        ValueError: an unknown level, or hyperedges that the input order does not allow.
    """
    if level not in LEVELS:
        raise ValueError(f"unknown level {level!r}; known: {', '.join(LEVELS)}")
    if level == "hyperedge" and hyperedge_order < 2:
        raise ValueError(f"hyperedge_order {hyperedge_order}: a hyperedge has two nodes or more")
    k = (2 if level in ("graph", "node") else 1) if input_order is None else input_order
    l = {"graph": 0, "node": 1, "pair": 2, "hyperedge": hyperedge_order}[level]
    if level == "hyperedge" and k == l:
        raise ValueError("hyperedges of two nodes need input_order=1 (their pairs are not the graph's edges)")
    return k, l


def check_forms(form: str, kernel: str) -> None:
    """Check the names of the support and the kernel.

    Raises:
        ValueError: an unknown name.
    """
    if form not in ("sparse", "dense") or kernel not in ("softmax", "generalized"):
        raise ValueError(f"form {form!r} (sparse or dense) or kernel {kernel!r} (softmax or generalized) is unknown")
