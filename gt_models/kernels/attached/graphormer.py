"""Graphormer's attention without padding."""

from torch import Tensor

from gt_models.baselines.graphormer import BiasedAttention
from gt_models.batch import GraphBatch
from gt_models.kernels.dispatch import Form, attach, reads
from gt_models.kernels.dropout import draw_seed
from gt_models.kernels.gated_attention import gated_attention
from gt_models.layers.pair_dropout import PairDropout


def heads(layer: BiasedAttention, qkv: Tensor, bias: Tensor, tokens: GraphBatch) -> Tensor:
    """`BiasedAttention.heads`."""
    rate = layer.dropout.rate if layer.dropout.training else 0.0
    seed = draw_seed() if rate else None
    return gated_attention(qkv, bias, layer.num_heads, tokens, layer.scale, 0.0, rate, seed)


def _heads_why_not(layer: BiasedAttention, *_: object) -> str | None:
    return reads(layer, {"dropout": PairDropout})


attach(
    BiasedAttention,
    "heads",
    "graphormer_attention",
    [Form("by graph", lambda: heads, _heads_why_not, ("cpu", "cuda"))],
)
