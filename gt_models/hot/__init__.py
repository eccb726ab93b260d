"""Higher-order Transformer (Kim, Oh, Hong 2021, "Transformers Generalize DeepSets and Can be Extended to Graphs and Hypergraphs",
https://arxiv.org/abs/2110.14416). What the authors' code does otherwise: `gt_models.released.hot`.

Encoder layers Enc_{k->l} on order-k tensors: order 1 are nodes, order 2 nodes and edges, order 3 and more hyperedges. Forms of the paper:
dense (D) or sparse (S) support, softmax or kernel (phi) attention; (S, phi) is linear in edges.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from gt_models.batch import GraphBatch
from gt_models.hot.attending_classes import AttendingClasses, full
from gt_models.hot.class_softmax import masked_attention
from gt_models.hot.cooccurrence import node_input
from gt_models.hot.equivalence_classes import distinct
from gt_models.hot.equivariant_linear import EquivariantLinear, linear
from gt_models.hot.settings import COST, LEVELS, PAPER, check_attention, check_forms, orders
from gt_models.hot.stabilizers import graph_maximum
from gt_models.hot.support import Support
from gt_models.hot.tensor_head import TensorHead, hyperedge_index
from gt_models.kernels.kernel_attention import Columns, attend, kernel_attentions
from gt_models.layers.mlp import activation as make_activation
from gt_models.layers.performer import RandomFeatures, softmax_kernel
from gt_models.registry import register_model


class HigherOrderAttention(AttendingClasses):
    """Attn_{k->l}(A)_j = sum over classes mu of sum_i alpha^mu_ij A_i w^V_mu w^O_mu, and a lightweight linear path (Eq. 10): [rows of order k,
    hidden_dim] -> [rows of order l, hidden_dim]. `attention` is "softmax" (Eq. 17) or "kernel" (Eq. 21), `dropout` falls on what the classes
    give, before w^O; the other arguments are those of `AttendingClasses`."""

    def __init__(
        self, k: int, l: int, hidden_dim: int, qk_dim: int, v_dim: int, num_heads: int, dropout: float = 0.0, attention: str = "softmax",
        global_classes: bool = True, distinct_output: bool = False,
    ):  # fmt: skip
        check_attention(qk_dim, v_dim, num_heads, attention)
        # deviates: Eq. (21) for l = 0. One query per graph makes softmax linear already, and the authors' implementation keeps it
        self.attention = "softmax" if l == 0 else attention
        super().__init__(k, l, hidden_dim, qk_dim, v_dim, num_heads, global_classes, distinct_output)
        self.dropout = nn.Dropout(dropout)

    def forward(self, values: Tensor, support: Support, features: RandomFeatures | None = None) -> Tensor:
        """`features`: the kernel's feature map. Kernel sums run in float32 under autocast. Raises ValueError where the kernel has no map."""
        kernel, light = self.attention == "kernel", self.maps[str(self.l)]
        queries, keys, light_rows = self.queries_and_keys(values, support, single=kernel)
        if kernel:
            attended = self.kernel(values, queries, keys, support, features)  # for each pattern [r, classes x v]
        else:
            of_class = self.softmax(values, [q.unflatten() for q in queries], [k.unflatten() for k in keys], support)
            attended = [
                torch.stack([of_class[s] for s in mine], 1).flatten(1) for mine in self.of_pattern.values() if mine
            ]
        out, joined = [], iter(attended)
        for pattern in light.patterns:
            if pattern == distinct(self.l) and light_rows is not None:
                part = light_rows
            else:
                part = light.at_pattern(
                    values, support, pattern, slice(light.out_dim - values.size(1), None)
                )  # [r, hidden], Eq. (14)
            if mine := self.of_pattern[pattern]:
                weight = self.output.weight[:, mine[0] * self.v_dim : (mine[-1] + 1) * self.v_dim]
                part = part + linear(self.dropout(next(joined)), weight, self.output.bias)  # w^O of Eq. (10)
            elif self.output is not None:
                part = part + self.output.bias
            out.append(part)
        return out[0] if len(out) == 1 else torch.cat(out)

    def softmax(self, values: Tensor, queries: list[Tensor], keys: list[Tensor], support: Support) -> list[Tensor]:
        """alpha^mu_ij = softmax over exactly the i of class mu of <q_j, k_i> / sqrt(d) (Eq. 12, 17), for each class [r, heads, head]."""
        v = [x.unflatten() for x in self.class_values(values, support)]
        return [
            masked_attention(
                queries[s], keys[s], v[s], self.query_source(support, c), self.key_source(support, c), support, c
            )
            for s, c in enumerate(self.classes)
        ]

    def kernel(
        self,
        values: Tensor,
        queries: list[Columns],
        keys: list[Columns],
        support: Support,
        features: RandomFeatures | None,
    ) -> list[Tensor]:
        """phi(q_j)^T sum_i phi(k_i) v_i^T / phi(q_j)^T sum_i phi(k_i) (Eq. 21): the sums once per group, read by the queries of the group."""
        if features is None:
            raise ValueError(
                "kernel attention needs its feature map: pass features=RandomFeatures(qk_dim // num_heads)"
            )
        with torch.autocast(values.device.type, enabled=False):
            v, groups = self.class_values(full(values), support), self.groups(support)
            # a copy: a projection drawn anew in place must not change a backward pass to come
            projection = features.projection.to(full(values).dtype, copy=True)
            queries = [self.at_outputs(q, support, c) for q, c in zip(queries, self.classes, strict=True)]
            if features.kernel == "relu":
                scaled = projection * projection.size(1) ** -0.25
                return list(kernel_attentions(queries, keys, v, groups, self.outs, scaled, features.eps))
            k, attended = [x.unflatten() for x in keys], []
            for s, stabilizer in enumerate(self.stabilizers(k, support, projection)):  # Eq. (19), (20)
                phi_q = softmax_kernel(queries[s].unflatten(), projection, True, features.eps, detach=False)
                phi_k = softmax_kernel(k[s], projection, False, features.eps, stabilizer=stabilizer)
                attended.append(attend(phi_q, phi_k, v[s].unflatten(), groups[s]).flatten(1))
            return [torch.cat([attended[s] for s in mine], 1) for mine in self.of_pattern.values() if mine]

    def stabilizers(self, keys: list[Tensor], support: Support, projection: Tensor) -> list[Tensor]:
        """What each class' keys are stabilised by, broadcastable to [K, heads, 1]: the maximum over the keys of the graph and head."""
        found = []
        for k, c in zip(keys, self.classes, strict=True):
            graph = support.counted(
                c.k, rows := self.key_rows(support, c), support.sets[c.k].graph[rows], support.num_graphs
            )
            found.append(graph_maximum(k, projection, self.key_source(support, c), graph, support.num_graphs))
        return found


