"""Polynormer: L layers that are a polynomial of degree 2^L in the node features, in linear time.

Each layer multiplies node features by attention-weighted sums of node features, first over neighbours, then over all
nodes.

Deng, Yue, Zhang: Polynormer: Polynomial-Expressive Graph Transformer in Linear Time, ICLR 2024,
https://arxiv.org/abs/2403.01232: Section 3 and Appendices G, H.2, I, K. What the authors' code does differently:
`gt_models.released.polynormer`.
"""

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gt_models.batch import GraphBatch
from gt_models.layers.accelerated import accelerated
from gt_models.layers.dropout import Dropout
from gt_models.layers.features import FeatureEncoder
from gt_models.layers.pooling import pool
from gt_models.layers.precision import full_precision
from gt_models.layers.reset import ResetParameters
from gt_models.polynormer.neighbours import neighbours
from gt_models.registry import register_model

PAPER = (
    "Deng, Yue, Zhang: Polynormer: Polynomial-Expressive Graph Transformer in Linear Time, ICLR 2024. "
    "https://arxiv.org/abs/2403.01232"
)
CHOICES = {
    "level": ("node", "graph"),
    "attention": ("local", "global", "local-to-global", "local-and-global"),
    "version": ("v1", "v2"),
    "local_layer": ("gat", "gcn", "random-walk"),
    "norm": ("layer", "none"),
}


class PolynomialBase(nn.Module):
    """The base model, X^(l) = (W^(l) X^(l-1)) * (X^(l-1) + B^(l)) (equation 4).

    For one graph of `num_nodes` nodes, [n, d] -> [n, d].

    2^L-polynomial-expressive (Theorem 3.3), but neither equivariant nor linear in n: what the equivariant layers below
    are derived from.
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

    def forward(self, x: Tensor) -> Tensor:
        """Nodes of one graph, [n, d] -> [n, d]."""
        for weight, bias in zip(self.weights, self.biases, strict=True):
            x = (weight @ x) * (x + bias)
        return x


class Beta(nn.Module):
    """The coefficients B = 1 sigma(beta)^T (equations 5 and 7), [d].

    With the second eigenvector v2, sigma(v2 beta^T), [N, d] (equation 19).
    """

    def __init__(self, dim: int, num_layers: int):
        super().__init__()
        # unstated: the start of beta; the authors draw all layers' [L, d] at once from Xavier's normal distribution
        self.std = (2.0 / (num_layers + dim)) ** 0.5
        self.weight = nn.Parameter(torch.empty(dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=self.std)

    def forward(self, v2: Tensor | None) -> Tensor:
        """sigma(beta), [d]; with v2 [N, 1] one per node, [N, d]."""
        # unstated: sigma with v2; equation 19 has none, equation 7 bounds B. v2 takes the place of the ones inside
        # sigma(1 beta^T)
        return torch.sigmoid(self.weight if v2 is None else v2.to(self.weight.dtype) * self.weight)


class Attention(ResetParameters):
    """WV = sigma(Q) (sigma(K)^T V) / (sigma(Q) sum_i sigma(K_i)) (equation 6).

    The head is the last index: channel c of head h is c * H + h (Listing 2).

    W is the attention of each node over the nodes of its graph; it is never computed. Time O(N C^2 H). `with_value`
    False: `forward` is given V.
    """

    def __init__(self, in_dim: int, dim: int, num_heads: int, share_query_key: bool = False, with_value: bool = True):
        super().__init__()
        self.num_heads = num_heads
        self.query = None if share_query_key else nn.Linear(in_dim, dim)
        self.key = nn.Linear(in_dim, dim)
        self.value = nn.Linear(in_dim, dim) if with_value else None

    def forward(self, x: Tensor, batch: GraphBatch, value: Tensor | None = None) -> Tensor:
        """[N, in_dim] -> [N, d]; `value` [N, d] takes the place of the layer's value map."""
        key = torch.sigmoid(self.key(x))
        query = key if self.query is None else torch.sigmoid(self.query(x))
        value = self.value(x) if value is None else value  # type: ignore[misc]
        return self.attend(query, key, value, batch).to(x.dtype)

    @full_precision
    @accelerated
    def attend(self, query: Tensor, key: Tensor, value: Tensor, batch: GraphBatch) -> Tensor:
        """Attention within each graph (equation 6), of queries, keys and values [N, d] each -> [N, d]."""
        # graph by graph and head by head, zero behind a graph's last node: [B, H, n, C]
        q, k, v = (self.split_heads(batch.to_dense(t)) for t in (query, key, value))
        memory = k.mT @ v  # sigma(K)^T V, [B, H, C, C]
        numerator, denominator = q @ memory, q @ k.sum(2)[..., None]
        # of the nodes alone: behind the last one both are zero
        y, total = (batch.from_dense(t.permute(0, 2, 3, 1)) for t in (numerator, denominator))  # [N, C, H], [N, 1, H]
        return (y / total).flatten(1)

    def split_heads(self, x: Tensor) -> Tensor:
        """[B, n, d] -> [B, H, n, C]."""
        # contiguous: each product would copy it otherwise
        return x.unflatten(2, (-1, self.num_heads)).permute(0, 3, 1, 2).contiguous()


