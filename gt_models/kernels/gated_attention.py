"""Attention with a pair bias and a gate (PPGT, Section 3.2, Eqs. 2, 4 and 5), https://arxiv.org/abs/2504.12588.

    w_ij = gate_ij softmax_j( c <q_i, k_j> + s |k_j|^2 + bias_ij )     out_i = sum_j w_ij v_j

per head, over the nodes j of the graph of i.

c = 1 / sqrt(d) and s = -1 / (2 sqrt(d)) is simplified L2 attention: up to a constant per query the logit is
-|q_i - k_j|^2 / (2 sqrt(d)).
s = 0 is scaled dot-product attention.
"""

import torch
from torch import Tensor

from gt_models.batch import GraphBatch
from gt_models.kernels.dispatch import Form, Operation
from gt_models.layers.pair_dropout import kept_pairs


def reference(
    qkv: Tensor,
    pairs: Tensor,
    num_heads: int,
    batch: GraphBatch,
    scale: float,
    key_scale: float,
    dropout: float,
    seed: Tensor | None,
) -> Tensor:
    """Queries, keys and values of all nodes [N, 3 d], heads side by side in each -> [N, d].

    Args:
        qkv: queries, keys and values side by side.
        pairs: the bias of each head, then the gate of each head, on the flat pairs of the batch, query before key: [P,
            2 H], or [P, H] without gate.
        num_heads: H.
        batch: of which only the sizes of the graphs are read.
        scale: c above.
        key_scale: s above.
        dropout: rate at which single weights are dropped, after the gate.
        seed: long [1], decides which weights are dropped, see `PairDropout`; None drops nothing.

    It allocates padded weights, [B, H, n, n].
    """
    q, k, v = (
        batch.to_dense(qkv).unflatten(2, (3, num_heads, -1)).permute(2, 0, 3, 1, 4).contiguous()
    )  # [B, H, n, d / H]
    bias, *gate = (t.permute(0, 3, 1, 2) for t in batch.pairs_to_dense(pairs).split(num_heads, -1))  # [B, H, n, n]
    scores = scale * q @ k.mT + bias
    if key_scale:
        scores = scores + (key_scale * k.square().sum(-1))[..., None, :]
    weights = scores.masked_fill(~batch.node_mask[:, None, None], -torch.inf).softmax(-1)
    if gate:
        weights = weights * gate[0]
    if seed is not None:
        keep = kept_pairs(seed.to(qkv.device, non_blocking=True), len(pairs), num_heads, dropout).to(weights.dtype)
        weights = weights * batch.pairs_to_dense(keep).permute(0, 3, 1, 2) / (1.0 - dropout)
    return batch.from_dense((weights.to(v.dtype) @ v).transpose(1, 2).flatten(2))


def _example(qkv: Tensor, pairs: Tensor, num_heads: int, batch: GraphBatch, *rest) -> tuple[tuple, dict]:
    """Graphs of 5, 1 and 35 nodes."""
    small = GraphBatch(torch.zeros(41, 1), torch.zeros(2, 0, dtype=torch.long), torch.tensor([0, 5, 6, 41])).to(
        qkv.device
    )
    shapes = (41, qkv.size(1)), (small.num_pairs, pairs.size(1))
    drawn = (torch.randn(shape, dtype=qkv.dtype).to(qkv.device).requires_grad_() for shape in shapes)
    return (*drawn, num_heads, small, *rest), {}


def _triton_why_not(qkv: Tensor, *_: object) -> str | None:
    return None if qkv.is_cuda else f"runs on cuda, not on {qkv.device.type}"


def _numba():
    from gt_models.kernels.gated_attention_numba import gated_attention

    return gated_attention


def _triton():
    from gt_models.kernels.gated_attention_triton import gated_attention

    return gated_attention


gated_attention = Operation(
    "gated_attention",
    reference,
    [Form("numba", _numba), Form("triton", _triton, _triton_why_not, ("cuda", "cpu"))],  # the seed is on the CPU
    _example,
)
