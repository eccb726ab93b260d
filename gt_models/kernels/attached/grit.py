"""GRIT's attention without tensors of pairs but its inputs and e."""

import torch
from torch import Tensor, nn

from gt_models.baselines.grit import GRITAttention, GRITLayer
from gt_models.batch import GraphBatch
from gt_models.kernels.dispatch import Form, attach, reads
from gt_models.kernels.dropout import draw_seed
from gt_models.kernels.grit_attention import grit_attention
from gt_models.kernels.multi_linear import multi_linear
from gt_models.kernels.row_linear import row_linear
from gt_models.layers.dropout import Dropout


def attention(layer: GRITAttention, x: Tensor, pairs: Tensor, batch: GraphBatch) -> tuple[Tensor, Tensor]:
    """`GRITAttention.forward`."""
    # Ew of all heads, then Eb: the rows of `pair` lie head by head
    weight, bias = (
        p.unflatten(0, (layer.num_heads, 2, -1)).transpose(0, 1).flatten(0, 2)
        for p in (layer.pair.weight, layer.pair.bias)
    )
    pair = row_linear(pairs, weight, bias).view(-1, 2, layer.num_heads, layer.head_dim)  # [P, 2, H, d_h]
    weights = (layer.query.weight, layer.key.weight, layer.value.weight)
    node_maps = multi_linear(x, *weights, layer.query.bias, None, None)
    q, k, v = (y.view(-1, layer.num_heads, layer.head_dim) for y in node_maps)  # [N, H, d_h]
    rate = layer.dropout.active_rate
    seed = draw_seed() if rate else None
    total, e = grit_attention(q, k, v, pair, layer.logit, batch, layer.clamp, rate, seed)  # [N, H, 2, d_h], [P, H, d_h]
    o, row = total.unbind(2)
    return (o + torch.einsum("nhc,hcd->nhd", row, layer.pair_value)).flatten(1), e.flatten(1)


def _attention_why_not(layer: GRITAttention, *_: object) -> str | None:
    linear = {name: nn.Linear for name in ("query", "key", "value", "pair")}
    return reads(layer, linear | {"dropout": Dropout})


def map_pairs(layer: GRITLayer, e: Tensor) -> Tensor:
    """`GRITLayer.map_pairs`."""
    linear: nn.Linear = layer.pair_out  # type: ignore[assignment]
    return row_linear(e, linear.weight, linear.bias)


def _map_why_not(layer: GRITLayer, e: Tensor) -> str | None:
    return reads(layer, {"pair_out": nn.Linear})


attach(GRITLayer, "map_pairs", "grit_pair_map", [Form("gradients in one pass", lambda: map_pairs, _map_why_not)])
attach(GRITAttention, "forward", "grit_attention_and_maps", [Form("by query", lambda: attention, _attention_why_not)])
