"""Attention with a pair bias and a gate (PPGT, Section 3.2, Eqs. 2, 4 and 5), https://arxiv.org/abs/2504.12588.

    w_ij = gate_ij softmax_j( c <q_i, k_j> + s |k_j|^2 + bias_ij )     out_i = sum_j w_ij v_j     per head, over the nodes j of i's graph

c = 1 / sqrt(d) and s = -1 / (2 sqrt(d)) is simplified L2 attention: up to a constant per query the logit is -|q_i - k_j|^2 / (2 sqrt(d)).
s = 0 is scaled dot-product attention.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from gt_models.batch import GraphBatch
from gt_models.kernels.dispatch import Form, Operation
from gt_models.kernels.dropout import kept_at


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
        pairs: bias of each head, and beside it the gates, over the flat pairs of the batch, P = sum n_b^2, query before key: [P, 2 H], or
            [P, H] where there is no gate.
        num_heads: H.
        batch: which nodes belong together.
        scale, key_scale: c and s above.
        dropout: rate at which single weights are dropped, after the gate.
        seed: long [1]: on the CPU which ones is a hash of it, the pair and the head. Elsewhere the device's generator draws them. None: none.

    Holds padded weights, [H, B, n, n].
    """
    graphs, n = batch.num_graphs, batch.max_nodes

    def padded(values: Tensor) -> Tensor:  # [P, H] -> [H, B, n, n]
        rows = values.new_zeros(graphs * n * n, num_heads).index_copy(0, batch.pair_slots, values)
        return rows.t().reshape(num_heads, graphs, n, n)

    shape = (graphs, n, 3, num_heads, qkv.size(1) // (3 * num_heads))
    q, k, v = batch.to_dense(qkv).view(shape).permute(2, 3, 0, 1, 4).contiguous().unbind(0)  # [H, B, n, d / H] each
    logits = torch.matmul(q * scale, k.transpose(2, 3)) + padded(pairs[:, :num_heads])  # [H, B, n, n]
    if key_scale:
        logits = logits + (key_scale * k.square().sum(-1))[:, :, None]
    weights = logits.masked_fill(~batch.node_mask[:, None], -torch.inf).softmax(-1)
    if pairs.size(1) > num_heads:
        weights = weights * padded(pairs[:, num_heads:])
    if seed is not None and qkv.device.type == "cpu":
        weights = weights * padded(kept(seed, len(pairs), num_heads, dropout).to(weights.dtype)) / (1.0 - dropout)
    elif seed is not None:
        weights = F.dropout(weights, dropout)
    y = torch.matmul(weights.to(v.dtype), v)  # [H, B, n, d / H]
    return batch.from_dense(y.permute(1, 2, 0, 3).flatten(2))


def kept(seed: Tensor, num_pairs: int, num_heads: int, rate: float) -> Tensor:
    """Which weights stay, bool [P, H]."""
    return kept_at(seed, torch.arange(num_pairs * num_heads), rate).view(num_pairs, num_heads)


def _example(qkv: Tensor, pairs: Tensor, num_heads: int, batch: GraphBatch, *rest) -> tuple[tuple, dict]:
    """Graphs of 5, 1 and 35 nodes."""
    small = GraphBatch(torch.zeros(41, 1), torch.zeros(2, 0, dtype=torch.long), torch.tensor([0, 5, 6, 41])).to(
        qkv.device
    )
    shapes = (41, qkv.size(1)), (small.num_pairs, pairs.size(1))
    drawn = (torch.randn(shape, dtype=qkv.dtype).to(qkv.device).requires_grad_() for shape in shapes)
    return (*drawn, num_heads, small, *rest), {}


def _numba():
    from gt_models.kernels.gated_attention_numba import gated_attention

    return gated_attention


gated_attention = Operation("gated_attention", reference, [Form("numba", _numba)], _example)
