"""Polynormer as its authors released it.

Source: model.py of https://github.com/cornell-zhang/Polynormer, and large_graph_exp/ for large graphs.
"""

# mypy: disable-error-code="arg-type, assignment, union-attr"

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gt_models.batch import GraphBatch
from gt_models.layers.accelerated import accelerated
from gt_models.layers.dropout import Dropout
from gt_models.layers.features import FeatureEncoder
from gt_models.layers.precision import dtype_of
from gt_models.polynormer import (
    PAPER,
    Attention,
    Beta,
    GlobalLayer,
    LocalLayer,
    Polynormer,
    check_choices,
    check_sizes,
)
from gt_models.polynormer.neighbours import neighbours
from gt_models.registry import register_model


class RawBeta(Beta):
    """The parameter itself, unbounded, where the paper takes its sigmoid (run.sh gives --beta); starts at `init`."""

    def __init__(self, dim: int, init: float):
        self.init = init
        super().__init__(dim, 1)

    def reset_parameters(self) -> None:
        nn.init.constant_(self.weight, self.init)

    def forward(self, v2: Tensor | None) -> Tensor:
        """B, [d], or [N, d] with the second eigenvector v2 [N, 1]."""
        return self.weight if v2 is None else v2.to(self.weight.dtype) * self.weight


class ConstantBeta(nn.Module):
    """`init`, not learnt (large_graph_exp/lg_model.py: the constant 0.9)."""

    def __init__(self, dim: int, init: float):
        super().__init__()
        self.init = init
        self.register_buffer("like", torch.empty(dim), persistent=False)

    def forward(self, v2: Tensor | None) -> Tensor:
        """B, [d], or [N, d] with the second eigenvector v2 [N, 1]."""
        b = torch.full_like(
            self.like, self.init
        )  # from the number: single precision would bring its rounding into a model in float64
        return b if v2 is None else v2.to(b.dtype) * b


class ReleasedLocalLayer(LocalLayer):
    """A linear skip W x in parallel with the local attention (lins).

    On request LayerNorm before it (pre_ln) and BatchNorm after it (post_bn).
    """

    def __init__(self, in_dim: int, dim: int, *, pre_norm: bool, batch_norm: bool, **others: Any):
        super().__init__(in_dim, dim, **others)
        self.pre_norm = nn.LayerNorm(in_dim) if pre_norm else None
        self.skip = nn.Linear(in_dim, dim)
        self.batch_norm = nn.BatchNorm1d(dim) if batch_norm else None

    @accelerated
    def forward(self, x: Tensor, batch: GraphBatch, v2: Tensor | None) -> Tensor:
        """[N, in_dim] -> [N, d]; `v2`: see `Beta`."""
        x = x if self.pre_norm is None else self.pre_norm(x)
        return self.combine(self.gate(x), self.skipped(self.mix(x, batch), self.skip(x)), v2)

    def skipped(self, a: Tensor, skip: Tensor) -> Tensor:
        """AV + W x, normalised on request: [N, d] each -> [N, d]."""
        return a + skip if self.batch_norm is None else self.batch_norm(a + skip)


class ReleasedGlobalLayer(GlobalLayer):
    """Query = key (qk_shared), and a linear output layer, one for all global layers (lin_out)."""

    def __init__(self, *arguments):
        super().__init__(*arguments, share_query_key=True)

    def forward(self, x: Tensor, batch: GraphBatch, v2: Tensor | None, output: nn.Module) -> Tensor:  # type: ignore[override]
        """Nodes [N, d] -> [N, d] through `output`, which all global layers share."""
        x = output(self.attend(x, batch, v2))
        return self.dropout(F.relu(x) if self.relu else x)


