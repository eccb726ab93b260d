"""The GNNs of the heterophilous benchmark (Platonov et al., ICLR 2023, https://arxiv.org/abs/2302.11640).

Pre-norm residual layers around each kind of neighbourhood aggregation. Three of them separate the vector of a node from
those of its neighbours ("sep").
"""

# mypy: disable-error-code="arg-type, union-attr"

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from gt_models.batch import GraphBatch
from gt_models.kernels.neighbour_sum import neighbour_sum
from gt_models.layers.csr import Edges, csr_edges, rows_of
from gt_models.layers.edge_softmax import edge_softmax, sum_over_edges
from gt_models.layers.features import FeatureEncoder
from gt_models.layers.graph_model import GraphModel
from gt_models.registry import register_model

LAYERS = ("resnet", "gcn", "sage", "gat", "gat-sep", "gt", "gt-sep")
NORMS = {"none": nn.Identity, "layer": nn.LayerNorm, "batch": nn.BatchNorm1d}


@register_model(
    "heterophilous-gnn",
    levels=("node",),
    cost="m d + n d^2",
    encodings=(),
    paper="Platonov et al.: A Critical Look at the Evaluation of GNNs under Heterophily: Are We Really Making "
    "Progress?, ICLR 2023. https://arxiv.org/abs/2302.11640",
    sparse_x=True,
)
class HeterophilousGNN(GraphModel):
    """Node [N, out_dim]: x <- x + aggregate(norm(x)), `num_layers` times, then norm and Linear.

    "gt" and "gt-sep" also have x <- x + FFN(norm(x)) in each layer.

    aggregate, with FFN a layer of GELU as wide as the nodes:

        resnet   FFN(x)                                gcn      FFN(D^-1/2 A D^-1/2 x)
        sage     FFN([x, mean of neighbours])          gat      FFN(attention(W x))
        gat-sep  FFN([W x, attention(W x)])            gt       Linear(dot-product attention of neighbours)
        gt-sep   Linear([x, dot-product attention])

    In "gcn", "gat" and "gt" a node is its own neighbour, exactly once. Attention holds messages of [E, hidden_dim] per
    layer.

    Args:
        in_dim: width of continuous node features, or vocabulary sizes of categorical columns.
        out_dim: classes.
        level: "node".
        layer: one of the seven above.
        hidden_dim: width of all layers.
        num_layers: aggregations.
        num_heads: of attention; must divide `hidden_dim`.
        dropout: after the input layer and after each Linear of an FFN and of "gt".
        normalisation: "layer", "batch" or "none".

    Raises:
        ValueError: an unknown layer, normalisation or level, no layer, or heads that do not divide the width.
    """

    def __init__(
        self,
        in_dim: int | Sequence[int],
        out_dim: int,
        level: Literal["node"] = "node",
        layer: Literal["resnet", "gcn", "sage", "gat", "gat-sep", "gt", "gt-sep"] = "gat-sep",
        hidden_dim: int = 512,
        num_layers: int = 5,
        num_heads: int = 8,
        dropout: float = 0.2,
        normalisation: Literal["none", "layer", "batch"] = "layer",
    ):
        super().__init__()
        if level != "node":
            raise ValueError(f"heterophilous-gnn cannot predict at level {level!r}; it predicts: node")
        if layer not in LAYERS:
            raise ValueError(f"unknown layer {layer!r}; known: {', '.join(LAYERS)}")
        if normalisation not in NORMS:
            raise ValueError(f"unknown normalisation {normalisation!r}; known: {', '.join(NORMS)}")
        if num_layers < 1:
            raise ValueError(f"heterophilous-gnn needs at least one layer, not {num_layers}")
        if num_heads < 1 or hidden_dim % num_heads:
            raise ValueError(
                f"hidden_dim {hidden_dim} does not split into {num_heads} heads: choose a multiple of num_heads"
            )
        self.self_loops = layer in ("gcn", "gat", "gt")
        self.encoder = FeatureEncoder(in_dim, hidden_dim)
        self.activation = nn.Sequential(nn.Dropout(dropout), nn.GELU())
        self.layers = nn.ModuleList()
        for _ in range(num_layers):
            if layer.startswith("gt"):
                self.layers.append(DotProductAttention(hidden_dim, num_heads, dropout, separate=layer == "gt-sep"))
                self.layers.append(FeedForward(hidden_dim, dropout))
            elif layer.startswith("gat"):
                self.layers.append(GraphAttention(hidden_dim, num_heads, dropout, separate=layer == "gat-sep"))
            else:
                self.layers.append(
                    {"resnet": FeedForward, "gcn": GraphConvolution, "sage": MeanAndSelf}[layer](hidden_dim, dropout)
                )
        self.norms = nn.ModuleList(NORMS[normalisation](hidden_dim) for _ in range(len(self.layers) + 1))
        self.head = nn.Linear(hidden_dim, out_dim)

    def reset_parameters(self) -> None:
        for module in [self.encoder, *self.layers, *self.norms, self.head]:
            if not isinstance(module, nn.Identity):
                module.reset_parameters()

    def forward_features(self, batch: GraphBatch) -> Tensor:
        """Nodes after the last layer, [N, d]."""
        edges = csr_edges(batch, self.self_loops)
        x = self.activation(self.encoder(batch.x))  # [N, d]
        for norm, layer in zip(self.norms, self.layers, strict=False):
            x = x + layer(norm(x), edges)
        return self.norms[-1](x)

    def forward_head(self, features: Tensor, batch: GraphBatch) -> Tensor:
        """[N, d] -> [N, out_dim]."""
        return self.head(features)