class LocalLayer(ResetParameters):
    """X = (1 - b) LayerNorm(H * AV) + b AV (equation 17), or AV * (H + b) without norm (equation 7).

    [N, in_dim] -> [N, d].

    A is attention over neighbours; with `parallel` (equation 15) AV has the attention over all nodes added.

    Args:
        in_dim, dim: input and output width.
        local: makes A, from input and output width.
        beta: gives b.
        relu: ReLU on H and AV.
        norm: equation 17, else equation 7.
        dropout: on AV.
        parallel: attention over all nodes, which uses the values of `local`.
    """

    def __init__(
        self,
        in_dim: int,
        dim: int,
        local: Callable[[int, int], nn.Module],
        beta: nn.Module,
        relu: bool,
        norm: bool,
        dropout: float,
        parallel: Attention | None,
    ):
        super().__init__()
        self.gate = nn.Linear(in_dim, dim)
        self.local = local(in_dim, dim)
        self.parallel = parallel
        self.norm = nn.LayerNorm(dim) if norm else None
        self.beta, self.relu, self.dropout = beta, relu, Dropout(dropout)

    @accelerated
    def forward(self, x: Tensor, batch: GraphBatch, v2: Tensor | None) -> Tensor:
        """[N, in_dim] -> [N, d]; `v2`: see `Beta`."""
        return self.combine(self.gate(x), self.mix(x, batch), v2)

    def mix(self, x: Tensor, batch: GraphBatch) -> Tensor:
        """AV, what attention to neighbours gives each node: [N, in_dim] -> [N, d]."""
        a = self.local(x, batch)
        # unstated: norm, sum over layers and output of equation 15's variant; as in the local module. One V serves both
        # attentions
        return a if self.parallel is None else a + self.parallel(x, batch, self.local.linear(x))  # equation 15

    @accelerated
    def combine(self, h: Tensor, a: Tensor, v2: Tensor | None) -> Tensor:
        """The layer's output of H and AV, [N, d] each -> [N, d]."""
        # unstated: where Polynormer-r puts its ReLUs; on H and AV, as in the authors' code
        h, a = (F.relu(h), F.relu(a)) if self.relu else (h, a)
        a, b = self.dropout(a), self.beta(v2)
        if self.norm is None:
            return a * (h + b)  # equation 7
        return (1 - b) * self.norm(h * a) + b * a  # equation 17


class GlobalLayer(ResetParameters):
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

    def forward(self, x: Tensor, batch: GraphBatch, v2: Tensor | None) -> Tensor:
        """[N, d] -> [N, d]; `v2`: see `Beta`."""
        x = self.attend(x, batch, v2)
        return self.dropout(F.relu(x) if self.relu else x)

    @accelerated
    def attend(self, x: Tensor, batch: GraphBatch, v2: Tensor | None) -> Tensor:
        """Equation 8, [N, d] -> [N, d]."""
        return self.combine(self.gate(x), self.attention(x, batch), v2)

    def combine(self, h: Tensor, y: Tensor, v2: Tensor | None) -> Tensor:
        """The layer's output of H and WV, [N, d] each -> [N, d]."""
        y = y if self.norm is None else self.norm(y)
        return y * (h + self.beta(v2))  # equation 8


