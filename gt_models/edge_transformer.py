"""Edge Transformer for graphs: states on pairs of nodes and triangular attention, at least 3-WL.

Mueller and Morris: Towards Principled Graph Transformers, https://arxiv.org/abs/2401.10119. In the order of Section 3:
layer, triangular attention (Eqs. 1 and 2), tokens (Eq. 3), readout. What the authors' code does differently is in
gt_models/released/edge_transformer.py.
"""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from gt_models.batch import GraphBatch
from gt_models.layers.accelerated import accelerated
from gt_models.layers.dropout import Dropout
from gt_models.layers.features import FeatureEncoder
from gt_models.layers.mlp import MLP, activation
from gt_models.layers.pooling import pool
from gt_models.layers.precision import dtype_of, full_precision
from gt_models.layers.settings import at_least
from gt_models.layers.triple_dropout import TripleDropout
from gt_models.registry import register_model

PAPER = (
    "Luis Mueller and Christopher Morris: Towards Principled Graph Transformers, NeurIPS 2024. "
    "https://arxiv.org/abs/2401.10119"
)
POOLINGS = ("sum", "mean", "set2set")


@register_model("edge-transformer", levels=("graph", "node", "pair"), cost="n^3 d", encodings=("rrwp",), paper=PAPER)
class EdgeTransformer(nn.Module):
    """Predicts per graph [B, out_dim], per node [N, out_dim] or per ordered pair [sum n_b^2, out_dim].

    Self-loops: their edge feature is added to the diagonal's. Duplicate edges: their features add up; without edge
    features a pair is either an edge or not.

    Args:
        in_dim: width of continuous node features, or vocabulary sizes of categorical columns.
        out_dim: targets or classes.
        level: "graph", "node" or "pair".
        edge_dim: as `in_dim`, for edge features; None: a learnt vector marks edges.
        hidden_dim: width d of the pair states.
        num_layers: triangular attention layers.
        num_heads: must divide `hidden_dim`.
        dropout: after attention and inside the feed-forward network.
        attn_dropout: on single attention weights.
        activation: of the feed-forward networks and the head, "relu" or "gelu".
        pooling: "sum", "mean" or "set2set" (six steps), at graph level.
        rrwp_dim: channels read from the encoding "rrwp" (I, M, M^2, ... in the paper); 0: none.
        rrwp_hidden_dim: width of the encoded RRWP next to the edge features.
        ffn_residual: the feed-forward network adds its input.
        head: widths of the head's two hidden layers: "halving" d/2 and d/4, or "constant" d.
    """

    def __init__(
        self,
        in_dim: int | Sequence[int],
        out_dim: int,
        level: Literal["graph", "node", "pair"],
        edge_dim: int | Sequence[int] | None = None,
        hidden_dim: int = 64,
        num_layers: int = 6,
        num_heads: int = 8,
        dropout: float = 0.0,
        attn_dropout: float = 0.0,
        activation: Literal["relu", "gelu"] = "gelu",
        pooling: Literal["sum", "mean", "set2set"] = "sum",
        rrwp_dim: int = 0,
        rrwp_hidden_dim: int = 32,
        ffn_residual: bool = False,
        head: Literal["halving", "constant"] = "halving",
    ):
        super().__init__()
        if head not in ("halving", "constant"):
            raise ValueError(f"unknown head {head!r}; known: halving, constant")
        if level not in ("graph", "node", "pair"):
            raise ValueError(f"edge-transformer cannot predict at level {level!r}; it predicts: graph, node, pair")
        if pooling not in POOLINGS:
            raise ValueError(f"unknown pooling {pooling!r}; known: {', '.join(POOLINGS)}")
        at_least(1, hidden_dim=hidden_dim, num_layers=num_layers, num_heads=num_heads)
        at_least(0, rrwp_dim=rrwp_dim)
        if rrwp_dim and not 0 < rrwp_hidden_dim < hidden_dim:
            raise ValueError(f"rrwp_hidden_dim {rrwp_hidden_dim} must lie between 0 and hidden_dim {hidden_dim}")
        tokens, layer, readout = self.submodule_classes()
        self.tokens = tokens(in_dim, edge_dim, hidden_dim, rrwp_dim, rrwp_hidden_dim if rrwp_dim else 0, activation)
        sizes = (hidden_dim, num_heads, dropout, attn_dropout, activation, ffn_residual)
        self.layers = nn.ModuleList(layer(*sizes) for _ in range(num_layers))
        self.readout = None if level == "pair" else readout(hidden_dim, activation)
        self.pooling = GraphPooling(hidden_dim, pooling) if level == "graph" else None
        width = 2 * hidden_dim if level == "graph" and pooling == "set2set" else hidden_dim
        # unstated: the head; two hidden layers in the authors' code, halving in the molecular runs and constant in
        # those on WebKB
        hidden = [max(1, hidden_dim // 2), max(1, hidden_dim // 4)] if head == "halving" else [hidden_dim, hidden_dim]
        self.head = MLP([width, *hidden, out_dim], activation)

    @staticmethod
    def submodule_classes() -> tuple[type[nn.Module], type[nn.Module], type[nn.Module]]:
        """Classes of tokens, layers and readout: what the released form replaces."""
        return PairTokens, EdgeTransformerLayer, PairReadout

    def reset_parameters(self) -> None:
        for module in filter(
            lambda m: m is not None, [self.tokens, *self.layers, self.readout, self.pooling, self.head]
        ):
            module.reset_parameters()

    def forward_features(self, batch: GraphBatch) -> Tensor:
        """Pair states [P, d] after all layers, P = sum n_b^2."""
        x = self.tokens(batch)  # [P, d]
        for layer in self.layers:
            x = layer(x, batch)  # [P, d]
        return x

    def forward_head(self, features: Tensor, batch: GraphBatch) -> Tensor:
        """Readout and pooling where the level needs them, then the head: pair states [P, d] -> [rows, out_dim]."""
        nodes = features if self.readout is None else self.readout(features, batch)  # [N, d]
        return self.head(nodes if self.pooling is None else self.pooling(nodes, batch))  # of [B, d], set2set [B, 2d]

    def forward(self, batch: GraphBatch) -> Tensor:
        """Predictions of a GraphBatch or a PyG Data or Batch, [rows, out_dim]; MissingEncoding without "rrwp"."""
        batch = GraphBatch.of(batch)
        return self.forward_head(self.forward_features(batch), batch)


class EdgeTransformerLayer(nn.Module):
    """X <- FFN(X + TriangularAttention(LN(X))) on pair states [P, d]."""

    def __init__(
        self, hidden_dim: int, num_heads: int, dropout: float, attn_dropout: float, act: str, ffn_residual: bool = False
    ):
        super().__init__()
        self.norm = nn.LayerNorm(hidden_dim)
        self.attention = TriangularAttention(hidden_dim, num_heads, attn_dropout)
        # unstated: one hidden layer of width 2d, dropout after each step; from the authors' code
        self.ffn = FeedForward(hidden_dim, 2 * hidden_dim, act, dropout)
        self.dropout, self.ffn_residual = Dropout(dropout), ffn_residual

    def reset_parameters(self) -> None:
        for module in (self.norm, self.attention, self.ffn):
            module.reset_parameters()

    def forward(self, x: Tensor, batch: GraphBatch) -> Tensor:
        """Pair states [P, d] -> [P, d]."""
        x = x + self.dropout(self.attention(self.norm(x), batch))  # [P, d]
        update = self.dropout(self.ffn(x))  # [P, d]
        return x + update if self.ffn_residual else update


class FeedForward(nn.Module):
    """Linear, activation, dropout, Linear: [P, d] -> [P, d]."""

    def __init__(self, hidden_dim: int, ffn_dim: int, act: str, dropout: float):
        super().__init__()
        self.hidden, self.out = nn.Linear(hidden_dim, ffn_dim), nn.Linear(ffn_dim, hidden_dim)
        self.activation, self.dropout = activation(act), Dropout(dropout)

    def reset_parameters(self) -> None:
        self.hidden.reset_parameters()
        self.out.reset_parameters()

    @accelerated
    def forward(self, x: Tensor) -> Tensor:
        """[P, d] -> [P, d]."""
        return self.out(self.dropout(self.activation(self.hidden(x))))


class TriangularAttention(nn.Module):
    """Multi-head triangular attention over all ordered pairs of each graph: [P, d] -> [P, d].

    It has five projections without bias.

    `attn_dropout` is the probability with which a single weight A_ilj is dropped.

    Raises:
        ValueError: `num_heads` does not divide `hidden_dim`.
    """

    def __init__(self, hidden_dim: int, num_heads: int, attn_dropout: float = 0.0):
        super().__init__()
        at_least(1, num_heads=num_heads)
        if hidden_dim % num_heads:
            raise ValueError(
                f"hidden_dim {hidden_dim} does not split into {num_heads} heads: choose a multiple of num_heads"
            )
        self.num_heads = num_heads
        # the first four of the five projections as one product: rows of the weight are W^Q, W^K, W^V1, W^V2
        self.projections = nn.Linear(hidden_dim, 4 * hidden_dim, bias=False)
        self.triangles = Triangles(attn_dropout)
        # unstated: the output projection and the scale per head; W^O appears in the paper's proof alone, both are in
        # the authors' code
        self.out = nn.Linear(hidden_dim, hidden_dim, bias=False)

    def reset_parameters(self) -> None:
        for module in (self.projections, self.out):
            module.reset_parameters()

    @accelerated
    def forward(self, x: Tensor, batch: GraphBatch) -> Tensor:
        """Pair states [P, d] -> [P, d]."""
        return self.out(self.heads(self.projections(x), batch))

    def heads(self, projected: Tensor, batch: GraphBatch) -> Tensor:
        """The heads of all pairs side by side, from queries, keys and both values: [P, 4 d] -> [P, d]."""
        split = projected.unflatten(1, (4, self.num_heads, -1))  # [P, 4, H, d_h]
        return self.triangles(split, batch).to(projected.dtype).flatten(1)


class Triangles(nn.Module):
    """Eqs. 1 and 2: the pair (i, j) attends over the paths i -> l -> j, per head.

    Args:
        attn_dropout: the probability with which a single weight A_ilj is dropped.

    Raises:
        ValueError: `attn_dropout` is outside [0, 1).
    """

    def __init__(self, attn_dropout: float = 0.0):
        super().__init__()
        self.dropout = TripleDropout(attn_dropout)

    @full_precision
    @accelerated
    def forward(self, projected: Tensor, batch: GraphBatch, fusion_norm: nn.Module | None = None) -> Tensor:
        """Queries, keys, first and second values [P, 4, H, d_h] -> [P, H, d_h].

        `fusion_norm` is applied to each product of values. Holds tensors of all triples, [B, n, n, n, H, d_h].
        """
        q, k, v1, v2 = batch.pairs_to_dense(projected).unbind(3)  # [B, n, n, H, d_h]
        scores = torch.einsum("bilhc,bljhc->biljh", q, k) / math.sqrt(q.size(-1))
        # a large finite number: rows of padding stay free of NaN, and their outputs are never read
        padding = ~batch.node_mask[:, None, :, None, None]
        a = scores.masked_fill(padding, torch.finfo(scores.dtype).min / 4).softmax(2)  # A_ilj: [B, i, l, j, H]
        v = v1.unsqueeze(3) * v2.unsqueeze(1)  # Eq. 2: V_ilj, [B, i, l, j, H, d_h]
        v = v if fusion_norm is None else fusion_norm(v.to(dtype_of(fusion_norm))).to(v.dtype)
        return batch.pairs_from_dense((self.dropout(a, batch).unsqueeze(-1) * v).sum(2))  # Eq. 1


class PairTokens(nn.Module):
    """Eq. 3: X_ij = phi([E_ij F_i F_j]), [P, d].

    E_ij is the edge's feature, a learnt vector on the diagonal, zero elsewhere, next to the encoded RRWP.
    """

    def __init__(self, in_dim, edge_dim, hidden_dim: int, rrwp_dim: int, rrwp_hidden_dim: int, act: str):
        super().__init__()
        edge_hidden_dim, self.rrwp_dim = hidden_dim - rrwp_hidden_dim, rrwp_dim
        # deviates: on alchemy the authors feed one-hot columns through nn.Linear(6, d) and nn.Linear(4, .), of
        # deviation 0.24 and 0.29 and with a bias; here categories go through embeddings N(0, 1): the same functions
        # from another start
        self.node_encoder = FeatureEncoder(in_dim, hidden_dim)
        self.edge_encoder = None if edge_dim is None else FeatureEncoder(edge_dim, edge_hidden_dim)
        self.edge_token = nn.Parameter(torch.empty(edge_hidden_dim)) if edge_dim is None else None  # x_1
        self.diagonal_token = nn.Parameter(torch.empty(edge_hidden_dim))  # x_2
        # unstated: RRWP's MLP and its last ReLU; from the authors' code
        self.rrwp_encoder = (
            nn.Sequential(MLP([rrwp_dim, 2 * rrwp_hidden_dim, rrwp_hidden_dim]), nn.ReLU()) if rrwp_dim else None
        )
        self.make_phi(hidden_dim, act)
        self.reset_tokens()

    def make_phi(self, hidden_dim: int, act: str) -> None:
        """Build phi of Eq. 3."""
        # unstated: phi; one hidden layer of width d
        self.pair_encoder, self.pair_out = nn.Linear(3 * hidden_dim, hidden_dim), nn.Linear(hidden_dim, hidden_dim)
        self.activation = activation(act)

    def reset_tokens(self) -> None:
        """Draw the learnt tokens from N(0, 1)."""
        for token in filter(lambda t: t is not None, (self.edge_token, self.diagonal_token)):
            nn.init.normal_(token)

    def reset_parameters(self) -> None:
        self.reset_tokens()
        rrwp_mlp = None if self.rrwp_encoder is None else self.rrwp_encoder[0]
        for module in filter(
            lambda m: m is not None, (self.node_encoder, self.edge_encoder, self.pair_encoder, self.pair_out, rrwp_mlp)
        ):
            module.reset_parameters()

    def forward(self, batch: GraphBatch) -> Tensor:
        """The initial pair states X, [P, d]."""
        first, second = batch.pair_nodes
        nodes = self.node_encoder(batch.x)  # F: [N, d]
        edges = self.edge_features(batch, nodes.dtype)  # E: [P, d]
        return self.phi(edges, nodes[first], nodes[second])  # Eq. 3

    def phi(self, edges: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """Eq. 3's phi of E_ij, F_i and F_j, [P, d] each -> [P, d]."""
        return self.pair_out(self.activation(self.pair_encoder(torch.cat([edges, first, second], 1))))

    def edge_features(self, batch: GraphBatch, dtype: torch.dtype) -> Tensor:
        """E: [P, d]."""
        nothing = torch.zeros(batch.pair_nodes[0].numel(), 1, dtype=dtype, device=batch.ptr.device)  # [P, 1]
        if self.edge_encoder is None:
            edges = nothing.index_fill(0, batch.pair_of(*batch.edge_index), 1.0) * self.edge_token  # [P, q]
        else:
            values = self.edge_encoder(batch.edge_features()).to(dtype)  # [E, q]
            pairs = batch.pair_of(*batch.edge_index)  # [E]
            edges = values.new_zeros(len(nothing), values.size(1)).index_put((pairs,), values, accumulate=True)
        if self.diagonal_token is not None:
            nodes = torch.arange(batch.num_nodes, device=batch.ptr.device)
            edges = edges + nothing.index_fill(0, batch.pair_of(nodes, nodes), 1.0) * self.diagonal_token
        if self.rrwp_encoder is not None:
            edges = torch.cat([edges, self.rrwp_encoder(batch.encoding("rrwp", self.rrwp_dim).to(dtype))], 1)  # [P, d]
        return edges


class PairReadout(nn.Module):
    """Pairs to nodes: Readout(i) = sum_j rho_1(X_ij) + rho_2(X_ji), [P, d] -> [N, d].

    The last Linear of each rho is applied to the mean over j, with which an affine map commutes: n products instead of
    n^2.
    """

    def __init__(self, hidden_dim: int, act: str):
        super().__init__()
        # unstated: depth and width of rho_1 and rho_2; one hidden layer of width d each
        self.hidden, self.activation = nn.Linear(hidden_dim, 2 * hidden_dim), activation(act)
        self.first, self.second = nn.Linear(hidden_dim, hidden_dim), nn.Linear(hidden_dim, hidden_dim)

    def reset_parameters(self) -> None:
        for module in (self.hidden, self.first, self.second):
            module.reset_parameters()

    def forward(self, x: Tensor, batch: GraphBatch) -> Tensor:
        """Pair states [P, d] -> nodes [N, d]."""
        rows, columns = self.means(x, batch)
        return self.last(rows.chunk(2, 1)[0], columns.chunk(2, 1)[1], batch)

    def means(self, x: Tensor, batch: GraphBatch) -> tuple[Tensor, Tensor]:  # [P, d] -> [N, 2d] each
        """Hidden units of X_ij, and of X_ji, averaged over j."""
        hidden = self.activation(self.hidden(x))  # [P, 2d]
        first, second = (
            hidden.new_zeros(batch.num_nodes, hidden.size(1)).index_add(0, pair, hidden) for pair in batch.pair_nodes
        )
        sizes = batch.sizes[batch.batch, None]
        return first / sizes, second / sizes

    def last(self, rows: Tensor, columns: Tensor, batch: GraphBatch) -> Tensor:
        """The last layer, of the means over rows and over columns: [N, d] each -> [N, d]."""
        return batch.sizes[batch.batch, None] * (self.first(rows) + self.second(columns))


class GraphPooling(nn.Module):
    """Nodes to graphs: "sum" or "mean" [N, d] -> [B, d], "set2set" (Vinyals et al. 2016) [N, d] -> [B, 2d]."""

    def __init__(self, hidden_dim: int, how: str, steps: int = 6):
        super().__init__()
        if how not in POOLINGS:
            raise ValueError(f"unknown pooling {how!r}; known: {', '.join(POOLINGS)}")
        self.how, self.steps = how, steps
        # unstated: six steps; from the authors' code
        self.lstm = nn.LSTMCell(2 * hidden_dim, hidden_dim) if how == "set2set" else None

    def reset_parameters(self) -> None:
        if self.lstm is not None:
            self.lstm.reset_parameters()

    def forward(self, x: Tensor, batch: GraphBatch) -> Tensor:
        """[N, d] -> [B, d], with set2set [B, 2d]."""
        if self.lstm is None:
            return pool(x, batch, self.how)
        nodes, mask = batch.to_dense(x), batch.node_mask  # [B, n, d], [B, n]
        q = x.new_zeros(batch.num_graphs, 2 * x.size(1))  # [B, 2d]
        h, c = q[:, : x.size(1)], q[:, : x.size(1)]  # [B, d]
        for _ in range(self.steps):
            h, c = self.lstm(q, (h, c))
            scores = torch.einsum("bnd,bd->bn", nodes, h).masked_fill(~mask, torch.finfo(x.dtype).min / 4)
            q = torch.cat([h, torch.einsum("bn,bnd->bd", scores.softmax(1) * mask, nodes)], 1)
        return q
