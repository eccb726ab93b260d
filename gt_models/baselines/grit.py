"""GRIT (Ma et al. 2023, "Graph Inductive Biases in Transformers without Message Passing").

Its attention is Eq. 12 of PPGT, Appendix D.1.

Nodes and all ordered pairs of a graph have states; random-walk probabilities (RRWP) start both, attention updates both.
"""

# mypy: disable-error-code="misc, operator"

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from gt_models.batch import GraphBatch
from gt_models.layers.accelerated import accelerated
from gt_models.layers.dropout import Dropout
from gt_models.layers.edge_softmax import edge_softmax, sum_over_edges
from gt_models.layers.features import FeatureEncoder
from gt_models.layers.gnn import check_level, return_probabilities
from gt_models.layers.graph_model import GraphModel
from gt_models.layers.mlp import activation as hidden_activation
from gt_models.layers.mlp_head import MLPHead
from gt_models.layers.pooling import pool
from gt_models.layers.precision import dtype_of
from gt_models.registry import register_model


@register_model("grit", levels=("graph", "node"), cost="n^2 d^2", encodings=("rrwp",))
class GRIT(GraphModel):
    """Predicts [B, out_dim] (graph) or [N, out_dim] (node).

    Args:
        in_dim, edge_dim: node and edge features (see `FeatureEncoder`); `edge_dim` None where edges carry nothing.
        out_dim: width of the prediction.
        level: "graph" or "node".
        hidden_dim, num_layers, num_heads: width d of nodes and of pairs; `num_heads` must divide it. Feed-forward
            layers are 2 d wide.
        rrwp_dim: channels of the encoding "rrwp", the identity counted: I, M, .., M^(rrwp_dim - 1).
        dropout: on what attention gives to nodes and to pairs, and in the feed-forward layers.
        attn_dropout: on attention weights.
        clamp: attention logits are cut to [-clamp, clamp]; None: not.
        norm: "batch" (over all nodes, over all pairs) or "layer", after each residual.
        degree_scaler: whether what attention gives is mixed with its product with log(1 + degree).
        pooling: "sum" or "mean" or "max", at graph level.
        activation: of the feed-forward layers.
        edge_vector: one learnt vector for every edge, for graphs whose edges carry nothing.
        head, head_layers, head_activation: hidden layers of the head, each half as wide as the one before, or all of
            width d.
        head_unit_length: see `MLPHead`.
        build_unused: build the last layer's update of pairs, which nothing reads (for the implementation's parameter
            counts only).

    Raises:
        ValueError: for heads that do not divide the width and other impossible choices.
        MissingEncoding: in forward, where "rrwp" is absent or too narrow.
    """

    def __init__(
        self,
        in_dim: int | Sequence[int],
        out_dim: int,
        level: Literal["graph", "node"] = "graph",
        edge_dim: int | Sequence[int] | None = None,
        hidden_dim: int = 64,
        num_layers: int = 10,
        num_heads: int = 8,
        rrwp_dim: int = 21,
        dropout: float = 0.0,
        attn_dropout: float = 0.0,
        clamp: float | None = 5.0,
        norm: Literal["batch", "layer"] = "batch",
        degree_scaler: bool = True,
        activation: str = "relu",
        edge_vector: bool = False,
        pooling: Literal["sum", "mean", "max"] = "sum",
        head: Literal["halving", "constant"] = "halving",
        head_layers: int = 2,
        head_activation: str = "relu",
        head_unit_length: bool = False,
        build_unused: bool = False,
    ):
        super().__init__()
        check_level("grit", level, pooling, num_layers)
        if norm not in ("batch", "layer"):
            raise ValueError(f"unknown norm {norm!r}; known: batch, layer")
        if clamp is not None and not clamp > 0:
            raise ValueError(f"clamp is {clamp}: give a positive number, or None for no clamp")
        if rrwp_dim < 1:
            raise ValueError(f"rrwp_dim {rrwp_dim}: pairs start from RRWP alone, give at least one channel")
        self.level, self.pooling, self.rrwp_dim = level, pooling, rrwp_dim
        self.node_encoder = FeatureEncoder(in_dim, hidden_dim)
        self.edge_encoder = None if edge_dim is None else FeatureEncoder(edge_dim, hidden_dim)
        self.edge_vector = nn.Parameter(torch.empty(hidden_dim)) if edge_vector else None
        self.node_rrwp = nn.Linear(rrwp_dim, hidden_dim, bias=False)
        self.pair_rrwp = nn.Linear(rrwp_dim, hidden_dim, bias=False)
        layer = (hidden_dim, num_heads, dropout, attn_dropout, clamp, norm, degree_scaler, activation)
        self.layers = nn.ModuleList(GRITLayer(*layer, build_unused or i < num_layers - 1) for i in range(num_layers))
        self.head = MLPHead(hidden_dim, out_dim, head, head_layers, head_activation, head_unit_length)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for module in (self.node_encoder, self.edge_encoder, *self.layers, self.head):
            if module is not None:
                module.reset_parameters()
        for linear in (self.node_rrwp, self.pair_rrwp):
            nn.init.xavier_uniform_(linear.weight)
        if self.edge_vector is not None:
            nn.init.normal_(self.edge_vector)

    def forward_features(self, batch: GraphBatch) -> Tensor:
        """Nodes after the last layer, [N, d]."""
        x, pairs = self.encode(batch)
        ones = x.new_ones(batch.num_edges, dtype=dtype_of(self.pair_rrwp))
        # unstated: which degree, and a repeated edge's part in it; edges that leave, as the random walk goes, each as
        # often as it is stored
        log_degree = ones.new_zeros(batch.num_nodes).index_add(0, batch.edge_index[0], ones).log1p()[:, None]  # [N, 1]
        for layer in self.layers:
            x, pairs = layer(x, pairs, log_degree, batch)
        return x

    def forward_head(self, features: Tensor, batch: GraphBatch) -> Tensor:
        """Pooled at graph level, then the head: [N, d] -> [B, out_dim] or [N, out_dim]."""
        return self.head(pool(features, batch, self.pooling) if self.level == "graph" else features)

    def encode(self, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """First states of nodes [N, d] and of pairs [sum n_b^2, d].

        Pair (i, j): i the query, j the key, an edge runs from key to query.
        """
        dtype = dtype_of(self.pair_rrwp)
        x = self.node_encoder(batch.x) + self.node_rrwp(return_probabilities(batch, self.rrwp_dim).to(dtype))  # [N, d]
        pairs = self.pair_rrwp(batch.encoding("rrwp", self.rrwp_dim).to(dtype))  # [P, d]
        edges = [] if self.edge_encoder is None else [self.edge_encoder(batch.edge_features()).to(pairs.dtype)]
        if self.edge_vector is not None:
            edges.append(self.edge_vector.to(pairs.dtype).expand(batch.num_edges, -1))
        if edges:
            graph, source, target = batch.edge_slots()
            slots = batch.pair_ptr[graph] + target * batch.sizes[graph] + source  # [E]
            pairs = pairs.index_add(0, slots, sum(edges[1:], edges[0]))
        return x, pairs


class GRITLayer(nn.Module):
    """Attention and feed-forward, each with residual and norm; pairs take part in attention and are updated by it.

    `update_pairs` False: the pairs' way out is not built, and `forward` gives None for them.
    """

    def __init__(
        self,
        hidden_dim: int,
        num_heads: int,
        dropout: float,
        attn_dropout: float,
        clamp: float | None,
        norm: str,
        degree_scaler: bool,
        activation: str,
        update_pairs: bool,
    ):
        super().__init__()
        kind = nn.BatchNorm1d if norm == "batch" else nn.LayerNorm
        self.attention = GRITAttention(hidden_dim, num_heads, attn_dropout, clamp)
        self.degree_scale = nn.Parameter(torch.empty(2, hidden_dim)) if degree_scaler else None
        self.node_out = nn.Linear(hidden_dim, hidden_dim)
        self.pair_out = nn.Linear(hidden_dim, hidden_dim) if update_pairs else None
        self.attn_norm, self.ffn_norm = kind(hidden_dim), kind(hidden_dim)
        self.pair_norm = kind(hidden_dim) if update_pairs else None
        self.ffn_in, self.ffn_out = nn.Linear(hidden_dim, 2 * hidden_dim), nn.Linear(2 * hidden_dim, hidden_dim)
        self.activation, self.dropout = hidden_activation(activation), nn.Dropout(dropout)

    def reset_parameters(self) -> None:
        for module in self.children():
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()
        if self.degree_scale is not None:
            nn.init.normal_(
                self.degree_scale, std=(self.degree_scale.size(1) + 1) ** -0.5
            )  # Xavier normal of [1, d, 2], see attention

    def forward(self, x: Tensor, pairs: Tensor, log_degree: Tensor, batch: GraphBatch) -> tuple[Tensor, Tensor | None]:
        """`x`: nodes [N, d]; `pairs`: [P, d], P = sum n_b^2; `log_degree`: log(1 + degree) [N, 1].

        Returns the next nodes and pairs.
        """
        h, e = self.attention(x, pairs, batch)  # [N, d], [P, d]
        # unstated: where dropout falls; here and in the feed-forward layer, as in the implementation
        h = self.dropout(h)
        if self.degree_scale is not None:
            h = h * (self.degree_scale[0] + log_degree * self.degree_scale[1])
        x = self.attn_norm(x + self.node_out(h))  # [N, d]
        x = self.ffn_norm(x + self.ffn_out(self.dropout(self.activation(self.ffn_in(x)))))  # [N, d]
        if self.pair_out is None:
            return x, None
        return x, self.pair_norm(pairs + self.pair_out(self.dropout(e)))  # [P, d]


class GRITAttention(nn.Module):
    """PPGT, Eq. 12, per head, for query i and key j.

        e_ij = relu(rho((q_i + k_j) * Ew_ij) + Eb_ij)    a_ij = softmax_j <w, e_ij>    o_i = sum_j a_ij (v_j + W e_ij)

    rho is the signed square root, Ew and Eb are linear maps of the pair's state.
    """

    def __init__(self, hidden_dim: int, num_heads: int, attn_dropout: float, clamp: float | None):
        super().__init__()
        if num_heads < 1 or hidden_dim % num_heads:
            raise ValueError(
                f"hidden_dim {hidden_dim} does not split into {num_heads} heads: choose a multiple of num_heads"
            )
        self.num_heads, self.head_dim = num_heads, hidden_dim // num_heads
        self.clamp = math.inf if clamp is None else clamp
        self.query = nn.Linear(hidden_dim, hidden_dim)
        self.key = nn.Linear(hidden_dim, hidden_dim, bias=False)
        self.value = nn.Linear(hidden_dim, hidden_dim, bias=False)
        self.pair = nn.Linear(hidden_dim, 2 * hidden_dim)  # per head: Ew, then Eb
        self.logit = nn.Parameter(torch.empty(num_heads, self.head_dim))
        self.pair_value = nn.Parameter(torch.empty(num_heads, self.head_dim, self.head_dim))
        self.dropout = Dropout(attn_dropout)

    def reset_parameters(self) -> None:
        # unstated: initialisation; Xavier normal as in the implementation, fans of the two tensors as it lays them out
        for linear in (self.query, self.key, self.value, self.pair):
            linear.reset_parameters()
            nn.init.xavier_normal_(linear.weight)
        heads, width = self.num_heads, self.head_dim
        nn.init.normal_(self.logit, std=(2 / (heads + width)) ** 0.5)  # [d_h, H, 1]
        nn.init.normal_(self.pair_value, std=(2 / (width * (heads + width))) ** 0.5)  # [d_h, H, d_h]

    @accelerated
    def forward(self, x: Tensor, pairs: Tensor, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """Nodes [N, d] and pairs [P, d] -> what nodes receive [N, d], and e [P, d]."""
        query, key = batch.pair_nodes  # [P] each
        q, k, v = (part(x).unflatten(1, (self.num_heads, -1)) for part in (self.query, self.key, self.value))
        ew, eb = self.pair(pairs).unflatten(1, (self.num_heads, 2, -1)).unbind(2)  # [P, H, d_h] each
        # deviates: PPGT's Eq. 12 prints the root of the sum with Eb; GRIT's own code and numbers have Eb outside of it
        e = torch.relu(signed_sqrt((q.index_select(0, query) + k.index_select(0, key)) * ew) + eb)
        logits = (e * self.logit).sum(-1).clamp(-self.clamp, self.clamp)  # [P, H]
        a = self.dropout(edge_softmax(logits, query, batch.num_nodes).to(v.dtype))[..., None]  # [P, H, 1]
        o = sum_over_edges(a * v.index_select(0, key), query, batch.num_nodes)  # [N, H, d_h]
        # W is applied to the sum over keys: N products in place of P
        row = sum_over_edges(a * e, query, batch.num_nodes)
        return (o + torch.einsum("nhc,hcd->nhd", row, self.pair_value)).flatten(1), e.flatten(1)


def signed_sqrt(x: Tensor) -> Tensor:
    """sqrt(relu(x)) - sqrt(relu(-x)); its gradient at zero is zero, as that of the relus."""
    return x.abs().clamp(min=torch.finfo(x.dtype).tiny).sqrt() * x.sign()
