"""GRIT's attention without tensors of pairs but its inputs and e."""

import torch
from torch import Tensor, nn

from gt_models.baselines.grit import GRITAttention
from gt_models.batch import GraphBatch
from gt_models.kernels.dispatch import Form, attach, reads
from gt_models.kernels.dropout import draw_seed
from gt_models.kernels.grit_attention import grit_attention
from gt_models.kernels.multi_linear import linear
from gt_models.layers.dropout import Dropout


def attention(layer: GRITAttention, x: Tensor, pairs: Tensor, batch: GraphBatch) -> tuple[Tensor, Tensor]:
    """`GRITAttention.forward`."""
    # Ew of all heads, then Eb: the rows of `pair` lie head by head
    weight, bias = (
        p.unflatten(0, (layer.num_heads, 2, -1)).transpose(0, 1).flatten(0, 2)
        for p in (layer.pair.weight, layer.pair.bias)
    )
    pair = linear(pairs, weight, bias).view(-1, 2, layer.num_heads, layer.head_dim)  # [P, 2, H, d_h]
    q, k, v = (part(x).view(-1, layer.num_heads, layer.head_dim) for part in (layer.query, layer.key, layer.value))
    rate = layer.dropout.active_rate
    seed = draw_seed() if rate else None
    total, e = grit_attention(q, k, v, pair, layer.logit, batch, layer.clamp, rate, seed)  # [N, H, 2, d_h], [P, H, d_h]
    o, row = total.unbind(2)
    return (o + torch.einsum("nhc,hcd->nhd", row, layer.pair_value)).flatten(1), e.flatten(1)


def _attention_why_not(layer: GRITAttention, *_: object) -> str | None:
    linear = {name: nn.Linear for name in ("query", "key", "value", "pair")}
    return reads(layer, linear | {"dropout": Dropout})


attach(GRITAttention, "forward", "grit_attention_and_maps", [Form("by query", lambda: attention, _attention_why_not)])
