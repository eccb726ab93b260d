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
from gt_models.layers.pooling import POOLINGS, pool
from gt_models.layers.precision import full_precision
from gt_models.layers.reset import ResetParameters
from gt_models.layers.settings import at_least
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
    "pooling": POOLINGS,
}


class PolynomialBase(nn.Module):
    """The base model, X^(l) = (W^(l) X^(l-1)) * (X^(l-1) + B^(l)) (equation 4), for graphs of a fixed size.

    It is 2^L-polynomial-expressive (Theorem 3.3), but neither equivariant nor linear in the number of nodes. The
    equivariant layers below are derived from it.

    Args:
        num_nodes: number of nodes n.
        dim: width d.
        num_layers: number of layers L.
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
    """The coefficients B = 1 sigma(beta)^T (equations 5 and 7), or sigma(v2 beta^T) with an eigenvector (equation 19).

    Args:
        dim: width d.
        num_layers: number of layers of the module, for the initial values.
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
        """Returns sigma(beta), [d]; with the second eigenvector v2, [N, 1], a row per node, [N, d]."""
        # unstated: sigma with v2; equation 19 has none, equation 7 bounds B. v2 takes the place of the ones inside
        # sigma(1 beta^T)
        return torch.sigmoid(self.weight if v2 is None else v2.to(self.weight.dtype) * self.weight)


class Attention(ResetParameters):
    """WV = sigma(Q) (sigma(K)^T V) / (sigma(Q) sum_i sigma(K_i)) (equation 6).

    W, the attention of each node over the nodes of its graph, is never computed: the time is O(N C^2 H) for H heads of
    width C. Channel c of head h is column c * H + h (Listing 2).

    Args:
        in_dim: width of the input.
        dim: width of all heads together, d = H C.
        num_heads: number of heads H.
        share_query_key: whether queries and keys are the same.
        with_value: False if `forward` gets the values V.
    """

    def __init__(self, in_dim: int, dim: int, num_heads: int, share_query_key: bool = False, with_value: bool = True):
        super().__init__()
        self.num_heads = num_heads
        self.query = None if share_query_key else nn.Linear(in_dim, dim)
        self.key = nn.Linear(in_dim, dim)
        self.value = nn.Linear(in_dim, dim) if with_value else None

    def forward(self, x: Tensor, batch: GraphBatch, value: Tensor | None = None) -> Tensor:
        """Nodes [N, in_dim] -> [N, d]. `value`, [N, d], replaces the layer's own values."""
        key = torch.sigmoid(self.key(x))
        query = key if self.query is None else torch.sigmoid(self.query(x))
        value = self.value(x) if value is None else value  # type: ignore[misc]
        return self.attend(query, key, value, batch).to(x.dtype)

    @full_precision
    @accelerated
    def attend(self, query: Tensor, key: Tensor, value: Tensor, batch: GraphBatch) -> Tensor:
        """Attention within each graph (equation 6), of queries, keys and values [N, d] each -> [N, d]."""
        # padded with zeros behind the last node of a graph, [B, H, n, C]
        q, k, v = (self.split_heads(batch.to_dense(t)) for t in (query, key, value))
        memory = k.mT @ v  # sigma(K)^T V, [B, H, C, C]
        numerator, denominator = q @ memory, q @ k.sum(2)[..., None]
        # without the padding, where both are zero
        y, total = (batch.from_dense(t.permute(0, 2, 3, 1)) for t in (numerator, denominator))  # [N, C, H], [N, 1, H]
        return (y / total).flatten(1)

    def split_heads(self, x: Tensor) -> Tensor:
        """[B, n, d] -> [B, H, n, C]."""
        # contiguous, so that the products do not copy it
        return x.unflatten(2, (-1, self.num_heads)).permute(0, 3, 1, 2).contiguous()