class EncoderLayer(nn.Module):
    """Enc_{k->l} (Eq. 8, 9): a = Attn(LN(A)); a + L2(act(L1(LN(a)))) with lightweight L1, L2. Attention has a linear path, and no residual."""

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
        # unstated: where normalisation is (footnote 1 omits it). Before attention and feed-forward, as the authors' implementation
        self.attention_norm = nn.LayerNorm(dim)
        self.attention = attention
        self.ffn_norm = nn.LayerNorm(dim)
        self.ffn_in = EquivariantLinear(l, l, dim, ffn_dim, light=True, distinct_output=distinct_output)
        self.activation = make_activation(activation)
        self.ffn_out = EquivariantLinear(l, l, ffn_dim, dim, light=True, distinct_output=distinct_output)
        self.dropout = nn.Dropout(dropout)

    def reset_parameters(self) -> None:
        for part in (self.attention_norm, self.attention, self.ffn_norm, self.ffn_in, self.ffn_out):
            part.reset_parameters()

    def forward(self, values: Tensor, support: Support, features: RandomFeatures | None = None) -> Tensor:
        """[rows of order k, hidden] -> [rows of order l, hidden]."""
        attended = self.attention(self.attention_norm(values), support, features)
        hidden = self.activation(self.ffn_in(self.ffn_norm(attended), support))  # Eq. (8)
        return attended + self.dropout(self.ffn_out(hidden, support))  # Eq. (9)