class FeedForward(nn.Module):
    """Linear, dropout, GELU, Linear, dropout: [N, in_dim] -> [N, dim]; edges are not used."""

    def __init__(self, dim: int, dropout: float, in_dim: int | None = None):
        super().__init__()
        self.hidden, self.out = nn.Linear(in_dim or dim, dim), nn.Linear(dim, dim)
        self.dropout, self.activation = nn.Dropout(dropout), nn.GELU()

    def reset_parameters(self) -> None:
        self.hidden.reset_parameters()
        self.out.reset_parameters()

    def forward(self, x: Tensor, edges: Edges | None = None) -> Tensor:
        """Nodes [N, in_dim] -> [N, dim]; `edges`: for the layers that read them."""
        return self.dropout(self.out(self.activation(self.dropout(self.hidden(x)))))


class GraphConvolution(FeedForward):
    """FFN(sum_j x_j / sqrt(d_i d_j)), d counting the edges that leave a node."""

    def forward(self, x: Tensor, edges: Edges | None = None) -> Tensor:
        scale = edges.out_degree.to(_full(x)).rsqrt()  # at least one each: the self-loop
        return super().forward(_sum(x, scale[edges.target] * scale[edges.csr[1]], edges))


class MeanAndSelf(FeedForward):
    """FFN([x, mean of the neighbours' x]); the mean over none is 0."""

    def __init__(self, dim: int, dropout: float):
        super().__init__(dim, dropout, 2 * dim)

    def forward(self, x: Tensor, edges: Edges | None = None) -> Tensor:
        weight = edges.in_degree.to(_full(x)).reciprocal()[edges.target]
        return super().forward(torch.cat([x, _sum(x, weight, edges).to(x.dtype)], 1))


class GraphAttention(nn.Module):
    """FFN of attention over neighbours, [N, dim] -> [N, dim]; with `separate` also of the node's own vector.

    As GAT, but a head's scores read all channels of a node, not the head's own, and the sender's have a bias.
    """

    def __init__(self, dim: int, num_heads: int, dropout: float, separate: bool):
        super().__init__()
        self.num_heads, self.separate = num_heads, separate
        self.linear = nn.Linear(dim, dim)
        self.source, self.target = nn.Linear(dim, num_heads), nn.Linear(dim, num_heads, bias=False)
        self.feed_forward = FeedForward(dim, dropout, 2 * dim if separate else dim)

    def reset_parameters(self) -> None:
        for module in (self.linear, self.source, self.target, self.feed_forward):
            module.reset_parameters()

    def forward(self, x: Tensor, edges: Edges) -> Tensor:
        """Nodes [N, dim] -> [N, dim]."""
        x = self.linear(x)
        row, col = _ends(edges)
        # the authors interleave the channels of heads; side by side is the same up to the order of channels that the
        # Linears learn
        scores = nn.functional.leaky_relu(self.source(x)[col] + _padded(self.target(x))[row], 0.2)  # [E, H]
        message = _attend(scores, x.unflatten(1, (self.num_heads, -1)), row, col)  # [N, d]
        return self.feed_forward(torch.cat([x, message], 1) if self.separate else message)


class DotProductAttention(nn.Module):
    """Linear of dot-product attention over neighbours, [N, dim] -> [N, dim].

    `separate`: the Linear also reads the node's own vector.
    """

    def __init__(self, dim: int, num_heads: int, dropout: float, separate: bool):
        super().__init__()
        self.num_heads, self.separate = num_heads, separate
        self.query, self.key, self.value = (nn.Linear(dim, dim) for _ in range(3))
        self.out, self.dropout = nn.Linear(2 * dim if separate else dim, dim), nn.Dropout(dropout)

    def reset_parameters(self) -> None:
        for module in (self.query, self.key, self.value, self.out):
            module.reset_parameters()

    def forward(self, x: Tensor, edges: Edges) -> Tensor:
        """Nodes [N, dim] -> [N, dim]."""
        row, col = _ends(edges)
        # as the authors have it: the vector of the sender is the query, that of the receiver the key
        query, key, value = (
            linear(x).unflatten(1, (self.num_heads, -1)) for linear in (self.query, self.key, self.value)
        )  # [N, H, C]
        scores = (query[col] * _padded(key)[row]).sum(-1) * query.size(-1) ** -0.5  # [E, H]
        message = _attend(scores, value, row, col)  # [N, d]
        return self.dropout(self.out(torch.cat([x, message], 1) if self.separate else message))


def _attend(scores: Tensor, value: Tensor, row: Tensor, col: Tensor) -> Tensor:
    """Softmax of the scores [E, H] over the edges of each target, then the sum of value [N, H, C] by it: [N, H * C]."""
    weight = edge_softmax(scores, row, len(value))
    messages = weight[..., None] * value[col].to(weight.dtype)  # [E, H, C]
    return sum_over_edges(messages, row, len(value)).flatten(1).to(value.dtype)


def _sum(x: Tensor, weight: Tensor, edges: Edges) -> Tensor:
    """sum_j w_ij x_j [N, d], under autocast in float32."""
    with torch.autocast(x.device.type, enabled=False):
        return neighbour_sum(x.to(weight.dtype), weight, *edges.csr)


def _ends(edges: Edges) -> tuple[Tensor, Tensor]:
    """Target and source of each edge, long [E]; an edge that was dropped has the target N."""
    ptr, col, *_ = edges.csr
    return rows_of(ptr, col.numel()), col.long()


def _padded(x: Tensor) -> Tensor:
    """With a row of zeros for the target that is no node."""
    return torch.cat([x, torch.zeros_like(x[:1])])


def _full(x: Tensor) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float64 else torch.float32