@register_model(
    "polynormer-released",
    levels=("node", "graph"),
    cost="m d + n d^2",
    encodings=("second_eigenvector",),
    paper=PAPER,
    sparse_x=True,
)
class ReleasedPolynormer(Polynormer):
    """Polynormer with the layers above, LayerNorm between its modules, and a head for the local phase.

    Args: as `Polynormer`, which always has its norms here, and
        beta: "sigmoid": as in the paper. "raw": the parameter itself. "constant": `beta_init`, not learnt.
        beta_init: where a raw or constant beta starts.
        pre_norm: LayerNorm before each local layer (pre_ln).
        batch_norm: BatchNorm after the local attention (post_bn).
        input_layer: a linear layer from in_dim to d; without it the first local layer reads the features themselves
        (large graphs).

    Parts are drawn in the authors' order, hence built here and not by the paper's constructor.
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
        beta: Literal["sigmoid", "raw", "constant"] = "sigmoid",
        beta_init: float | None = None,
        pre_norm: bool = False,
        batch_norm: bool = False,
        input_layer: bool = True,
        in_dropout: float = 0.0,
        dropout: float = 0.0,
        global_dropout: float | None = None,
        pooling: Literal["mean", "sum", "max"] = "mean",
    ):
        nn.Module.__init__(self)
        check_choices(level=level, attention=attention, version=version, local_layer=local_layer, pooling=pooling)
        check_sizes(attention, hidden_dim, num_heads, num_local_layers, num_global_layers)
        if beta not in ("sigmoid", "raw", "constant"):
            raise ValueError(f"beta={beta!r} is unknown; known: sigmoid, raw, constant")
        if (beta_init is None) != (beta == "sigmoid"):
            raise ValueError(
                f"beta={beta!r} with beta_init={beta_init}: the start is given for 'raw' and 'constant', and drawn "
                "for 'sigmoid'"
            )
        if not input_layer and (attention == "global" or not isinstance(in_dim, int)):
            raise ValueError(
                "without input_layer the first local layer reads continuous features: attention must not be 'global', "
                "in_dim an int"
            )
        self.level, self.attention, self.version, self.pooling = level, attention, version, pooling
        self.phase = self.phases[-1]
        both = attention == "local-to-global"

        def make_beta(num_layers: int) -> nn.Module:
            if beta == "sigmoid":
                return Beta(hidden_dim, num_layers)
            return (RawBeta if beta == "raw" else ConstantBeta)(hidden_dim, beta_init)

        self.input = FeatureEncoder(in_dim, hidden_dim, dropout=in_dropout) if input_layer else None
        self.in_dropout, self.dropout = None if input_layer else Dropout(in_dropout), Dropout(dropout)
        widths = [hidden_dim if input_layer else in_dim] + [hidden_dim] * (num_local_layers - 1)
        self.local_layers = nn.ModuleList(
            ReleasedLocalLayer(
                width,
                hidden_dim,
                local=neighbours(local_layer, num_heads),
                beta=make_beta(num_local_layers),
                relu=relu,
                norm=True,
                dropout=dropout,
                parallel=Attention(width, hidden_dim, num_heads, True, with_value=False)
                if attention == "local-and-global"
                else None,
                pre_norm=pre_norm,
                batch_norm=batch_norm,
            )
            for width in ([] if attention == "global" else widths)
        )
        self.between_norm = nn.LayerNorm(hidden_dim) if both else None
        global_dropout = dropout if global_dropout is None else global_dropout
        self.global_layers = nn.ModuleList(
            ReleasedGlobalLayer(hidden_dim, num_heads, make_beta(num_global_layers), relu, True, global_dropout)
            for _ in range(num_global_layers if "global" in self.phases else 0)
        )
        self.global_output = nn.Linear(hidden_dim, hidden_dim) if "global" in self.phases else None
        self.head = nn.Linear(hidden_dim, out_dim)
        self.local_head = nn.Linear(hidden_dim, out_dim) if both else None

    def embed(self, x: Tensor) -> Tensor:
        """The input layer with its dropouts, [N, in_dim] -> [N, d]; without it the features themselves, [N, in_dim]."""
        if self.input is not None:
            return super().embed(x)
        # large_graph_exp/ has no input layer
        return self.in_dropout((x.to_dense() if x.is_sparse_csr else x).to(dtype_of(self)))

    def global_module(self, x: Tensor, batch: GraphBatch, v2: Tensor | None) -> Tensor:
        """LayerNorm of the local module's output, then the global layers: [N, d] -> [N, d]."""
        x = x if self.between_norm is None else self.between_norm(x)
        for layer in self.global_layers:
            x = layer(x, batch, v2, self.global_output)
        return x

    def forward_head(self, features: Tensor, batch: GraphBatch) -> Tensor:
        """As in `Polynormer`, with a separate head in the local phase."""
        # the local phase trains a separate head (pred_local)
        return self.predict(
            features, batch, self.local_head if self.phase == "local" and self.local_head else self.head
        )