@register_model("hot", levels=LEVELS, cost=COST, paper=PAPER)
class HigherOrderTransformer(nn.Module):
    """Input map, `num_layers` x Enc_{k->k}, Enc_{k->l}, head.

    Args:
        in_dim, out_dim: width of node features, or vocabulary sizes of categorical columns; width of the output.
        level: "graph" (l = 0), "node" (l = 1), "pair" (l = 2 on all pairs of a graph), "hyperedge" (l = `hyperedge_order` on the tuples
            `batch.extras["hyperedge_index"]`, long [H, order]).
        edge_dim: width or vocabulary sizes of edge features; None: the adjacency alone.
        input_order: k; None is 2 for graphs and nodes, 1 for pairs and hyperedges.
        form: support of order 2: "sparse" (S) the diagonal and the edges, "dense" (D) all pairs. Pairs are always all pairs.
        attention: "softmax" (Eq. 17) or "kernel" (phi, Eq. 21).
        kernel: feature map of the kernel: "softmax" (Performer's, Section 4.3) or "generalized" (relu).
        num_features, redraw_interval: random features per head (None: int(d ln d)); training forwards between draws (None: never).
        hidden_dim, num_layers, num_heads: width, number of layers k -> k, heads.
        qk_dim, v_dim, ffn_dim: widths of queries and keys, of values (all heads), of the feed-forward; None is `hidden_dim`.
        dropout: after attention and feed-forward.
        global_classes: False is the ablation "w/o global" (Section 5). hyperedge_order: nodes of a hyperedge.
        node_encoder: "features" takes or embeds node features; "cooccurrence" encodes how often nodes are in one known hyperedge, see
            `CooccurrenceInput` (input order 1).

    Raises ValueError for heads that do not divide a width, unknown settings, features or hyperedges that do not fit.
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
        check_forms(form, kernel)
        check_attention(qk_dim, v_dim, num_heads, attention)
        self.k, self.l = orders(level, input_order, hyperedge_order)
        # a last layer 2 -> 2 for pairs needs its input on all pairs too
        self.level, self.hyperedge_order, self.form = level, hyperedge_order, "dense" if level == "pair" else form
        self.input = self.make_input(node_encoder, in_dim, edge_dim, hidden_dim)
        self.input_map = EquivariantLinear(self.k, self.k, self.input.width, hidden_dim, light=True)
        # one map for all layers, as the authors do (unstated in the paper)
        phi = (
            qk_dim // num_heads,
            num_features,
            redraw_interval,
            {"softmax": "softmax", "generalized": "relu"}[kernel],
        )
        self.features = RandomFeatures(*phi) if attention == "kernel" else None
        widths = [(self.k, qk_dim, v_dim, num_heads, False)] * num_layers
        widths += [(self.l, *self.last_widths(qk_dim, v_dim, num_heads), level == "hyperedge")]
        self.layers = nn.ModuleList()
        for l, qk, v, heads, hyperedges in widths:
            attend = self.attention_class(
                self.k, l, hidden_dim, qk, v, heads, dropout, attention, global_classes, hyperedges
            )
            self.layers.append(EncoderLayer(attend, hidden_dim, ffn_dim, dropout, self.activation, hyperedges))
        self.head = self.make_head(hidden_dim, out_dim)

    # the places at which the released code does otherwise
    attention_class, activation = HigherOrderAttention, "relu"  # Eq. (8)

    def make_input(
        self, encoder: str, in_dim: int | Sequence[int], edge_dim: int | Sequence[int] | None, hidden_dim: int
    ) -> nn.Module:
        """What makes the first tensor of order k from node and edge features (see `node_input`)."""
        return node_input(encoder, self.k, in_dim, edge_dim, hidden_dim)

    def last_widths(self, qk_dim: int, v_dim: int, num_heads: int) -> tuple[int, int, int]:
        """Of the last layer, Enc_{k->l}."""
        return qk_dim, v_dim, num_heads

    def make_head(self, hidden_dim: int, out_dim: int) -> nn.Module:
        """What follows the last layer: [rows, hidden_dim] -> [rows, out_dim]."""
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

    def forward_head(self, features: Tensor, batch: GraphBatch) -> Tensor:  # [rows, hidden_dim] -> [rows, out_dim]
        return self.head(features, GraphBatch.of(batch))

    def support(self, batch: GraphBatch) -> Support:
        """The tuples that this model's tensors live on; all layers share what is looked up in it."""
        if self.k == 2 or self.level == "pair":
            support = Support.complete(batch, 2) if self.form == "dense" else Support.sparse(batch)
        else:
            support = Support(batch)
        if self.level == "hyperedge":
            support.add_hyperedges(hyperedge_index(batch, self.hyperedge_order))
        return support
