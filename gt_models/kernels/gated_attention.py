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
from gt_models.kernels.dropout import GOLDEN, hash32, threshold


def reference(
    qkv: Tensor, bias: Tensor, gate: Tensor | None, batch: GraphBatch, scale: float, key_scale: float, dropout: float, seed: Tensor
) -> Tensor:
    """Queries, keys and values of all nodes [N, 3 d], heads side by side in each -> [N, d].

    Args:
        bias, gate: [H, P] over the flat pairs of the batch, P = sum n_b^2, query before key; no gate is 1.
        batch: which nodes belong together.
        scale, key_scale: c and s above.
        dropout: rate at which single weights are dropped, after the gate.
        seed: long [1]: on the CPU which ones is a hash of it, the query, the head and the key's place in its graph. Elsewhere the
            device's generator draws them.

    Holds padded weights, [H, B, n, n].
    """
    heads, graphs, n = bias.size(0), batch.num_graphs, batch.max_nodes

    def padded(pairs: Tensor) -> Tensor:  # [H, P] -> [H, B, n, n]
        return pairs.new_zeros(heads, graphs * n * n).index_copy(1, batch.pair_slots, pairs).view(heads, graphs, n, n)

    shape = (graphs, n, 3, heads, qkv.size(1) // (3 * heads))
    q, k, v = batch.to_dense(qkv).view(shape).permute(2, 3, 0, 1, 4).contiguous().unbind(0)  # [H, B, n, d / H] each
    logits = torch.matmul(q * scale, k.transpose(2, 3)) + padded(bias)  # [H, B, n, n]
    if key_scale:
        logits = logits + (key_scale * k.square().sum(-1))[:, :, None]
    weights = logits.masked_fill(~batch.node_mask[:, None], -torch.inf).softmax(-1)
    if gate is not None:
        weights = weights * padded(gate)
    if dropout > 0.0 and qkv.device.type == "cpu":
        nodes = batch.to_dense(torch.arange(batch.num_nodes))  # [B, n]
        weights = weights * kept(seed, nodes, heads, n, dropout) / (1.0 - dropout)
    else:
        weights = F.dropout(weights, dropout)
    y = torch.matmul(weights.to(v.dtype), v)  # [H, B, n, d / H]
    return batch.from_dense(y.permute(1, 2, 0, 3).flatten(2))


def kept(seed: Tensor, nodes: Tensor, num_heads: int, num_keys: int, rate: float) -> Tensor:
    """Which weights stay: queries, long [B, n] -> bool [H, B, n, keys]."""
    rows = nodes * num_heads + torch.arange(num_heads)[:, None, None]  # [H, B, n]
    draws = hash32((rows & 0xFFFFFFFF) ^ seed)[..., None] + torch.arange(num_keys) * GOLDEN
    return hash32(draws & 0xFFFFFFFF) >= threshold(rate)


def _example(qkv: Tensor, bias: Tensor, gate: Tensor | None, batch: GraphBatch, *rest) -> tuple[tuple, dict]:
    """Graphs of 5, 1 and 35 nodes: less than a tile of keys, and more."""
    draw = lambda *shape: torch.randn(*shape, dtype=qkv.dtype).to(qkv.device).requires_grad_()  # noqa: E731
    small = GraphBatch(torch.zeros(41, 1), torch.zeros(2, 0, dtype=torch.long), torch.tensor([0, 5, 6, 41])).to(qkv.device)
    pairs = (bias.size(0), small.num_pairs)
    return (draw(41, qkv.size(1)), draw(*pairs), None if gate is None else draw(*pairs), small, *rest), {}


def _numba():
    from gt_models.kernels.gated_attention_numba import gated_attention

    return gated_attention


gated_attention = Operation("gated_attention", reference, [Form("numba", _numba)], _example)
