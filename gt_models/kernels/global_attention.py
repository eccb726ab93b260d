"""Attention over all nodes of a graph in O(n), normalised and gated (Polynormer, Deng et al. 2024, Eqs. 6 and 8, Listing 2),
https://arxiv.org/abs/2403.01232.

y = sigma(Q) (sigma(K)^T V) / (sigma(Q) sum_i sigma(K_i)) per head     x = LayerNorm(y) * (H + gate)
"""

# mypy: disable-error-code="operator, union-attr"

import torch
from torch import Tensor
from torch.nn import functional as F

from gt_models.batch import GraphBatch
from gt_models.kernels.dispatch import Operation
from gt_models.nn.fixed_sizes import fixed_sizes

CHUNK = 1024  # nodes


def reference(
    h: Tensor, v: Tensor, k: Tensor, q: Tensor | None, gate: Tensor, v_bias: Tensor, k_bias: Tensor, q_bias: Tensor | None,
    weight: Tensor | None, bias: Tensor | None, num_heads: int, eps: float, batch: GraphBatch,
) -> Tensor:  # fmt: skip
    """x [N, d]; channel c of head h is h * C + c.

    Args:
        h, v, k, q: projections without biases, [N, d]; q None: query and key are one.
        gate: what is added to h, the bias of h included, [d] or [N, d]. v_bias, k_bias, q_bias: [d].
        weight, bias, eps: of the LayerNorm over d, [d]; None: x = y * (h + gate).
        batch: each node attends over its own graph.
    """
    k = torch.sigmoid(k + k_bias)
    q = k if q is None else torch.sigmoid(q + q_bias)
    q, k, v = (t.unflatten(1, (num_heads, -1)) for t in (q, k, v + v_bias))  # [N, H, C]
    y = linear_attention(q, k, v, batch).flatten(1)  # [N, d]
    y = y if weight is None else F.layer_norm(y, y.shape[1:], weight.to(y.dtype), bias.to(y.dtype), eps)
    return y * (h + gate)


def linear_attention(query: Tensor, key: Tensor, value: Tensor, batch: GraphBatch) -> Tensor:
    """y_i = sum_j <q_i, k_j> v_j / sum_j <q_i, k_j> per head, j over the nodes of i's own graph.

    Args:
        query, key: non-negative feature maps [N, H, C]; value [N, H, C].

    Returns [N, H, C]. Time O(N C^2 H). Under bf16 autocast the sums over nodes stay in float32.
    """
    with torch.autocast(query.device.type, enabled=False):
        full = torch.float64 if query.dtype == torch.float64 else torch.float32
        query, key, value = query.to(full), key.to(full), value.to(full)
        if batch.num_graphs == 1:
            numerator, denominator = _sums(query[None], key[None], value[None])
            return (numerator / denominator)[0]
        if fixed_sizes(query) or batch.num_graphs * batch.max_nodes <= 4 * max(batch.num_nodes, 1):
            # [B, n, H, C], zero at padding, which so adds nothing; divided are real nodes only: at padding both sums are zero
            numerator, denominator = _sums(*(batch.to_dense(t) for t in (query, key, value)))
            return batch.from_dense(numerator) / batch.from_dense(denominator)
        # sizes so unlike that padding would cost more than a loop
        sizes = batch.sizes.tolist()
        sums = [
            _sums(*(t[None] for t in part)) for part in zip(*(t.split(sizes) for t in (query, key, value)), strict=True)
        ]
        return torch.cat([(numerator / denominator)[0] for numerator, denominator in sums])


def _sums(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Numerator [B, n, H, C] and denominator [B, n, H, 1] for graphs of one size, [B, n, H, C]."""
    denominator = (query * key.sum(1, keepdim=True)).sum(-1, keepdim=True)
    if key.is_cuda and key.size(1) >= 2 * CHUNK:
        return _numerator_in_chunks(query, key, value), denominator
    memory = torch.einsum("bnhc,bnhd->bhcd", key, value)  # the keys are summed once
    return torch.einsum("bnhc,bhcd->bnhd", query, memory), denominator


def _numerator_in_chunks(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """The same, with every sum over nodes, those of the backward pass as well, in chunks side by side: one product of C x C that is as long
    as a large graph leaves most of a GPU idle."""
    n = key.size(1)
    # [B, chunks, CHUNK, H, C], zeros behind the last node
    query, key, value = (F.pad(t, (0, 0, 0, 0, 0, -n % CHUNK)).unflatten(1, (-1, CHUNK)) for t in (query, key, value))
    memory = torch.einsum("bkmhc,bkmhd->bkhcd", key, value).sum(1, keepdim=True).expand(-1, key.size(1), -1, -1, -1)
    return torch.einsum("bkmhc,bkhcd->bkmhd", query, memory).flatten(1, 2)[:, :n]


global_attention = Operation("global_attention", reference)
