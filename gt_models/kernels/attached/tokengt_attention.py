"""TokenGT's attention layer for basis tensors: maps of nodes in place of maps of tokens."""

from types import NoneType

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gt_models.batch import GraphBatch
from gt_models.kernels.dispatch import Form, attach, reads
from gt_models.kernels.multi_linear import multi_linear
from gt_models.layers.equivariant_basis import equality_pattern
from gt_models.tokengt_attention import TokenGTAttention, places_of

BOTH = ("cpu", "cuda")


def embed(
    model: TokenGTAttention, batch: GraphBatch, tuples: Tensor, mask: Tensor, identifiers: Tensor | None
) -> Tensor:
    """`TokenGTAttention.embed`. Linear maps act on the identifiers of nodes and on kinds, of which a token is a sum."""
    owner, local = places_of(mask)
    pairs, last = tuples[owner, local], model.input_linear  # [M, 2], node ids of their graph

    def mix(t: Tensor) -> Tensor:
        return t if last is None else F.linear(t, last.weight)

    x = model.null_token.new_zeros(owner.numel(), model.null_token.numel())  # [M, d]
    if (encoder := model.identifier_encoder) is not None:
        x = x if encoder.bias is None else x + mix(encoder.bias)
        weight = mix(encoder.weight.t()).t()  # [d, d_p or 2 d_p]: both maps in one
        rows, nodes = model.identifiers(batch, pairs, mask, identifiers)
        if nodes is None:
            x = x + F.linear(rows, weight)
        else:
            for block, at in zip(weight.unflatten(1, (2, -1)).unbind(1), nodes, strict=True):  # [d, d_p], [M]
                x = x + F.linear(rows, block).index_select(0, at)
    if model.type_encoder is not None:
        x = x + mix(model.type_encoder.weight).index_select(0, equality_pattern(pairs))
    x = torch.cat([mix(model.null_token).expand(batch.num_graphs, -1), x])  # [B + M, d]
    return x if last is None else x + last.bias


def queries_and_keys(model: TokenGTAttention, nulls: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """`TokenGTAttention.queries_and_keys` of the heads with a target alone."""
    free = model.num_free_channels
    query, key = ((m.weight[free:], m.bias[free:]) for m in (model.query, model.key))
    q, k = multi_linear(tokens, query[0], key[0], query[1], key[1])
    return multi_linear(nulls, *key)[0], q, k


def _embed_why_not(model: TokenGTAttention, *_: object) -> str | None:
    maybe, kinds = (nn.Linear, NoneType), model.type_encoder
    if isinstance(kinds, nn.Embedding) and (kinds.max_norm, kinds.padding_idx, kinds.scale_grad_by_freq) != (
        None, None, False,
    ):  # fmt: skip
        return "type_encoder does more than to look up rows"
    return reads(model, {"identifier_encoder": maybe, "input_linear": maybe, "type_encoder": (nn.Embedding, NoneType)})


def _queries_why_not(model: TokenGTAttention, *_: object) -> str | None:
    return reads(model, {"query": nn.Linear, "key": nn.Linear})


attach(TokenGTAttention, "embed", "basis_tokens", [Form("maps of nodes", lambda: embed, _embed_why_not, BOTH)])
attach(
    TokenGTAttention,
    "queries_and_keys",
    "basis_queries_and_keys",
    [Form("heads with a target", lambda: queries_and_keys, _queries_why_not, BOTH)],
)
