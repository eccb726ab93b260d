"""Attention over all nodes of a graph in O(n): the keys are summed once (Polynormer, equation 6 and Listing 2)."""

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gt_models.batch import GraphBatch
from gt_models.nn.projections import without_autocast


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
    """One graph; [N, C, H] three times -> [N, C, H]. By hand because the division's own derivative takes as long as the attention.

    Nothing is copied where a head's channels lie side by side, that is where [N, C, H] is the view of an [N, H, C]; results lie so.
    """

    @staticmethod
    def forward(ctx, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        ctx.shared = query.data_ptr() == key.data_ptr()
        k, v = _by_head(key), _by_head(value)  # [H, N, C]
        q = k if ctx.shared else _by_head(query)
        memory, total = k.transpose(1, 2) @ v, k.sum(1, keepdim=True).transpose(1, 2)  # [H, C, C], [H, C, 1]: sums over nodes, once
        scale = (q @ total).reciprocal_()  # [H, N, 1]
        y = torch.bmm(q, memory, out=_empty_by_head(v)).mul_(scale)  # [H, N, C]
        ctx.save_for_backward(q, k, v, memory, total, scale, y)
        return y.permute(1, 2, 0)

    @staticmethod
    @once_differentiable
    @without_autocast
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        q, k, v, memory, total, scale, y = ctx.saved_tensors
        g = _by_head(grad) * scale  # d loss / d numerator, [H, N, C]
        d = -(g * y).sum(2, keepdim=True)  # d loss / d denominator, [H, N, 1]
        grad_memory, grad_total = q.transpose(1, 2) @ g, q.transpose(1, 2) @ d
        grad_v = torch.bmm(k, grad_memory, out=_empty_by_head(v))
        grad_q = torch.bmm(g, memory.transpose(1, 2), out=_empty_by_head(v)).addcmul_(d, total.transpose(1, 2))
        grad_k = grad_q if ctx.shared else torch.zeros_like(grad_q)
        grad_k.baddbmm_(v, grad_memory.transpose(1, 2)).add_(grad_total.transpose(1, 2))
        return None if ctx.shared else grad_q.permute(1, 2, 0), grad_k.permute(1, 2, 0), grad_v.permute(1, 2, 0)


def _by_head(t: Tensor) -> Tensor:
    """[N, C, H] -> [H, N, C] in a layout that matrix products read as it is."""
    t = t.permute(2, 0, 1)
    return t if t.stride(2) == 1 and t.stride(1) >= t.size(2) else t.contiguous()


def _empty_by_head(like: Tensor) -> Tensor:
    """[H, N, C], a view of [N, H, C]."""
    heads, n, channels = like.shape
    return like.new_empty(n, heads, channels).transpose(0, 1)


def _padded(query: Tensor, key: Tensor, value: Tensor, batch: GraphBatch) -> Tensor:
    query, key, value = (batch.to_dense(part) for part in (query, key, value))  # [B, n, C, H], zero at padding
    memory = torch.einsum("bnch,bndh->bhcd", key, value)  # padding adds nothing: its keys are zero
    numerator = torch.einsum("bnch,bhcd->bndh", query, memory)
    denominator = (query * key.sum(1, keepdim=True)).sum(2, keepdim=True)
    # divide real nodes only: at padding both are zero
    return batch.from_dense(numerator) / batch.from_dense(denominator)
