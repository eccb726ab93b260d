"""Fast forms of PPGT: bias and gate of all layers as one product, attention without padding, norms and MLPs fused."""

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from gt_models.batch import GraphBatch
from gt_models.kernels.ada_rms import ada_rms
from gt_models.kernels.dispatch import Form, attach, differs, reads
from gt_models.kernels.dropout import draw_seed
from gt_models.kernels.gated_attention import gated_attention
from gt_models.kernels.gelu_mlp import gelu_mlp
from gt_models.kernels.multi_linear import linear
from gt_models.layers.pair_dropout import PairDropout
from gt_models.ppgt import Backbone, PPGTLayer, SL2Attention
from gt_models.ppgt.norms import AdaRMSNorm
from gt_models.ppgt.stem import PairStem, PreNormFFN
from gt_models.released.ppgt import PrintedStartStem, ReleasedAttention, ReleasedStem

BOTH = ("cpu", "cuda")
ATTENTIONS = (SL2Attention, ReleasedAttention)
STEMS = (PairStem, ReleasedStem, PrintedStartStem)
LARGE, CHUNK = 2**18, 2**14  # pairs from which a stem stores its inputs only, and how many it computes at a time


# -- attention -------------------------------------------------------------------------------------------------------


def backbone(layers: Backbone, x: Tensor, p: Tensor, batch: GraphBatch) -> Tensor:
    """`Backbone.forward`: theta and phi of all layers are linear in the same p."""
    attentions: list[SL2Attention] = [layer.attention for layer in layers]  # type: ignore[misc]
    weight = torch.cat([attention.pair_linear.weight for attention in attentions])
    pairs = linear(p, weight, _pair_bias(attentions))  # [P, L G H]
    for layer, attention, part in zip(layers, attentions, pairs.chunk(len(layers), 1), strict=True):
        x = layer.add(x, attention.attend(layer.norm1(x), part, batch), batch)  # type: ignore[operator]
    return x


def _pair_bias(attentions: list[SL2Attention]) -> Tensor:
    """Biases of theta and phi of all layers, [L G H]; the released gate is 1 + phi."""
    biases, first = torch.cat([attention.pair_linear.bias for attention in attentions]), attentions[0]
    if type(first) is not ReleasedAttention or not first.urpe:
        return biases
    gates = torch.arange(len(biases), device=biases.device) // first.num_heads % 2  # 0 for theta, 1 for phi
    return biases + gates


def _backbone_why_not(layers: Backbone, *_: object) -> str | None:
    if not layers:
        return "no layers"
    children: dict[str, type | tuple[type, ...]] = {}
    for i in range(len(layers)):
        children |= {f"{i}": PPGTLayer, f"{i}.attention": ATTENTIONS, f"{i}.attention.pair_linear": nn.Linear}
    if reason := reads(layers, children):
        return reason
    attentions: list[SL2Attention] = [layer.attention for layer in layers]  # type: ignore[misc]
    kinds = {(type(attention), attention.num_heads, attention.urpe) for attention in attentions}
    return "layers differ" if len(kinds) > 1 else None


def heads(layer: SL2Attention, qkv: Tensor, pairs: Tensor, batch: GraphBatch) -> Tensor:
    """`SL2Attention.heads`."""
    rate = layer.dropout.active_rate
    seed = draw_seed() if rate else None
    return gated_attention(qkv, pairs, layer.num_heads, batch, layer.scale, layer.key_scale, rate, seed)


def _heads_why_not(layer: SL2Attention, *_: object) -> str | None:
    return reads(layer, {"dropout": PairDropout})


attach(Backbone, "forward", "ppgt_bias_and_gate", [Form("one product", lambda: backbone, _backbone_why_not, BOTH)])
for attention in ATTENTIONS:
    name = "ppgt_attention" if attention is SL2Attention else "ppgt_released_attention"
    attach(attention, "heads", name, [Form("by graph", lambda: heads, _heads_why_not, BOTH)])


# -- norms and MLPs --------------------------------------------------------------------------------------------------


def normalise(norm: AdaRMSNorm, x: Tensor) -> Tensor:
    """`AdaRMSNorm.normalise`."""
    return ada_rms(x, norm.alpha, norm.beta, norm.eps)


def mlp(module: nn.Module, x: Tensor) -> Tensor:
    """`PairStem.mlp` and `PreNormFFN.mlp`."""
    first, second = module.linear1, module.linear2
    return gelu_mlp(x, first.weight, first.bias, second.weight, second.bias)  # type: ignore[union-attr]


def _mlp_why_not(module: nn.Module, x: Tensor) -> str | None:
    return reads(module, {"linear1": nn.Linear, "linear2": nn.Linear})


attach(AdaRMSNorm, "normalise", "ppgt_norm", [Form("one pass", lambda: normalise, devices=BOTH)])
for owner, name in ((PreNormFFN, "ppgt_stem_ffn"), *((stem, f"ppgt_mlp_of_{stem.__name__}") for stem in STEMS)):
    attach(owner, "mlp", name, [Form("one pass", lambda: mlp, _mlp_why_not)])


# -- memory of many pairs --------------------------------------------------------------------------------------------


def in_chunks(stem: PairStem, raw: Tensor, edge: Tensor | None = None, keep: Tensor | None = None) -> Tensor:
    """`PairStem.forward`: stores what goes in, and computes each chunk of pairs again in the backward pass."""
    given: dict[str, Tensor] = dict(
        stem.named_parameters()
    )  # of this call: a functional call has ended when the backward pass begins

    def rows(*part: Tensor | None) -> Tensor:
        return torch.func.functional_call(stem, given, part)

    chunks = zip(
        *([None] * -(-len(raw) // CHUNK) if t is None else t.split(CHUNK) for t in (raw, edge, keep)), strict=True
    )
    return torch.cat([checkpoint(rows, *part, use_reentrant=False, preserve_rng_state=False) for part in chunks])


def _in_chunks_why_not(stem: PairStem, raw: Tensor, *_: object) -> str | None:
    if len(raw) <= LARGE:
        return f"at most {LARGE} pairs: storing all is faster"
    if any(isinstance(module, nn.BatchNorm1d) for module in stem.modules()):
        return "batch norm reads all pairs"
    # hooks of the stem itself would see chunks
    children = {name: type(module) for name, module in stem.named_modules() if name}
    return differs("the stem", stem, type(stem)) or reads(stem, children)


for stem in STEMS:
    attach(
        stem,
        "forward",
        f"ppgt_pairs_of_{stem.__name__}",
        [Form("in chunks", lambda: in_chunks, _in_chunks_why_not, BOTH)],
    )