class LocalLayer(ResetParameters):
    """X = (1 - b) LayerNorm(H * AV) + b AV (equation 17), or AV * (H + b) without norm (equation 7).

    A is attention over neighbours. With `parallel` (equation 15), attention over all nodes is added to AV.

    Args:
        in_dim: width of the input.
        dim: width of the output, d.
        local: returns the module of AV for an input and an output width.
        beta: module of the coefficients b.
        relu: whether ReLU is applied to H and AV.
        norm: True for equation 17, False for equation 7.
        dropout: rate of dropout on AV.
        parallel: attention over all nodes, which uses the values of `local`. None without it.
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
        """Returns AV, the attention over neighbours: [N, in_dim] -> [N, d]."""
        a = self.local(x, batch)
        # unstated: norm, sum over layers and output of equation 15's variant; as in the local module. One V serves both
        # attentions
        return a if self.parallel is None else a + self.parallel(x, batch, self.local.linear(x))  # equation 15

    @accelerated
    def combine(self, h: Tensor, a: Tensor, v2: Tensor | None) -> Tensor:
        """Returns the output of the layer from H and AV, [N, d] each -> [N, d]."""
        # unstated: where Polynormer-r puts its ReLUs; on H and AV, as in the authors' code
        h, a = (F.relu(h), F.relu(a)) if self.relu else (h, a)
        a, b = self.dropout(a), self.beta(v2)
        if self.norm is None:
            return a * (h + b)  # equation 7
        return (1 - b) * self.norm(h * a) + b * a  # equation 17


class GlobalLayer(ResetParameters):
    """X = LayerNorm(WV) * (H + b) (equation 8, Listing 2).

    Args:
        dim: width d.
        num_heads: number of heads.
        beta: module of the coefficients b.
        relu: whether ReLU is applied to the output.
        norm: whether LayerNorm is applied to WV.
        dropout: rate of dropout on the output.
        share_query_key: whether queries and keys are the same.
    """

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

    def attend(self, x: Tensor, batch: GraphBatch, v2: Tensor | None) -> Tensor:
        """Equation 8, [N, d] -> [N, d]."""
        return self.combine(self.gate(x), self.attention(x, batch), v2)

    def combine(self, h: Tensor, y: Tensor, v2: Tensor | None) -> Tensor:
        """Returns the output of the layer from H and WV, [N, d] each -> [N, d]."""
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
    """Polynormer and Polynormer-r, versions 1 and 2.

    Training has two phases: after `set_phase("local")` only the local module predicts, and after `set_phase("global")`,
    the default, the whole model.

    Args:
        in_dim: width of continuous node features, or vocabulary sizes of categorical columns.
        out_dim: number of outputs per node or graph.
        level: what a row of the output is, "node" or "graph".
        hidden_dim: width d of all heads together.
        num_heads: number of heads, local and global. It divides `hidden_dim`.
        num_local_layers: number of local layers L1, also of layers of "local-and-global".
        num_global_layers: number of global layers L2.
        attention: "local-to-global" (Section 3.3), only "local" or "global", or "local-and-global" in parallel in each
            layer (equation 15).
        relu: True for Polynormer-r, with ReLU in each layer.
        version: "v1": B = 1 beta^T. "v2": B = v2 beta^T with the encoding "second_eigenvector" (equation 19).
        local_layer: A of equation 7: "gat", "gcn" (large graphs), or "random-walk" (A D^-1 of Appendix K).
        norm: "layer": LayerNorm as in equation 17 and Listing 2. "none": exactly equations 7 and 8, which are a
            polynomial without `relu`.
        in_dropout: rate of dropout on the input features.
        dropout: rate of dropout after the input layer and in each local layer.
        global_dropout: rate of dropout after each global layer. None for `dropout`.
        pooling: "mean", "sum" or "max" over the nodes of a graph, for the level "graph".

    Raises:
        ValueError: an argument is unknown, or arguments do not fit each other.
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
        check_choices(
            level=level, attention=attention, version=version, local_layer=local_layer, norm=norm, pooling=pooling
        )
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
        """The phases of training, in order."""
        return {"local-to-global": ("local", "global"), "global": ("global",)}.get(self.attention, ("local",))

    def set_phase(self, name: Literal["local", "global"]) -> None:
        """Chooses what predicts: the local module ("local", for the warm-up) or the whole model ("global").

        Raises:
            ValueError: the model has no such phase.
        """
        if name not in self.phases:
            raise ValueError(
                f"a Polynormer with attention {self.attention!r} has the phases {self.phases}, not {name!r}"
            )
        self.phase = name

    def forward(self, batch: GraphBatch) -> Tensor:
        """Returns node outputs [N, out_dim] or graph outputs [B, out_dim].

        Raises:
            MissingEncoding: the batch has no second eigenvector, which version 2 needs.
        """
        batch = GraphBatch.of(batch)
        return self.forward_head(self.forward_features(batch), batch)

    def forward_features(self, batch: GraphBatch) -> Tensor:
        """Returns the node features before the head, [N, d]."""
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
        """Applies pooling, if the level is "graph", and the head: [N, d] -> [N or B, out_dim]."""
        return self.predict(features, batch, self.head)

    def predict(self, features: Tensor, batch: GraphBatch, head: nn.Module) -> Tensor:
        """Does the same as `forward_head`, with another head."""
        # unstated: pooling for graph outputs (Appendix L predicts runtimes of programs without saying how); the mean,
        # then the same layer
        return head(pool(features, GraphBatch.of(batch), self.pooling) if self.level == "graph" else features)


def check_choices(**given: str) -> None:
    """Check that values are among `CHOICES`.

    Raises:
        ValueError: a value is unknown; the message lists the known ones.
    """
    for name, value in given.items():
        if value not in CHOICES[name]:
            raise ValueError(f"{name}={value!r} is unknown; known: {', '.join(CHOICES[name])}")


def check_sizes(attention: str, hidden_dim: int, num_heads: int, num_local_layers: int, num_global_layers: int) -> None:
    """Check that sizes fit each other.

    Raises:
        ValueError: they do not.
    """
    at_least(1, hidden_dim=hidden_dim, num_heads=num_heads)
    if hidden_dim % num_heads:
        raise ValueError(
            f"hidden_dim {hidden_dim} cannot be split into {num_heads} heads: choose a multiple of num_heads"
        )
    if (attention != "global" and num_local_layers < 1) or (
        attention in ("global", "local-to-global") and num_global_layers < 1
    ):
        raise ValueError(f"attention {attention!r} needs at least one layer of each of its modules")
