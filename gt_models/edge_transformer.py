"""Edge Transformer for graphs (Mueller and Morris, Towards Principled Graph Transformers): states on pairs of nodes, triangular attention,
at least as expressive as 3-WL. Section 3 gives layer, tokens (Eq. 3) and readout; the authors' own forms are named arguments."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from gt_models.batch import GraphBatch
from gt_models.kernels.triangular_attention import triangular_attention
from gt_models.nn.dropout import Dropout
from gt_models.nn.features import FeatureEncoder
from gt_models.nn.mlp import MLP, activation
from gt_models.nn.pooling import pool
from gt_models.registry import register_model


@register_model("edge-transformer", levels=("graph", "node", "pair"), cost="n^3 d", encodings=("rrwp",))
class EdgeTransformer(nn.Module):
    """Predicts per graph [B, out_dim], per node [N, out_dim] or per ordered pair [sum n_b^2, out_dim].

    Self-loops: their edge feature is added to the diagonal's. Duplicate edges: their features add up; without edge features a pair is
    either an edge or not.

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
        rrwp_dim: channels read from the encoding "rrwp"; 0: none. Which powers of the random walk they hold is the encoding's choice
            (I, M, M^2, ... in the paper; M, M^2, M^4, ... in the authors' runs).
        rrwp_hidden_dim: width given to the encoded RRWP beside the edge features.
        ffn_residual: the feed-forward network adds its input (authors' form).
        post_norm: LayerNorm after the attention's residual and after the feed-forward network (authors' form).
        tokens: "paper" (Eq. 3, with a learnt vector on the diagonal) or "authors" (one Linear of both nodes' features, plus the edge's).
        readout: "paper" (two MLPs over pairs) or "authors" (BatchNorm-Linear-ReLU-Linear over pairs, and again over nodes).
        head: widths of the head's two hidden layers: "halving" d/2 and d/4 (the authors' molecular runs), or "constant" d (their WebKB runs).
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
        post_norm: bool = False,
        tokens: Literal["paper", "authors"] = "paper",
        readout: Literal["paper", "authors"] = "paper",
        head: Literal["halving", "constant"] = "halving",
    ):
        super().__init__()
        if head not in ("halving", "constant"):
            raise ValueError(f"unknown head {head!r}; known: halving, constant")
        if level not in ("graph", "node", "pair"):
            raise ValueError(f"edge-transformer cannot predict at level {level!r}; it predicts: graph, node, pair")
        if rrwp_dim and not 0 < rrwp_hidden_dim < hidden_dim:
            raise ValueError(f"rrwp_hidden_dim {rrwp_hidden_dim} must lie between 0 and hidden_dim {hidden_dim}")
        self.level = level
        self.tokens = PairTokens(in_dim, edge_dim, hidden_dim, rrwp_dim, rrwp_hidden_dim if rrwp_dim else 0, activation, tokens)
        self.layers = nn.ModuleList(
            EdgeTransformerLayer(hidden_dim, num_heads, dropout, attn_dropout, activation, ffn_residual, post_norm)
            for _ in range(num_layers)
        )
        self.readout = None if level == "pair" else PairReadout(hidden_dim, activation, readout)
        self.pooling = GraphPooling(hidden_dim, pooling) if level == "graph" else None
        width = 2 * hidden_dim if level == "graph" and pooling == "set2set" else hidden_dim
        # unstated: the head; two hidden layers in the authors' code
        hidden = [max(1, hidden_dim // 2), max(1, hidden_dim // 4)] if head == "halving" else [hidden_dim, hidden_dim]
        self.head = MLP([width, *hidden, out_dim], activation)

    def reset_parameters(self) -> None:
        for module in [self.tokens, *self.layers, self.readout, self.pooling, self.head]:
            if module is not None:
                module.reset_parameters()

    def forward_features(self, batch: GraphBatch) -> Tensor:
        """Pair states [P, d] after all layers, P = sum n_b^2."""
        x = self.tokens(batch)  # [P, d]
        for layer in self.layers:
            x = layer(x, batch)  # [P, d]
        return x

    def forward_head(self, features: Tensor, batch: GraphBatch) -> Tensor:
        if self.readout is not None:
            features = self.readout(features, batch)  # [N, d]
        if self.pooling is not None:
            features = self.pooling(features, batch)  # [B, d], set2set [B, 2d]
        return self.head(features)

    def forward(self, batch: GraphBatch) -> Tensor:
        batch = GraphBatch.of(batch)
        return self.forward_head(self.forward_features(batch), batch)


class EdgeTransformerLayer(nn.Module):
    """X <- FFN(X + TriangularAttention(LN(X))) on pair states [P, d].

    The authors' form (`ffn_residual` and `post_norm`): U = LN(X + Attn(LN X)); X <- LN(U + FFN(U)).
    """

    def __init__(
        self,
        hidden_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        attn_dropout: float = 0.0,
        activation: str = "gelu",
        ffn_residual: bool = False,
        post_norm: bool = False,
    ):
        super().__init__()
        self.norm = nn.LayerNorm(hidden_dim)
        self.attention = TriangularAttention(hidden_dim, num_heads, attn_dropout)
        self.attention_norm = nn.LayerNorm(hidden_dim) if post_norm else None
        # unstated: one hidden layer of width 2d, dropout after each step; from the authors' code
        self.ffn = FeedForward(hidden_dim, 2 * hidden_dim, activation, dropout)
        self.ffn_norm = nn.LayerNorm(hidden_dim) if post_norm else None
        self.dropout = Dropout(dropout)
        self.ffn_residual = ffn_residual

    def reset_parameters(self) -> None:
        for module in (self.norm, self.attention, self.attention_norm, self.ffn, self.ffn_norm):
            if module is not None:
                module.reset_parameters()

    def forward(self, x: Tensor, batch: GraphBatch) -> Tensor:
        x = x + self.dropout(self.attention(self.norm(x), batch))  # [P, d]
        if self.attention_norm is not None:
            x = self.attention_norm(x)
        update = self.dropout(self.ffn(x))  # [P, d]
        x = x + update if self.ffn_residual else update
        return x if self.ffn_norm is None else self.ffn_norm(x)


class TriangularAttention(nn.Module):
    """Multi-head triangular attention over all ordered pairs of each graph, with five bias-free projections: [P, d] -> [P, d].

    `attn_dropout` is the probability with which a single weight A_ilj is dropped. Raises ValueError unless `num_heads` divides `hidden_dim`.
    """

    def __init__(self, hidden_dim: int, num_heads: int, attn_dropout: float = 0.0):
        super().__init__()
        if hidden_dim % num_heads:
            raise ValueError(f"hidden_dim {hidden_dim} does not split into {num_heads} heads: choose a multiple of num_heads")
        if not 0.0 <= attn_dropout < 1.0:
            raise ValueError(f"attn_dropout {attn_dropout} is outside [0, 1)")
        self.num_heads, self.attn_dropout = num_heads, attn_dropout
        # the first four of the five projections as one product: rows of the weight are W^Q, W^K, W^V1, W^V2
        self.projections = nn.Linear(hidden_dim, 4 * hidden_dim, bias=False)
        # unstated: the output projection and the scale per head; W^O appears in the paper's proof alone, both are in the authors' code
        self.out = nn.Linear(hidden_dim, hidden_dim, bias=False)

    def reset_parameters(self) -> None:
        self.projections.reset_parameters()
        self.out.reset_parameters()

    def forward(self, x: Tensor, batch: GraphBatch) -> Tensor:
        projected = self.projections(x).view(x.size(0), 4, self.num_heads, x.size(1) // self.num_heads)  # [P, 4, H, d_h]
        o = attend(projected, batch, self.attn_dropout if self.training else 0.0)  # [P, H, d_h]
        return self.out(o.flatten(1))  # [P, d]


def attend(projected: Tensor, batch: GraphBatch, dropout: float = 0.0, fusion_norm: nn.Module | None = None) -> Tensor:
    """Eqs. 1 and 2, at least in float32: sums over l of products of three are too much for half precision. Dropout draws one seed."""
    seed = torch.randint(2**31 - 1, (1,)) if dropout > 0.0 else torch.zeros(1, dtype=torch.long)
    with torch.autocast(projected.device.type, enabled=False):
        wide = projected if projected.dtype == torch.float64 else projected.float()
        return triangular_attention(wide, batch, seed, dropout, fusion_norm).to(projected.dtype)


class FeedForward(nn.Module):
    """Linear, activation, dropout, Linear: [P, d] -> [P, d]."""

    def __init__(self, hidden_dim: int, ffn_dim: int, act: str, dropout: float):
        super().__init__()
        self.hidden, self.out = nn.Linear(hidden_dim, ffn_dim), nn.Linear(ffn_dim, hidden_dim)
        self.activation, self.dropout = activation(act), Dropout(dropout)

    def reset_parameters(self) -> None:
        self.hidden.reset_parameters()
        self.out.reset_parameters()

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.dropout(self.activation(self.hidden(x))))


class PairTokens(nn.Module):
    """Input tokens per pair [P, d]. Eq. 3: X_ij = phi([E_ij F_i F_j]); E_ij is the edge's feature, a learnt vector on the diagonal, zero
    elsewhere, and carries encoded RRWP beside it. "authors": X_ij = Linear([F_i F_j]) + E_ij, nothing on the diagonal."""

    def __init__(self, in_dim, edge_dim, hidden_dim: int, rrwp_dim: int, rrwp_hidden_dim: int, act: str, form: str):
        super().__init__()
        if form not in ("paper", "authors"):
            raise ValueError(f"unknown tokens {form!r}; known: paper, authors")
        edge_hidden_dim = hidden_dim - rrwp_hidden_dim
        self.form, self.rrwp_dim = form, rrwp_dim
        # deviates: on alchemy the authors feed one-hot columns through nn.Linear(6, d) and nn.Linear(4, .), of deviation 0.24 and 0.29 and
        # with a bias; here categories go through embeddings N(0, 1): the same functions from another start
        self.node_encoder = FeatureEncoder(in_dim, hidden_dim)
        self.edge_encoder = None if edge_dim is None else FeatureEncoder(edge_dim, edge_hidden_dim)
        self.edge_token = nn.Parameter(torch.empty(edge_hidden_dim)) if edge_dim is None else None  # x_1
        self.diagonal_token = nn.Parameter(torch.empty(edge_hidden_dim)) if form == "paper" else None  # x_2
        # unstated: RRWP's MLP and its last ReLU; from the authors' code
        self.rrwp_encoder = nn.Sequential(MLP([rrwp_dim, 2 * rrwp_hidden_dim, rrwp_hidden_dim]), nn.ReLU()) if rrwp_dim else None
        # unstated: phi; one hidden layer of width d
        self.pair_encoder = nn.Linear(2 * hidden_dim + (hidden_dim if form == "paper" else 0), hidden_dim)
        self.activation = activation(act)
        self.pair_out = nn.Linear(hidden_dim, hidden_dim) if form == "paper" else None
        self._reset_tokens()

    def _reset_tokens(self) -> None:
        for token in (self.edge_token, self.diagonal_token):
            if token is not None:
                nn.init.normal_(token)

    def reset_parameters(self) -> None:
        self._reset_tokens()
        for module in (self.node_encoder, self.edge_encoder, self.pair_encoder, self.pair_out):
            if module is not None:
                module.reset_parameters()
        if self.rrwp_encoder is not None:
            self.rrwp_encoder[0].reset_parameters()

    def forward(self, batch: GraphBatch) -> Tensor:
        first, second = batch.pair_nodes
        nodes = self.node_encoder(batch.x)  # F: [N, d]
        edges = self._edge_features(batch, nodes.dtype)  # E: [P, d]
        d = nodes.size(1)
        weight = self.pair_encoder.weight  # applied to nodes before they are paired: n products instead of n^2
        left, right = nodes @ weight[:, -2 * d : -d].T, nodes @ weight[:, -d:].T + self.pair_encoder.bias  # [N, d]
        x = left[first] + right[second]  # [P, d]
        if self.form == "authors":
            return x + edges
        return self.pair_out(self.activation(x + edges @ weight[:, : -2 * d].T))

    def _edge_features(self, batch: GraphBatch, dtype: torch.dtype) -> Tensor:
        graph, source, target = batch.edge_slots()
        slots = batch.pair_ptr[graph] + source * batch.sizes[graph] + target  # [E]
        num_pairs = batch.pair_nodes[0].numel()
        if self.edge_encoder is None:
            marks = torch.zeros(num_pairs, 1, dtype=dtype, device=slots.device)
            edges = marks.index_fill(0, slots, 1.0) * self.edge_token  # [P, q]
        else:
            if batch.edge_attr is None:
                raise ValueError("the model was built with edge_dim, but the batch has no edge_attr")
            values = self.edge_encoder(batch.edge_attr).to(dtype)  # [E, q]
            edges = values.new_zeros(num_pairs, values.size(1)).index_put((slots,), values, accumulate=True)  # [P, q]
        if self.diagonal_token is not None:
            diagonal = batch.pair_ptr[batch.batch] + batch.local * (batch.sizes[batch.batch] + 1)  # [N]
            marks = torch.zeros(num_pairs, 1, dtype=dtype, device=slots.device)
            edges = edges + marks.index_fill(0, diagonal, 1.0) * self.diagonal_token
        if self.rrwp_encoder is not None:
            edges = torch.cat([edges, self.rrwp_encoder(batch.encoding("rrwp", self.rrwp_dim).to(dtype))], 1)  # [P, d]
        return edges


class PairReadout(nn.Module):
    """Pairs to nodes: Readout(i) = sum_j rho_1(X_ij) + rho_2(X_ji), [P, d] -> [N, d].

    The last Linear of each rho is applied after the sum, which it commutes with: n products instead of n^2.
    """

    def __init__(self, hidden_dim: int, act: str, form: str):
        super().__init__()
        if form not in ("paper", "authors"):
            raise ValueError(f"unknown readout {form!r}; known: paper, authors")
        # unstated: depth and width of rho_1 and rho_2; one hidden layer each
        self.norm = nn.BatchNorm1d(hidden_dim) if form == "authors" else None
        self.hidden = nn.Linear(hidden_dim, 2 * hidden_dim)
        self.activation = nn.ReLU() if form == "authors" else activation(act)
        # paper: rho_1 and rho_2 have hidden units of their own, d each. authors: both read the same 2d hidden units
        self.first = nn.Linear(2 * hidden_dim if form == "authors" else hidden_dim, hidden_dim)
        self.second = nn.Linear(2 * hidden_dim if form == "authors" else hidden_dim, hidden_dim)
        self.node_norm = nn.BatchNorm1d(hidden_dim) if form == "authors" else None
        self.node_mlp = MLP([hidden_dim, hidden_dim, hidden_dim]) if form == "authors" else None

    def reset_parameters(self) -> None:
        for module in (self.norm, self.hidden, self.first, self.second, self.node_norm, self.node_mlp):
            if module is not None:
                module.reset_parameters()

    def forward(self, x: Tensor, batch: GraphBatch) -> Tensor:
        if self.norm is not None:
            x = self.norm(x)
        x = batch.pairs_to_dense(self.activation(self.hidden(x)))  # [B, n, n, 2d], zero at padding
        rows, columns = batch.from_dense(x.sum(2)), batch.from_dense(x.sum(1))  # over j of X_ij and of X_ji: [N, 2d] each
        if self.norm is None:
            d = rows.size(1) // 2
            rows, columns = rows[:, :d], columns[:, d:]  # [N, d]
        # n_b times the biases: one for each summand
        bias = batch.sizes[batch.batch, None] * (self.first.bias + self.second.bias)
        nodes = rows @ self.first.weight.T + columns @ self.second.weight.T + bias  # [N, d]
        return nodes if self.node_mlp is None else self.node_mlp(self.node_norm(nodes))


class GraphPooling(nn.Module):
    """Nodes to graphs: "sum" or "mean" [N, d] -> [B, d], "set2set" (Vinyals et al. 2016) [N, d] -> [B, 2d]."""

    def __init__(self, hidden_dim: int, how: str, steps: int = 6):
        super().__init__()
        if how not in ("sum", "mean", "set2set"):
            raise ValueError(f"unknown pooling {how!r}; known: sum, mean, set2set")
        self.how, self.steps = how, steps
        # unstated: six steps; from the authors' code
        self.lstm = nn.LSTMCell(2 * hidden_dim, hidden_dim) if how == "set2set" else None

    def reset_parameters(self) -> None:
        if self.lstm is not None:
            self.lstm.reset_parameters()

    def forward(self, x: Tensor, batch: GraphBatch) -> Tensor:
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