@register_model(
    "polynormer",
    levels=("node", "graph"),
    cost="m d + n d^2",
    encodings=("second_eigenvector",),
    paper=PAPER,
    sparse_x=True,
)
class Polynormer(ResetParameters):
    """Polynormer and Polynormer-r, version 1 and 2.

    Args:
        in_dim, out_dim: width of continuous node features, or vocabulary sizes of categorical columns; outputs per node
            or graph.
        level, pooling: "node", or "graph" by the "mean", "sum" or "max" over nodes.
        hidden_dim, num_heads: width d of all heads together; attention heads, local and global, which split d.
        num_local_layers, num_global_layers: L1, also the number of layers of "local-and-global"; L2.
        attention: "local-to-global" (Section 3.3); "local" or "global" alone; "local-and-global" in parallel in each
            layer (equation 15).
        relu: Polynormer-r: ReLU in each layer.
        version: "v1": B = 1 beta^T. "v2": B = v2 beta^T with the encoding "second_eigenvector" (equation 19).
        local_layer: A of equation 7: "gat", "gcn" (large graphs), or "random-walk" (A D^-1 of Appendix K).
        norm: "layer": LayerNorm as in equation 17 and Listing 2. "none": equations 7 and 8 to the letter, a polynomial
            if `relu` is off.
        in_dropout, dropout, global_dropout: on the input features; after the input layer and in each local layer; after
            each global layer (None: as `dropout`).

    Training has two phases: `set_phase("local")` predicts from the local module alone, `set_phase("global")` (the
    start) from the whole.

    Raises:
        ValueError: arguments that are unknown or do not fit each other.
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
        check_choices(level=level, attention=attention, version=version, local_layer=local_layer, norm=norm)
        check_sizes(attention, hidden_dim, num_heads, num_local_layers, num_global_layers)
        self.level, self.attention, self.version, self.pooling = level, attention, version, pooling
        self.phase = self.phases[-1]
        self.input, self.dropout = FeatureEncoder(in_dim, hidden_dim, dropout=in_dropout), Dropout(dropout)
        self.local_layers = nn.ModuleList(
            LocalLayer(
                hidden_dim,
                hidden_dim,
                local=neighbours(local_layer, num_heads),
                beta=Beta(hidden_dim, num_local_layers),
                relu=relu,
                norm=norm == "layer",
                dropout=dropout,
                parallel=Attention(hidden_dim, hidden_dim, num_heads, with_value=False)
                if attention == "local-and-global"
                else None,
            )
            for _ in range(0 if attention == "global" else num_local_layers)
        )
        global_dropout = dropout if global_dropout is None else global_dropout
        self.global_layers = nn.ModuleList(
            GlobalLayer(
                hidden_dim, num_heads, Beta(hidden_dim, num_global_layers), relu, norm == "layer", global_dropout
            )
            for _ in range(num_global_layers if "global" in self.phases else 0)
        )
        # unstated: how Listing 1's one output layer serves the local phase; it reads the local sum, as it later reads
        # the global output
        self.head = nn.Linear(hidden_dim, out_dim)

    @property
    def phases(self) -> tuple[str, ...]:
        """The phases that this model can be trained in, in order."""
        return {"local-to-global": ("local", "global"), "global": ("global",)}.get(self.attention, ("local",))

    def set_phase(self, name: Literal["local", "global"]) -> None:
        """Chooses what predicts: "local", the local module (warm-up), or "global", the whole model.

        ValueError for an unknown phase.
        """
        if name not in self.phases:
            raise ValueError(
                f"a Polynormer with attention {self.attention!r} has the phases {self.phases}, not {name!r}"
            )
        self.phase = name

    def forward(self, batch: GraphBatch) -> Tensor:
        """Node outputs [N, out_dim] or graph outputs [B, out_dim].

        Raises:
            MissingEncoding: version 2 finds no second eigenvector.
        """
        batch = GraphBatch.of(batch)
        return self.forward_head(self.forward_features(batch), batch)

    def forward_features(self, batch: GraphBatch) -> Tensor:
        """Nodes before the head, [N, d]."""
        batch = GraphBatch.of(batch)
        v2 = batch.encoding("second_eigenvector", 1) if self.version == "v2" else None  # [N, 1]
        x, total = self.embed(batch.x), None  # [N, d]
        for layer in self.local_layers:
            x = layer(x, batch, v2)
            total = x if total is None else total + x  # X_local: the sum of all layers' outputs (Section 3.3)
        x = x if total is None else total
        return x if self.phase == "local" else self.global_module(x, batch, v2)

    def embed(self, x: Tensor) -> Tensor:
        """The input layer, [N, in_dim] -> [N, d]."""
        # unstated: the input layer; from the authors' code, without activation
        return self.dropout(self.input(x))

    def global_module(self, x: Tensor, batch: GraphBatch, v2: Tensor | None) -> Tensor:
        """The global layers, one after the other: [N, d] -> [N, d]."""
        for layer in self.global_layers:
            x = layer(x, batch, v2)
        return x

    def forward_head(self, features: Tensor, batch: GraphBatch) -> Tensor:
        """Pooling where the level is the graph, then the head: [N, d] -> [N or B, out_dim]."""
        return self.predict(features, batch, self.head)

    def predict(self, features: Tensor, batch: GraphBatch, head: nn.Module) -> Tensor:
        """As `forward_head`, by a given head."""
        # unstated: pooling for graph outputs (Appendix L predicts runtimes of programs without saying how); the mean,
        # then the same layer
        return head(pool(features, GraphBatch.of(batch), self.pooling) if self.level == "graph" else features)


def check_choices(**given: str) -> None:
    """Check that values are among `CHOICES`.

    Raises:
        ValueError: one is not; the message lists the known values.
    """
    for name, value in given.items():
        if value not in CHOICES[name]:
            raise ValueError(f"{name}={value!r} is unknown; known: {', '.join(CHOICES[name])}")


def check_sizes(attention: str, hidden_dim: int, num_heads: int, num_local_layers: int, num_global_layers: int) -> None:
    """Check that sizes fit each other.

    Raises:
        ValueError: they do not.
    """
    if hidden_dim % num_heads:
        raise ValueError(
            f"hidden_dim {hidden_dim} cannot be split into {num_heads} heads: choose a multiple of num_heads"
        )
    if (attention != "global" and num_local_layers < 1) or (
        attention in ("global", "local-to-global") and num_global_layers < 1
    ):
        raise ValueError(f"attention {attention!r} needs at least one layer of each of its modules")
