"""Softmax attention without a tensor of all weights."""

import torch
from torch import Tensor

from gt_models.kernels.dispatch import Form, attach, reads
from gt_models.kernels.packed_attention import packed_attention
from gt_models.layers.dropout_hash import draw_seed
from gt_models.layers.packing import Packing
from gt_models.layers.softmax_attention import SoftmaxAttention, WeightDropout

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def attend(module: SoftmaxAttention, query: Tensor | None, tokens: Tensor, packing: Packing) -> Tensor:
    """`SoftmaxAttention.forward`."""
    rate = module.dropout.active_rate
    seed = draw_seed() if rate else torch.zeros(1, dtype=torch.long)
    return packed_attention(query, tokens, packing, module.num_heads, rate, seed)


def _why_not(module: SoftmaxAttention, *_: object) -> str | None:
    return reads(module, {"dropout": WeightDropout})


attach(
    SoftmaxAttention,
    "forward",
    "softmax_attention",
    [Form("no weights", lambda: attend, _why_not, ("cpu", "cuda"), DTYPES)],
)
