"""Polynormer: node features multiplied by attention-weighted sums of node features, layer upon layer, so that L layers are a polynomial
of degree 2^L; first over neighbours, then over all nodes, both in linear time.

Deng, Yue, Zhang: Polynormer: Polynomial-Expressive Graph Transformer in Linear Time, ICLR 2024, https://arxiv.org/abs/2403.01232:
Section 3 and Appendices G, H.2, I, K. What the authors' code does otherwise: `gt_models.released.polynormer`.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gt_models.batch import GraphBatch
from gt_models.kernels.dropout import draw_seed
from gt_models.kernels.gated_norm import gated_norm
from gt_models.kernels.global_attention import global_attention, linear_attention
from gt_models.kernels.linears import linears
from gt_models.nn.dropout import Dropout
from gt_models.nn.features import FeatureEncoder
from gt_models.nn.pooling import pool
from gt_models.polynormer.neighbours import LOCAL_ATTENTION, Edges
from gt_models.polynormer.parts import PAPER, Resets, check, head_first
from gt_models.registry import register_model


class PolynomialBase(nn.Module):
    """The base model, X^(l) = (W^(l) X^(l-1)) * (X^(l-1) + B^(l)) (equation 4): for one graph of `num_nodes` nodes, [n, d] -> [n, d].

    2^L-polynomial-expressive (Theorem 3.3), but neither equivariant nor linear in n: what the equivariant layers below are derived from.
    """

    def __init__(self, num_nodes: int, dim: int, num_layers: int):
        super().__init__()
        self.weights = nn.ParameterList(torch.empty(num_nodes, num_nodes) for _ in range(num_layers))
        self.biases = nn.ParameterList(torch.zeros(num_nodes, dim) for _ in range(num_layers))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for weight, bias in zip(self.weights, self.biases, strict=True):
            nn.init.xavier_uniform_(weight)
            nn.init.zeros_(bias)

    def forward(self, x: Tensor) -> Tensor:  # [n, d] -> [n, d]
        for weight, bias in zip(self.weights, self.biases, strict=True):
            x = (weight @ x) * (x + bias)
        return x


class Beta(nn.Module):
    """The coefficients B = 1 sigma(beta)^T (equations 5 and 7), [d]; with the second eigenvector v2, sigma(v2 beta^T), [N, d] (equation 19)."""

    def __init__(self, dim: int, num_layers: int):
        super().__init__()
        # unstated: the start of beta; the authors draw all layers' [L, d] at once from Xavier's normal distribution
        self.std = (2.0 / (num_layers + dim)) ** 0.5
        self.weight = nn.Parameter(torch.empty(dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=self.std)

    def forward(self, v2: Tensor | None) -> Tensor:  # [d], or [N, d] with v2 [N, 1]
        # unstated: sigma beside v2; equation 19 has none, equation 7 bounds B. v2 takes the place of the ones inside sigma(1 beta^T)
        return torch.sigmoid(self.weight if v2 is None else v2 * self.weight)


class Attention(Resets):
    """WV = sigma(Q) (sigma(K)^T V) / (sigma(Q) sum_i sigma(K_i)) (equation 6), head last: channel c of head h is c * H + h (Listing 2)."""

    def __init__(self, in_dim: int, dim: int, num_heads: int, share_query_key: bool = False, with_value: bool = True):
        super().__init__()
        self.num_heads = num_heads
        self.query = None if share_query_key else nn.Linear(in_dim, dim)
        self.key = nn.Linear(in_dim, dim)
        self.value = nn.Linear(in_dim, dim) if with_value else None

    def forward(self, x: Tensor, value: Tensor, batch: GraphBatch) -> Tensor:  # [N, in_dim], [N, d] -> [N, d]
        key = torch.sigmoid(self.key(x))
        query = key if self.query is None else torch.sigmoid(self.query(x))
        heads = (t.unflatten(1, (-1, self.num_heads)).mT for t in (query, key, value))  # [N, H, C]
        return linear_attention(*heads, batch).mT.flatten(1)


class LocalLayer(Resets):
    """X = (1 - b) LayerNorm(H * AV) + b AV (equation 17), or AV * (H + b) without norm (equation 7), [N, in_dim] -> [N, d].

    A is attention over neighbours; with `parallel` (equation 15) AV has the attention over all nodes added.
    """

    def __init__(
        self, in_dim: int, dim: int, num_heads: int, kind: str, beta: nn.Module, relu: bool, norm: bool, dropout: float,
        parallel: Attention | None,
    ):  # fmt: skip
        super().__init__()
        self.gate = nn.Linear(in_dim, dim)
        self.local = LOCAL_ATTENTION[kind](in_dim, dim, num_heads)
        self.parallel = parallel
        self.norm = nn.LayerNorm(dim) if norm else None
        self.beta, self.relu, self.dropout = beta, relu, Dropout(dropout)

    def forward(
        self, x: Tensor, batch: GraphBatch, edges: Edges, v2: Tensor | None, total: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """X and total + X, both [N, d]; `total` is the sum of the layers before."""
        h, value = linears(x, self.gate.weight, self.local.linear.weight, None, None)  # H without its bias, V, [N, d]
        return self.close(h, self.mix(x, value, batch, edges), v2, total)

    def mix(self, x: Tensor, value: Tensor, batch: GraphBatch, edges: Edges) -> Tensor:  # AV, [N, d]
        a = self.local.attend(value, edges)  # AV, [N, d]
        # unstated: norm, sum over layers and output of equation 15's variant; as in the local module. One V serves both attentions
        return a if self.parallel is None else a + self.parallel(x, value, batch)  # equation 15

    def close(
        self,
        h: Tensor,
        a: Tensor,
        v2: Tensor | None,
        total: Tensor | None,
        skip: Tensor | None = None,
        skip_bias: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """h without its bias and a + skip + skip_bias -> X and total + X."""
        # unstated: where Polynormer-r puts its ReLUs; on H and AV, as in the authors' code
        seed = draw_seed() if self.training and self.dropout.rate else None
        norm = (None, None, 0.0) if self.norm is None else (self.norm.weight, self.norm.bias, self.norm.eps)
        b = self.beta(v2)  # [d] or [N, d]
        return gated_norm(h, a, skip, total, self.gate.bias, skip_bias, b, *norm, self.relu, seed, self.dropout.rate)


class GlobalLayer(Resets):
    """X = LayerNorm(WV) * (H + b) (equation 8, Listing 2), [N, d] -> [N, d]."""

    def __init__(
        self,
        dim: int,
        num_heads: int,
        beta: nn.Module,
        relu: bool,
        norm: bool,
        dropout: float,
        share_query_key: bool = False,
    ):
        super().__init__()
        self.gate = nn.Linear(dim, dim)
        self.attention = Attention(dim, dim, num_heads, share_query_key)
        self.norm = nn.LayerNorm(dim) if norm else None
        self.beta, self.relu, self.dropout = beta, relu, Dropout(dropout)

    def forward(self, x: Tensor, batch: GraphBatch, v2: Tensor | None) -> Tensor:  # [N, d] -> [N, d]
        x = self.attend(x, batch, v2).unflatten(1, (self.attention.num_heads, -1)).mT.flatten(1)  # head last
        return self.dropout(F.relu(x) if self.relu else x)

    def attend(self, x: Tensor, batch: GraphBatch, v2: Tensor | None) -> Tensor:
        """Equation 8, head first: the rows of the weights change places, so that [N, d] need not be transposed."""
        heads, of = self.attention.num_heads, self.attention
        maps = [m for m in (self.gate, of.value, of.key, of.query) if m is not None]
        h, v, k, *q = linears(
            x, *(head_first(m.weight, 0, heads) for m in maps), *[None] * len(maps)
        )  # [N, d] without biases
        gate, v_bias, k_bias, *q_bias = (head_first(m.bias, 0, heads) for m in maps)
        (q, q_bias) = (q[0], q_bias[0]) if q else (None, None)
        norm = (
            (None, None) if self.norm is None else (head_first(t, 0, heads) for t in (self.norm.weight, self.norm.bias))
        )
        b = head_first(self.beta(v2), -1, heads)  # [d] or [N, d]
        return global_attention(
            h, v, k, q, gate + b, v_bias, k_bias, q_bias, *norm, heads, getattr(self.norm, "eps", 0.0), batch
        )


@register_model(
    "polynormer",
    levels=("node", "graph"),
    cost="m d + n d^2",
    encodings=("second_eigenvector",),
    paper=PAPER,
    sparse_x=True,
)
class Polynormer(Resets):
    """Polynormer and Polynormer-r, version 1 and 2.

    Args:
        in_dim, out_dim: width of continuous node features, or vocabulary sizes of categorical columns; outputs per node or graph.
        level, pooling: "node", or "graph" by the "mean", "sum" or "max" over nodes.
        hidden_dim, num_heads: width d of all heads together; attention heads, local and global, which split d.
        num_local_layers, num_global_layers: L1, also the number of layers of "local-and-global"; L2.
        attention: "local-to-global" (Section 3.3); "local" or "global" alone; "local-and-global" in parallel in each layer (equation 15).
        relu: Polynormer-r: ReLU in each layer.
        version: "v1": B = 1 beta^T. "v2": B = v2 beta^T with the encoding "second_eigenvector" (equation 19).
        local_layer: A of equation 7: "gat", "gcn" (large graphs), or "random-walk" (A D^-1 of Appendix K).
        norm: "layer": LayerNorm as in equation 17 and Listing 2. "none": equations 7 and 8 to the letter, a polynomial if `relu` is off.
        in_dropout, dropout, global_dropout: on the input features; after the input layer and in each local layer; after each global layer
            (None: as `dropout`).

    Training has two phases: `set_phase("local")` predicts from the local module alone, `set_phase("global")` (the start) from the whole.
    Raises ValueError for arguments that are unknown or do not fit each other.
    """

    def __init__(
        self,
        in_dim: int | Sequence[int],
        out_dim: int,
        level: Literal["node", "graph"] = "node",
        hidden_dim: int = 512,
        num_heads: int = 8,
        num_local_layers: int = 7,
        num_global_layers: int = 2,
        attention: Literal["local", "global", "local-to-global", "local-and-global"] = "local-to-global",
        relu: bool = False,
        version: Literal["v1", "v2"] = "v1",
        local_layer: Literal["gat", "gcn", "random-walk"] = "gat",
        norm: Literal["layer", "none"] = "layer",
        in_dropout: float = 0.0,
        dropout: float = 0.0,
        global_dropout: float | None = None,
        pooling: Literal["mean", "sum", "max"] = "mean",
    ):
        super().__init__()
        check(level, attention, version, local_layer, norm, hidden_dim, num_heads, num_local_layers, num_global_layers)
        self.level, self.attention, self.version, self.pooling = level, attention, version, pooling
        self.phase = self.phases[-1]
        self.in_dropout, self.dropout = Dropout(in_dropout), Dropout(dropout)
        self.input = FeatureEncoder(in_dim, hidden_dim)
        self.local_layers = nn.ModuleList(
            LocalLayer(
                hidden_dim, hidden_dim, num_heads, local_layer, Beta(hidden_dim, num_local_layers), relu, norm == "layer", dropout,
                Attention(hidden_dim, hidden_dim, num_heads, with_value=False) if attention == "local-and-global" else None,
            )
            for _ in range(0 if attention == "global" else num_local_layers)
        )  # fmt: skip
        global_dropout = dropout if global_dropout is None else global_dropout
        self.global_layers = nn.ModuleList(
            GlobalLayer(
                hidden_dim, num_heads, Beta(hidden_dim, num_global_layers), relu, norm == "layer", global_dropout
            )
            for _ in range(num_global_layers if "global" in self.phases else 0)
        )
        # unstated: how Listing 1's one output layer serves the local phase; it reads the local sum, as it later reads the global output
        self.head = nn.Linear(hidden_dim, out_dim)

    @property
    def phases(self) -> tuple[str, ...]:
        """The phases that this model can be trained in, in order."""
        return {"local-to-global": ("local", "global"), "global": ("global",)}.get(self.attention, ("local",))

    def set_phase(self, name: Literal["local", "global"]) -> None:
        """Chooses what predicts: "local", the local module (warm-up), or "global", the whole model; ValueError for a phase it lacks."""
        if name not in self.phases:
            raise ValueError(
                f"a Polynormer with attention {self.attention!r} has the phases {self.phases}, not {name!r}"
            )
        self.phase = name

    def forward(self, batch: GraphBatch) -> Tensor:
        """Node outputs [N, out_dim] or graph outputs [B, out_dim]. Raises MissingEncoding where version 2 finds no second eigenvector."""
        batch = GraphBatch.of(batch)
        return self.forward_head(self.forward_features(batch), batch)

    def forward_features(self, batch: GraphBatch) -> Tensor:  # [N, d]
        batch = GraphBatch.of(batch)
        v2 = (
            batch.encoding("second_eigenvector", 1).to(self.head.weight.dtype) if self.version == "v2" else None
        )  # [N, 1]
        x, total = self.embed(batch.x), None  # [N, d]
        edges = self.local_layers[0].local.edges(batch) if len(self.local_layers) else None  # one for all layers
        for layer in self.local_layers:
            x, total = layer(x, batch, edges, v2, total)  # X_local: the sum of all layers' outputs (Section 3.3)
        x = x if total is None else total
        return x if self.phase == "local" else self.global_module(x, batch, v2)

    def embed(self, x: Tensor) -> Tensor:  # [N, in_dim] -> [N, d]
        # unstated: the input layer; from the authors' code, without activation
        x = x if self.input.linear is None else self.in_dropout(x.to(self.head.weight.dtype))
        return self.dropout(self.input(x))

    def global_module(self, x: Tensor, batch: GraphBatch, v2: Tensor | None) -> Tensor:  # [N, d] -> [N, d]
        for layer in self.global_layers:
            x = layer(x, batch, v2)
        return x

    def forward_head(
        self, features: Tensor, batch: GraphBatch, head: nn.Linear | None = None
    ) -> Tensor:  # -> [N or B, out_dim]
        # unstated: pooling for graph outputs (Appendix L predicts runtimes of programs without saying how); the mean, then the same layer
        x = (
            pool(features, GraphBatch.of(batch), self.pooling) if self.level == "graph" else features
        )  # [N, d] or [B, d]
        return (head or self.head)(x)
