"""Linear maps of the transformer encoder, on the CPU by oneDNN, and only those rows of the weights that are needed."""

from torch import Tensor, nn
from torch.nn import functional as F

from gt_models.kernels.dispatch import Form, attach, reads
from gt_models.kernels.multi_linear import linear
from gt_models.layers.packing import Packing
from gt_models.layers.transformer import EncoderLayer, SelfAttention

BOTH = ("cpu", "cuda")


def feed_forward(layer: EncoderLayer, x: Tensor) -> Tensor:
    """`EncoderLayer.feed_forward`."""
    branch = layer.activation_dropout(F.gelu(_map(layer.ffn_in, layer.ffn_norm(x))))
    return layer.dropout(_map(layer.ffn_out, branch))


def project(attention: SelfAttention, x: Tensor, packing: Packing, first_only: bool) -> tuple[Tensor | None, Tensor]:
    """`SelfAttention.project`: queries of the first tokens alone."""
    if not first_only:
        return None, _map(attention.qkv, x)
    d, weight, bias = x.size(1), attention.qkv.weight, attention.qkv.bias
    query = F.linear(x.index_select(0, packing.first), weight[:d], bias[:d])  # [B, d]
    return query, linear(x, weight[d:], bias[d:])


def project_one(attention: SelfAttention, x: Tensor, which: int) -> Tensor:
    """`SelfAttention.project_one`: a third of the product."""
    weight, bias = (p.chunk(3)[which] for p in (attention.qkv.weight, attention.qkv.bias))
    return linear(x, weight, bias)


def _map(layer: nn.Linear, x: Tensor) -> Tensor:
    return linear(x, layer.weight, layer.bias)


def _feed_forward_why_not(layer: EncoderLayer, x: Tensor) -> str | None:
    return reads(layer, {"ffn_in": nn.Linear, "ffn_out": nn.Linear})


def _qkv_why_not(attention: SelfAttention, *_: object) -> str | None:
    return reads(attention, {"qkv": nn.Linear})


attach(
    EncoderLayer,
    "feed_forward",
    "encoder_feed_forward",
    [Form("linear maps", lambda: feed_forward, _feed_forward_why_not, BOTH)],
)
attach(SelfAttention, "project", "attention_projection", [Form("linear maps", lambda: project, _qkv_why_not, BOTH)])
attach(
    SelfAttention,
    "project_one",
    "attention_projection_of_one",
    [Form("linear maps", lambda: project_one, _qkv_why_not, BOTH)],
)
