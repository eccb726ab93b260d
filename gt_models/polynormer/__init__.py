"""Polynormer: node features multiplied by attention-weighted sums of node features, layer upon layer, so that L layers are a polynomial
of degree 2^L; first over neighbours, then over all nodes, both in linear time.

Deng, Yue, Zhang: Polynormer: Polynomial-Expressive Graph Transformer in Linear Time, ICLR 2024 (arXiv 2403.01232): Section 3 and
Appendices G, H.2, I, K.
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
from gt_models.polynormer.neighbours import Edges, GraphAttention, GraphConvolution
from gt_models.registry import register_model

PHASES = ("local", "global")


@register_model("polynormer", levels=("node", "graph"), cost="m d + n d^2", encodings=("second_eigenvector",))
class Polynormer(nn.Module):
    """Polynormer and Polynormer-r, version 1 and 2, in the paper's form and in the form that its authors released.

    Args:
        in_dim: width of continuous node features, or vocabulary sizes of categorical columns.
        out_dim: outputs per node or graph.
        level: "node", or "graph" by pooling the nodes.
        hidden_dim: width d of all heads together.
        num_heads: attention heads, local and global; they split d.
        num_local_layers: L1, also the number of layers of "local-and-global".
        num_global_layers: L2.
        attention: "local-to-global" (Section 3.3); "local" or "global" alone; "local-and-global" in parallel in each layer (equation 15).
        form: "paper": equations 7, 8 and 17, Listings 1 and 2. "released": the authors' code, which differs in these points: a linear
            skip W x beside the local attention, query = key, LayerNorm between local and global module, one output layer shared by all
            global layers, and a prediction head of its own for the local phase.
        relu: Polynormer-r: ReLU in each layer.
        version: "v1": B = 1 beta^T. "v2": B = v2 beta^T with the encoding "second_eigenvector" (equation 19).
        local_layer: A of equation 7: "gat", "gcn" (large graphs), or "random-walk" (A D^-1 of Appendix K).
        beta: "sigmoid": sigma(parameter) (equation 7). "raw": the parameter itself, unbounded. "constant": `beta_init`, not learnt.
        beta_init: start of every beta parameter; None draws it (beta="sigmoid" only).
        norm: "layer": LayerNorm as in equation 17 and Listing 2. "none": equations 7 and 8 to the letter, a polynomial if `relu` is off.
        pre_norm: LayerNorm before each local layer (authors' pre_ln).
        batch_norm: BatchNorm after the local attention (authors' post_bn).
        input_layer: a linear layer from in_dim to d; without it the first local layer reads the features themselves (large graphs).
        in_dropout, dropout, global_dropout: on the input features; after the input layer and in each local layer; after each global layer
            (None: as `dropout`).
        pooling: "mean", "sum" or "max" over nodes, at graph level.

    Training has two phases: `set_phase("local")` predicts from the local module alone, `set_phase("global")` (the start) from the whole.
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
        form: Literal["paper", "released"] = "paper",
        relu: bool = False,
        version: Literal["v1", "v2"] = "v1",
        local_layer: Literal["gat", "gcn", "random-walk"] = "gat",
        beta: Literal["sigmoid", "raw", "constant"] = "sigmoid",
        beta_init: float | None = None,
        norm: Literal["layer", "none"] = "layer",
        pre_norm: bool = False,
        batch_norm: bool = False,
        input_layer: bool = True,
        in_dropout: float = 0.0,
        dropout: float = 0.0,
        global_dropout: float | None = None,
        pooling: Literal["mean", "sum", "max"] = "mean",
    ):
        super().__init__()
        _choice("level", level, ("node", "graph"))
        _choice("attention", attention, ("local", "global", "local-to-global", "local-and-global"))
        _choice("form", form, ("paper", "released"))
        _choice("version", version, ("v1", "v2"))
        _choice("local_layer", local_layer, tuple(LOCAL_LAYERS))
        _choice("norm", norm, ("layer", "none"))
        if hidden_dim % num_heads:
            raise ValueError(f"hidden_dim {hidden_dim} cannot be split into {num_heads} heads: choose a multiple of num_heads")
        self.has_local, self.has_global = attention != "global", attention in ("global", "local-to-global")
        if (self.has_local and num_local_layers < 1) or (self.has_global and num_global_layers < 1):
            raise ValueError(f"attention {attention!r} needs at least one layer of each of its modules")
        if not input_layer and not (self.has_local and isinstance(in_dim, int)):
            raise ValueError(
                "without input_layer the first local layer reads continuous features: attention must not be 'global', in_dim an int"
            )
        self.level, self.attention, self.version, self.pooling = level, attention, version, pooling
        released = form == "released"

        self.in_dropout, self.dropout = Dropout(in_dropout), Dropout(dropout)
        self.input = FeatureEncoder(in_dim, hidden_dim) if input_layer else None
        widths = [hidden_dim if input_layer else in_dim] + [hidden_dim] * (num_local_layers - 1)
        self.local_layers = nn.ModuleList(
            LocalLayer(
                width, hidden_dim, num_heads, local_layer, Beta(hidden_dim, num_local_layers, beta, beta_init), skip=released, relu=relu,
                norm=norm == "layer", pre_norm=pre_norm, batch_norm=batch_norm, dropout=dropout,
                parallel=Attention(width, hidden_dim, num_heads, released, with_value=False) if attention == "local-and-global" else None,
            )
            for width in (widths if self.has_local else [])
        )  # fmt: skip
        self.between_norm = nn.LayerNorm(hidden_dim) if released and attention == "local-to-global" else None
        self.global_layers = nn.ModuleList(
            GlobalLayer(
                hidden_dim, num_heads, Beta(hidden_dim, num_global_layers, beta, beta_init), share_query_key=released, relu=relu,
                norm=norm == "layer", dropout=dropout if global_dropout is None else global_dropout,
            )
            for _ in range(num_global_layers if self.has_global else 0)
        )  # fmt: skip
        self.global_output = nn.Linear(hidden_dim, hidden_dim) if released and self.has_global else None
        # unstated: how Listing 1's one output layer serves the local phase; it reads the local sum, as it later reads the global output
        self.head = nn.Linear(hidden_dim, out_dim)
        self.local_head = nn.Linear(hidden_dim, out_dim) if released and attention == "local-to-global" else None
        self.phase = "local" if attention in ("local", "local-and-global") else "global"

    def reset_parameters(self) -> None:
        for part in (
            self.input,
            *self.local_layers,
            self.between_norm,
            *self.global_layers,
            self.global_output,
            self.head,
            self.local_head,
        ):
            if part is not None:
                part.reset_parameters()

    @property
    def phases(self) -> tuple[str, ...]:
        """The phases that this model can be trained in, in order."""
        return PHASES if self.attention == "local-to-global" else (self.phase,)

    def set_phase(self, name: Literal["local", "global"]) -> None:
        """Chooses what predicts: "local", the local module (warm-up), or "global", the whole model; ValueError for a phase it lacks."""
        if name not in self.phases:
            raise ValueError(f"a Polynormer with attention {self.attention!r} has the phases {self.phases}, not {name!r}")
        self.phase = name

    def forward(self, batch: GraphBatch) -> Tensor:
        """Node outputs [N, out_dim] or graph outputs [B, out_dim]. Raises MissingEncoding where version 2 finds no second eigenvector."""
        batch = GraphBatch.of(batch)
        return self.forward_head(self.forward_features(batch), batch)

    def forward_features(self, batch: GraphBatch) -> Tensor:
        batch = GraphBatch.of(batch)
        position = batch.encoding("second_eigenvector", 1).to(self.head.weight.dtype) if self.version == "v2" else None  # [N, 1]
        x = batch.x
        if self.input is None or self.input.linear is not None:
            x = self.in_dropout(x.to(self.head.weight.dtype))
        # unstated: the input layer; from the authors' code, without activation
        x = x if self.input is None else self.dropout(self.input(x))  # [N, d]
        edges = self.local_layers[0].local.edges(batch) if self.has_local else None  # one for all layers
        total = None
        for layer in self.local_layers:
            x, total = layer(x, batch, edges, position, total)  # X_local: the sum of all layers' outputs (Section 3.3)
        x = x if total is None else total
        if self.phase == "local":
            return x
        x = x if self.between_norm is None else self.between_norm(x)
        for layer in self.global_layers:
            x = layer(x, batch, position, self.global_output)
        return x

    def forward_head(self, features: Tensor, batch: GraphBatch) -> Tensor:
        batch = GraphBatch.of(batch)
        # unstated: pooling for graph outputs (Appendix L predicts runtimes of programs without saying how); the mean, then the same layer
        x = pool(features, batch, self.pooling) if self.level == "graph" else features
        local = self.phase == "local" and self.local_head is not None
        return self.local_head(x) if local else self.head(x)


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

    def forward(self, x: Tensor) -> Tensor:
        for weight, bias in zip(self.weights, self.biases, strict=True):
            x = (weight @ x) * (x + bias)
        return x


class LocalLayer(nn.Module):
    """X = (1 - b) LayerNorm(H * AV) + b AV (equation 17), or AV * (H + b) without norm (equation 7). [N, in_dim] -> [N, d] twice.

    The second result is `total`, the sum of the layers before, plus X.
    """

    def __init__(
        self, in_dim: int, dim: int, num_heads: int, kind: str, beta: "Beta", skip: bool, relu: bool, norm: bool, pre_norm: bool,
        batch_norm: bool, dropout: float, parallel: "Attention | None",
    ):  # fmt: skip
        super().__init__()
        self.pre_norm = nn.LayerNorm(in_dim) if pre_norm else None
        self.gate = nn.Linear(in_dim, dim)
        self.local = LOCAL_LAYERS[kind](in_dim, dim, num_heads)
        self.skip = nn.Linear(in_dim, dim) if skip else None
        self.parallel = parallel
        self.batch_norm = nn.BatchNorm1d(dim) if batch_norm else None
        self.norm = nn.LayerNorm(dim) if norm else None
        self.beta, self.relu, self.dropout = beta, relu, Dropout(dropout)

    def reset_parameters(self) -> None:
        for part in self.children():
            if hasattr(part, "reset_parameters"):
                part.reset_parameters()

    def forward(
        self, x: Tensor, batch: GraphBatch, edges: Edges, position: Tensor | None, total: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        x = x if self.pre_norm is None else self.pre_norm(x)
        maps = [self.gate, self.local.linear] if self.skip is None else [self.gate, self.local.linear, self.skip]
        h, value, *skip = linears(x, *(m.weight for m in maps), *[None] * len(maps))  # H without its bias, V, [N, d]
        skip, skip_bias = (None, None) if self.skip is None else (skip[0], self.skip.bias)
        a = self.local.attend(value, edges)  # AV
        if self.parallel is not None:
            # unstated: norm, sum over layers and output of equation 15's variant; as in the local module. One V serves both attentions
            a = a + self.parallel(x, batch, value)  # equation 15
        if self.batch_norm is not None:
            a, skip, skip_bias = self.batch_norm(a if skip is None else a + (skip + skip_bias)), None, None
        b = self.beta(position)  # [d] or [N, d]
        # unstated: where Polynormer-r puts its ReLUs; on H and AV, as in the authors' code
        if self.norm is not None and b.dim() == 1:
            seed = draw_seed() if self.training and self.dropout.rate else None
            return gated_norm(
                h, a, skip, total, self.gate.bias, skip_bias, b, self.norm.weight, self.norm.bias, self.norm.eps, self.relu, seed,
                self.dropout.rate,
            )  # fmt: skip
        h = h + self.gate.bias
        a = a if skip is None else a + (skip + skip_bias)
        h, a = (F.relu(h), F.relu(a)) if self.relu else (h, a)
        a = self.dropout(a)
        # equations 7 and 17
        x = a * (h + b) if self.norm is None else (1 - b) * self.norm(h * a) + b * a
        return x, x if total is None else total + x


class GlobalLayer(nn.Module):
    """X = LayerNorm(attention over all nodes) * (H + b) (equation 8, Listing 2). [N, d] -> [N, d]."""

    def __init__(self, dim: int, num_heads: int, beta: "Beta", share_query_key: bool, relu: bool, norm: bool, dropout: float):
        super().__init__()
        self.gate = nn.Linear(dim, dim)
        self.attention = Attention(dim, dim, num_heads, share_query_key)
        self.norm = nn.LayerNorm(dim) if norm else None
        self.beta, self.relu, self.dropout = beta, relu, Dropout(dropout)

    def reset_parameters(self) -> None:
        for part in self.children():
            if hasattr(part, "reset_parameters"):
                part.reset_parameters()

    def forward(self, x: Tensor, batch: GraphBatch, position: Tensor | None, output: nn.Linear | None) -> Tensor:
        heads, query, key, value = self.attention.num_heads, self.attention.query, self.attention.key, self.attention.value
        # rows of weights change places, so that each head's channels come side by side: [N, d] never has to
        maps = [m for m in (self.gate, value, key, query) if m is not None]
        weights, biases = ([head_first(t, 0, heads) for t in (getattr(m, name) for m in maps)] for name in ("weight", "bias"))
        beta = head_first(self.beta(position), -1, heads)  # [d] or [N, d]
        norm = None if self.norm is None else [head_first(t, 0, heads) for t in (self.norm.weight, self.norm.bias)]
        h, v, k, *q = linears(x, *weights, *[None] * len(maps))  # without biases, [N, d]
        gate, v_bias, k_bias, *q_bias = biases
        x = global_attention(
            h, v, k, q[0] if q else None, gate + beta, v_bias, k_bias, q_bias[0] if q else None, *(norm or (None, None)), heads,
            0.0 if norm is None else self.norm.eps, batch,
        )  # fmt: skip
        if output is None:
            x = x.unflatten(1, (heads, -1)).transpose(1, 2).flatten(1)  # head last
        else:
            x = F.linear(x, head_first(output.weight, 1, heads), output.bias)
        return self.dropout(F.relu_(x) if self.relu else x)


def head_first(t: Tensor, dim: int, num_heads: int) -> Tensor:
    """Dimension `dim`, d channels c * H + h, in the order h * C + c."""
    return (
        t
        if num_heads == 1
        else t.unflatten(dim, (-1, num_heads)).transpose(dim % t.dim(), dim % t.dim() + 1).flatten(dim % t.dim(), dim % t.dim() + 1)
    )


class Attention(nn.Module):
    """sigma(Q) (sigma(K)^T V) / (sigma(Q) sum_i sigma(K_i)) (equation 6), head last: channel c of head h is c * H + h (Listing 2)."""

    def __init__(self, in_dim: int, dim: int, num_heads: int, share_query_key: bool, with_value: bool = True):
        super().__init__()
        self.num_heads = num_heads
        self.query = None if share_query_key else nn.Linear(in_dim, dim)
        self.key = nn.Linear(in_dim, dim)
        self.value = nn.Linear(in_dim, dim) if with_value else None

    def reset_parameters(self) -> None:
        for part in self.children():
            part.reset_parameters()

    def forward(self, x: Tensor, batch: GraphBatch, value: Tensor | None = None) -> Tensor:
        def heads(y: Tensor) -> Tensor:
            return y.view(len(y), y.size(1) // self.num_heads, self.num_heads).mT  # [N, H, C]

        key = heads(torch.sigmoid(self.key(x)))
        query = key if self.query is None else heads(torch.sigmoid(self.query(x)))
        value = self.value(x) if value is None else value
        return linear_attention(query, key, heads(value), batch).mT.flatten(1)


class Beta(nn.Module):
    """The coefficients B of equation 5, [d]; times the second eigenvector in version 2, [N, d]."""

    def __init__(self, dim: int, num_layers: int, kind: str, init: float | None):
        super().__init__()
        _choice("beta", kind, ("sigmoid", "raw", "constant"))
        if init is None and kind != "sigmoid":
            raise ValueError(f"beta={kind!r} needs beta_init, the value it starts at")
        self.kind, self.init = kind, init
        # unstated: the start of beta; the authors draw all layers' [L, d] at once from Xavier's normal distribution
        self.std = (2.0 / (num_layers + dim)) ** 0.5
        self.weight = nn.Parameter(torch.empty(dim)) if kind != "constant" else None
        self.register_buffer("constant", torch.full((dim,), init) if kind == "constant" else None, persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.weight is None:
            return
        if self.init is None:
            nn.init.normal_(self.weight, std=self.std)
        else:
            nn.init.constant_(self.weight, self.init)

    def forward(self, position: Tensor | None) -> Tensor:
        # from the number itself: the buffer, made in single precision, would bring its rounding into a model in float64
        weight = torch.full_like(self.constant, self.init) if self.weight is None else self.weight  # [d]
        if position is not None:
            # unstated: sigma beside v2; equation 19 has none, equation 7 bounds B. v2 takes the place of the ones inside sigma(1 beta^T)
            weight = position * weight  # [N, d]
        return torch.sigmoid(weight) if self.kind == "sigmoid" else weight


LOCAL_LAYERS = {
    "gat": lambda in_dim, dim, num_heads: GraphAttention(in_dim, dim, num_heads),
    "gcn": lambda in_dim, dim, num_heads: GraphConvolution(in_dim, dim, "gcn"),
    "random-walk": lambda in_dim, dim, num_heads: GraphConvolution(in_dim, dim, "random-walk"),
}


def _choice(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(f"{name}={value!r} is unknown; known: {', '.join(known)}")
