"""Simplified L2 attention with a pair bias and the URPE gate (PPGT, Section 3.2, Eq. 2, 4 and 5), padded and per listed pair.

weight_ij = gate_ij softmax_j( c <q_i, k_j> - |k_j|^2 / (2 sqrt(d)) + bias_ij ): up to a constant per query, c = 1 / sqrt(d) makes the
logit -|q_i - k_j|^2 / (2 sqrt(d)). Everything but the gate is `scaled_dot_product_attention` with a float mask; the gate stands after the
softmax, where no fused kernel reaches, so a gated layer forms the weights.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

AttentionForm = Literal["plain", "in place", "compiled"]  # of a gated layer; the same numbers
MASKED = -1e9  # finite: a row that is all padding stays a number, and so do its gradients


def key_length_bias(k: Tensor) -> Tensor:
    """-|k|^2 / (2 sqrt(d)) of keys [..., d] -> [...] (Eq. 4)."""
    return k.square().sum(-1) * (-0.5 * k.size(-1) ** -0.5)


def dense_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    gate: Tensor | None,
    scale: float,
    simplified_l2: bool,
    mask: Tensor,
    dropout: float = 0.0,
) -> Tensor:
    """Padded form. q [H, B, n, d], k and v [H, B, m, d], bias and gate [H, B, n, m], mask [B, 1 or n, m] (0 or MASKED) -> [H, B, n, d].

    Heads come first: the pair projections of all layers are one matrix product whose rows are heads. `scale` is c above; `dropout` acts
    on the gated weights.
    """
    mask = mask.to(q.dtype)
    if simplified_l2:
        mask = key_length_bias(k)[:, :, None, :] + mask  # [H, B, 1 or n, m]
    mask = mask if bias is None else bias + mask  # [H, B, n, m]
    if gate is None:
        mask = mask.to(q.dtype).expand(*q.shape[:3], k.size(2))
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, scale=scale)
    weights = torch.softmax(torch.matmul(q * scale, k.transpose(2, 3)) + mask, dim=-1) * gate  # [H, B, n, m]
    return torch.matmul(F.dropout(weights, dropout, training=dropout > 0).to(v.dtype), v)


def sparse_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pairs: Sequence[Tensor],
    bias: Tensor | None,
    gate: Tensor | None,
    scale: float,
    simplified_l2: bool,
    dropout: float = 0.0,
) -> Tensor:
    """Per listed pair. q, k, v [N, H, d], pairs (query, key) long [P] each, bias and gate [P, H] -> [N, H, d]; no pair, zeros."""
    query, key = pairs
    logits = (q[query] * k[key]).sum(-1) * scale  # [P, H]
    if simplified_l2:
        logits = logits + key_length_bias(k)[key]
    if bias is not None:
        logits = logits + bias
    index = query[:, None].expand_as(logits)
    top = torch.full_like(q[..., 0], -torch.inf, dtype=logits.dtype).scatter_reduce(0, index, logits.detach(), "amax")  # [N, H]
    weights = (logits - top[query]).exp()
    total = torch.zeros_like(top).index_add(0, query, weights)
    weights = weights / total[query]
    if gate is not None:
        weights = weights * gate
    weights = F.dropout(weights, dropout, training=dropout > 0)
    return torch.zeros_like(v).index_add(0, query, (weights[..., None] * v[key]).to(v.dtype))


class GatedAttentionInPlace(torch.autograd.Function):
    """`dense_attention` with a gate, for bias and gate tensors that belong to this call alone.

    The attention weights of all heads are the largest tensors of a layer, and several of them live at once: here the bias turns into the
    logits and then into the softmax where it lies, and backward puts the gradients of bias and gate in the places of softmax and gate.
    So a layer allocates nothing of that size that outlives it. A second backward through the same graph raises autograd's own error.
    """

    @staticmethod
    def forward(
        ctx, q: Tensor, k: Tensor, v: Tensor, bias: Tensor, gate: Tensor, scale: float, simplified_l2: bool, mask: Tensor, dropout: float
    ) -> Tensor:
        bias.add_(key_length_bias(k)[:, :, None, :] + mask if simplified_l2 else mask)  # [H, B, n, m]
        bias.flatten(0, 1).baddbmm_(q.flatten(0, 1), k.flatten(0, 1).transpose(1, 2), alpha=scale)
        torch.softmax(bias, -1, out=bias)
        weights = bias * gate
        kept = None
        if dropout > 0.0:
            kept = torch.rand_like(weights) >= dropout
            weights.mul_(kept).div_(1.0 - dropout)
        y = torch.matmul(weights, v)
        ctx.save_for_backward(q, k, v, y, bias, gate, kept)
        ctx.scale, ctx.simplified_l2, ctx.dropout = scale, simplified_l2, dropout
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy: Tensor):
        q, k, v, y, softmax, gate, kept = ctx.saved_tensors
        weights = softmax * gate
        dweights = torch.matmul(dy, v.transpose(2, 3))  # [H, B, n, m]
        if kept is None:
            dv = torch.matmul(weights.transpose(2, 3), dy)
        else:
            dweights.mul_(kept).div_(1.0 - ctx.dropout)
            dv = torch.matmul((weights * kept).div_(1.0 - ctx.dropout).transpose(2, 3), dy)
        # softmax' = softmax (dsoftmax - r): with dsoftmax = dweights gate, softmax dsoftmax = weights dweights, whose row sum r is <dy, y>
        r = (dy * y).sum(-1, keepdim=True)  # [H, B, n, 1]
        dgate = torch.mul(dweights, softmax, out=gate)
        dlogits = torch.addcmul(weights.mul_(dweights), softmax, r, value=-1, out=softmax)
        dq = torch.matmul(dlogits, k).mul_(ctx.scale)
        if not ctx.simplified_l2:
            return dq, torch.matmul(dlogits.transpose(2, 3), q).mul_(ctx.scale), dv, dlogits, dgate, None, None, None, None
        # |k|^2 / (2 sqrt(d)) wants the column sums of dlogits: a column of ones beside q brings them along
        sums = torch.matmul(dlogits.transpose(2, 3), torch.cat([q * ctx.scale, torch.ones_like(q[..., :1])], -1))  # [H, B, m, d + 1]
        dk = torch.addcmul(sums[..., :-1], k, sums[..., -1:], value=-(k.size(-1) ** -0.5))
        return dq, dk, dv, dlogits, dgate, None, None, None, None
