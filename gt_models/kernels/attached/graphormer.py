"""Graphormer's attention without padding."""

from torch import Tensor, nn

from gt_models.baselines.graphormer import BiasedAttention
from gt_models.batch import GraphBatch
from gt_models.kernels.dispatch import Form, attach, reads
from gt_models.kernels.dropout import draw_seed
from gt_models.kernels.gated_attention import gated_attention
from gt_models.kernels.row_linear import row_linear
from gt_models.layers.pair_dropout import PairDropout

BOTH = ("cpu", "cuda")


def attention(layer: BiasedAttention, x: Tensor, bias: Tensor, tokens: GraphBatch) -> Tensor:
    """`BiasedAttention.forward`."""
    rate = layer.dropout.active_rate
    seed = draw_seed() if rate else None
    qkv = row_linear(x, layer.qkv.weight, layer.qkv.bias)
    heads = gated_attention(qkv, bias, layer.num_heads, tokens, layer.scale, 0.0, rate, seed)
    return row_linear(heads, layer.out.weight, layer.out.bias)


def _attention_why_not(layer: BiasedAttention, *_: object) -> str | None:
    return reads(layer, {"qkv": nn.Linear, "out": nn.Linear, "dropout": PairDropout})


attach(
    BiasedAttention, "forward", "graphormer_attention", [Form("by graph", lambda: attention, _attention_why_not, BOTH)]
)
