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
            return _OneGraph.apply(query, key, value)
        if batch.num_graphs * batch.max_nodes <= 4 * max(batch.num_nodes, 1):
            return _padded(query, key, value, batch)
        # sizes so unlike that padding would cost more than a loop
        sizes = batch.sizes.tolist()
        parts = zip(query.split(sizes), key.split(sizes), value.split(sizes), strict=True)
        return torch.cat([_OneGraph.apply(*part) for part in parts])


class _OneGraph(torch.autograd.Function):
    """One graph; [N, C, H] three times -> [N, C, H]. By hand because the division's own derivative takes as long as the attention."""

    @staticmethod
    def forward(ctx, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        # heads first, once: as they come, with the head last, each product below would copy them head by head
        k, v = (part.permute(2, 0, 1).contiguous() for part in (key, value))  # [H, N, C]
        q = k if query.data_ptr() == key.data_ptr() else query.permute(2, 0, 1).contiguous()
        memory, total = k.transpose(1, 2) @ v, k.sum(1, keepdim=True).transpose(1, 2)  # [H, C, C], [H, C, 1]: sums over nodes, once
        scale = (q @ total).reciprocal_()  # [H, N, 1]
        y = (q @ memory).mul_(scale)  # [H, N, C]
        ctx.save_for_backward(q, k, v, memory, total, scale, y)
        return y.permute(1, 2, 0)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v, memory, total, scale, y = ctx.saved_tensors
        g = grad.permute(2, 0, 1).contiguous() * scale  # d loss / d numerator, [H, N, C]
        d = -(g * y).sum(2, keepdim=True)  # d loss / d denominator, [H, N, 1]
        grad_q = torch.baddbmm(d * total.transpose(1, 2), g, memory.transpose(1, 2))
        grad_memory, grad_total = q.transpose(1, 2) @ g, q.transpose(1, 2) @ d
        grad_k = torch.baddbmm(grad_total.transpose(1, 2), v, grad_memory.transpose(1, 2))
        grad_v = k @ grad_memory
        return tuple(part.permute(1, 2, 0) for part in (grad_q, grad_k, grad_v))


def _padded(query: Tensor, key: Tensor, value: Tensor, batch: GraphBatch) -> Tensor:
    query, key, value = (batch.to_dense(part) for part in (query, key, value))  # [B, n, C, H], zero at padding
    memory = torch.einsum("bnch,bndh->bhcd", key, value)  # padding adds nothing: its keys are zero
    numerator = torch.einsum("bnch,bhcd->bndh", query, memory)
    denominator = (query * key.sum(1, keepdim=True)).sum(2, keepdim=True)
    # divide real nodes only: at padding both are zero
    return batch.from_dense(numerator) / batch.from_dense(denominator)
