"""Attention over all nodes of a graph in O(n): the keys are summed once (Polynormer, equation 6 and Listing 2)."""

import torch
from torch import Tensor

from gt_models.batch import GraphBatch


def linear_attention(query: Tensor, key: Tensor, value: Tensor, batch: GraphBatch) -> Tensor:
    """y_i = sum_j <q_i, k_j> v_j / sum_j <q_i, k_j> per head, j over the nodes of i's own graph.

    Args:
        query, key: non-negative feature maps [N, C, H], head last; value [N, C, H].

    Returns [N, C, H]. Time O(N C^2 H). Under bf16 autocast the sums over nodes stay in float32.
    """
    with torch.autocast(query.device.type, enabled=False):
        full = torch.float64 if query.dtype == torch.float64 else torch.float32
        query, key, value = query.to(full), key.to(full), value.to(full)
        if batch.num_graphs == 1:
            numerator, denominator = _one_graph(query, key, value)
        elif batch.num_graphs * batch.max_nodes <= 4 * max(batch.num_nodes, 1):
            numerator, denominator = _padded(query, key, value, batch)
        else:  # sizes so unlike that padding would cost more than a loop
            sizes = batch.sizes.tolist()
            parts = [_one_graph(*part) for part in zip(query.split(sizes), key.split(sizes), value.split(sizes), strict=True)]
            numerator, denominator = (torch.cat(part) for part in zip(*parts, strict=True))
        return numerator / denominator


def _one_graph(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    memory = torch.einsum("nch,ndh->hcd", key, value)  # sum over nodes, once: [H, C, C]
    numerator = torch.einsum("nch,hcd->ndh", query, memory)  # [N, C, H]
    return numerator, (query * key.sum(0)).sum(1, keepdim=True)  # [N, 1, H]


def _padded(query: Tensor, key: Tensor, value: Tensor, batch: GraphBatch) -> tuple[Tensor, Tensor]:
    query, key, value = (batch.to_dense(part) for part in (query, key, value))  # [B, n, C, H], zero at padding
    memory = torch.einsum("bnch,bndh->bhcd", key, value)  # padding adds nothing: its keys are zero
    numerator = torch.einsum("bnch,bhcd->bndh", query, memory)
    denominator = (query * key.sum(1, keepdim=True)).sum(2, keepdim=True)
    return batch.from_dense(numerator), batch.from_dense(denominator)
