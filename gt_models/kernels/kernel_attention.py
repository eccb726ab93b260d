"""Kernel attention within groups (Kim et al. 2021, Eq. 21, with the generalized kernel), https://arxiv.org/abs/2110.14416.

    out_j = phi(q_j)^T S_g / phi(q_j)^T z_g,   S_g = sum_i phi(k_i) v_i^T,   z_g = sum_i phi(k_i),   phi(u) = relu(P u) + eps

per head, for each query j and the keys i of its group g: linear in keys and queries.
"""

from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from gt_models.kernels.dispatch import Form, Operation

LARGE = 1 << 22  # numbers that are computed twice rather than kept


class Groups:
    """Which keys a query attends to: those of its group.

    Args:
        entries: long [E], group of each entry. An entry is a key with a value.
        queries: long [R], group of each query.
        num_groups: number of groups.
        key: long [E], the key of each entry; None: entry e has key e.

    Attributes:
        layout: what a fast form derives from these, kept for its next calls.
    """

    def __init__(self, entries: Tensor, queries: Tensor, num_groups: int, key: Tensor | None = None):
        self.entries, self.queries, self.num_groups, self.key = entries, queries, num_groups, key
        self.layout: Any = None


def reference(query: Tensor, key: Tensor, value: Tensor, projection: Tensor, eps: float, groups: Groups) -> Tensor:
    """query [R, H, d], key [K, H, d], value [E, H, C] -> [R, H, C].

    Args:
        projection: P [m, d], the kernel's scale d^-1/4 in it.
        eps: added to each feature, so that no denominator is zero.
        groups: of R queries and E entries.

    A query without keys gets zeros.
    """
    phi_query, phi_key = ((u @ projection.T).relu() + eps for u in (query, key))
    return attend(phi_query, phi_key, value, groups)


def attend(phi_query: Tensor, phi_key: Tensor, value: Tensor, groups: Groups) -> Tensor:
    """The same from the features of any kernel: phi_query [R, H, m], phi_key [K, H, m], value [E, H, C] -> [R, H, C].

    Keeps [groups, H, m, C + 1] for the backward pass, and holds [E, H, m, C + 1] for a while.
    """
    phi_key = phi_key if groups.key is None else phi_key.index_select(0, groups.key)  # [E, H, m]
    with_one = torch.cat([value, torch.ones_like(value[..., :1])], -1)  # the last channel adds up to z
    outer = phi_key[..., :, None] * with_one[..., None, :]  # [E, H, m, C + 1]
    sums = outer.new_zeros(groups.num_groups, *outer.shape[1:]).index_add(0, groups.entries, outer)
    arguments = (phi_query, sums, groups.queries)
    if phi_query.numel() * sums.size(-1) > LARGE:  # many: each query's sums are gathered again in the backward pass
        read = checkpoint(_read, *arguments, use_reentrant=False, preserve_rng_state=False)
    else:
        read = _read(*arguments)  # [R, H, C + 1]
    above, below = read[..., :-1], read[..., -1:]
    return above / below.masked_fill(below == 0, 1.0)


def _read(phi: Tensor, sums: Tensor, group: Tensor) -> Tensor:
    return (phi[..., None, :] @ sums.index_select(0, group)).squeeze(-2)


def _example(query: Tensor, key: Tensor, value: Tensor, projection: Tensor, eps: float, *_: Any, **__: Any) -> tuple[tuple, dict]:
    """Three groups, the last without keys; entries 0 and 3 share a key."""
    heads, width = query.shape[1:]
    draw = lambda *shape: torch.randn(*shape, dtype=query.dtype).to(query.device).requires_grad_()  # noqa: E731
    entries, queries, keys = (torch.tensor(t, device=query.device) for t in ([0, 1, 0, 1, 1], [1, 0, 2, 1], [0, 1, 2, 0, 3]))
    projection = draw(len(projection), width).detach()
    return (
        draw(4, heads, width),
        draw(4, heads, width),
        draw(5, heads, value.size(2)),
        projection,
        eps,
        Groups(entries, queries, 3, keys),
    ), {}


def _numba():
    from gt_models.kernels.kernel_attention_numba import kernel_attention

    return kernel_attention


def _why_not(query: Tensor, key: Tensor, value: Tensor, projection: Tensor, eps: float, groups: Groups) -> str | None:
    if projection.requires_grad:
        return "it has no gradient by the projection"
    (features, width), channels = projection.shape, value.size(2)
    if max(features, width, channels) > 512 or features * channels > 1 << 15:
        return f"{features} features of heads of {width} and {channels} channels are too many for a thread's stack"
    return None


kernel_attention = Operation("kernel_attention", reference, [Form("numba", _numba, _why_not)], _example)
