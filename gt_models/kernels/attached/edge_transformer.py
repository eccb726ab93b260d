"""The Edge Transformer's maps of pairs by oneDNN on the CPU; triangular attention without a tensor of triples."""

import torch
from torch import Tensor, nn

from gt_models.batch import GraphBatch
from gt_models.edge_transformer import FeedForward, Triangles, TriangularAttention
from gt_models.kernels.dispatch import Form, attach, differs, reads
from gt_models.kernels.gelu_mlp import gelu_mlp
from gt_models.kernels.multi_linear import linear, too_small
from gt_models.kernels.triangular_attention import triangular_attention
from gt_models.layers.dropout import Dropout
from gt_models.layers.dropout_hash import draw_seed
from gt_models.layers.triple_dropout import TripleDropout


def attention(layer: TriangularAttention, x: Tensor, batch: GraphBatch) -> Tensor:
    """`TriangularAttention.forward`."""
    heads = layer.heads(linear(x, layer.projections.weight), batch)
    return linear(heads, layer.out.weight)


def _attention_why_not(layer: TriangularAttention, x: Tensor, batch: GraphBatch) -> str | None:
    return reads(layer, {"projections": nn.Linear, "out": nn.Linear}) or too_small(x, layer.out.weight, None)


def feed_forward(layer: FeedForward, x: Tensor) -> Tensor:
    """`FeedForward.forward`."""
    (hidden, out), drops = (layer.hidden, layer.out), layer.dropout.active_rate > 0
    exact = not differs("activation", layer.activation, nn.GELU) and layer.activation.approximate == "none"
    if exact and not drops:
        return gelu_mlp(x, hidden.weight, hidden.bias, out.weight, out.bias)
    inside = layer.dropout(layer.activation(linear(x, hidden.weight, hidden.bias)))
    return linear(inside, out.weight, out.bias)


def _feed_forward_why_not(layer: FeedForward, x: Tensor) -> str | None:
    return reads(layer, {"hidden": nn.Linear, "out": nn.Linear, "dropout": Dropout}) or too_small(
        x, layer.hidden.weight, None
    )


def triangles(module: Triangles, x: Tensor, batch: GraphBatch, fusion_norm: nn.Module | None = None) -> Tensor:
    """`Triangles.forward`."""
    rate = module.dropout.active_rate
    seed = draw_seed() if rate else torch.zeros(1, dtype=torch.long)
    return triangular_attention(x, batch, seed, rate, fusion_norm)


def _triangles_why_not(module: Triangles, *_: object) -> str | None:
    return reads(module, {"dropout": TripleDropout})


attach(
    TriangularAttention, "forward", "triangular_attention_maps", [Form("oneDNN", lambda: attention, _attention_why_not)]
)
attach(FeedForward, "forward", "pair_feed_forward", [Form("oneDNN", lambda: feed_forward, _feed_forward_why_not)])
attach(
    Triangles, "forward", "triangles",
    [Form("no triples", lambda: triangles, _triangles_why_not, ("cpu", "cuda"))],
)  # fmt: skip
