"""Kernel attention within groups.

Source: Kim et al. 2021, Eq. 21, with the generalized kernel, https://arxiv.org/abs/2110.14416.

    out_j = phi(q_j)^T S_g / phi(q_j)^T z_g,   S_g = sum_i phi(k_i) v_i^T,   z_g = sum_i phi(k_i),
    phi(u) = relu(P u) + eps

per head, for each query j and the keys i of its group g. It is linear in keys and queries. All attentions of a layer
are one operation, so that queries, keys and values are read as columns of the products that computed them.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gt_models.hot.attention import grouped_attention, take
from gt_models.kernels.dispatch import Form, Operation
from gt_models.kernels.grouped import Attention, Columns, Grouped, Groups


def kernel_attentions(
    queries: Sequence[Columns], keys: Sequence[Columns], values: Sequence[Columns], groups: Sequence[Groups], outs:
        Sequence[int],
    projection: Tensor, eps: float,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Several attentions with heads of one size.

    Args:
        queries: of each attention, [R, H, d].
        keys: of each attention, [K, H, d].
        values: of each attention, [E, H, C].
        groups: of each attention, the groups of its R queries and E entries.
        outs: of each attention, the number of its output: 0, ..., 0, 1, ..., 1, ...
        projection: P times the kernel's scale d^-1/4, [m, d].
        eps: added to each feature, so that no denominator is zero.

    Returns:
        For each output [R, attentions x H C], its attentions side by side. A query without keys gets zeros.

    Gradients of queries and keys are differences of two terms, each divided by the denominator. In a group of one key
    they cancel: the exact gradient is 0, and what is left is their rounding, in every form.
    """
    if not queries:
        return ()
    matrices = list({id(c.rows): c.rows for c in (*queries, *keys, *values)}.values())
    numbers = {id(rows): number for number, rows in enumerate(matrices)}

    def place(columns: Columns) -> tuple[int, int]:
        return numbers[id(columns.rows)], columns.first

    attentions = [
        Attention(place(q), place(k), place(v), g, o)
        for q, k, v, g, o in zip(queries, keys, values, groups, outs, strict=True)
    ]
    return kernel_attention(attentions, values[0].heads, values[0].width, projection, eps, *matrices)


def reference(
    attentions: Sequence[Attention], heads: int, channels: int, projection: Tensor, eps: float, *matrices: Tensor
) -> tuple[Tensor, ...]:
    """The definition of `kernel_attentions`; `matrices` have queries, keys and values as columns."""
    width = projection.size(1)
    outs: list[list[Tensor]] = [[] for _ in range(1 + max(a.out for a in attentions))]
    for a in attentions:
        places = ((a.query, width), (a.key, width), (a.value, channels))
        query, key, value = (Columns(matrices[m], first, heads, size).unflatten() for (m, first), size in places)
        phi_query, phi_key = ((u @ projection.T).relu() + eps for u in (query, key))
        entries, queries, shared = a.groups.entries, a.groups.queries, a.groups.key
        phi_key = take(phi_key, None if shared is None else shared.of)
        attended = grouped_attention(phi_query, phi_key, value, entries.of, queries.of, entries.num_groups)
        outs[a.out].append(attended.flatten(1))
    return tuple(torch.cat(out, 1) for out in outs)


def _example(
    _: Any, heads: int, channels: int, projection: Tensor, eps: float, *matrices: Tensor
) -> tuple[tuple, dict]:
    """Two attentions with the same rows of values and three groups: the last has no keys, the first a repeated key."""
    width = projection.size(1)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=projection.dtype).to(projection.device).requires_grad_()

    of = [torch.tensor(t, device=projection.device) for t in ([0, 1, 0, 1, 1], [1, 0, 2, 1], [0, 1, 2, 0, 3])]
    entries, queries, key = (Grouped(t, size) for t, size in zip(of, (3, 3, 4), strict=True))
    own = Groups(Grouped(of[0][:4], 3), queries)
    step, values = heads * width, heads * channels
    attentions = [
        Attention((0, 0), (0, step), (1, 0), Groups(entries, queries, key), 0),
        Attention((0, 2 * step), (0, 3 * step), (2, 0), own, 0),
    ]
    return (
        attentions,
        heads,
        channels,
        draw(len(projection), width).detach(),
        eps,
        draw(4, 4 * step),
        draw(5, values),
        draw(4, values),
    ), {}


def _numba():
    from gt_models.kernels.kernel_attention_numba import kernel_attention

    return kernel_attention


def _why_not(
    attentions: Sequence[Attention], heads: int, channels: int, projection: Tensor, eps: float, *_: Tensor
) -> str | None:
    if projection.requires_grad:
        return "it has no gradient by the projection"
    features, width = projection.shape
    if max(features, width, channels) > 512 or features * channels > 1 << 15:
        return f"{features} features of heads of {width} and {channels} channels are too many for a thread's stack"
    places = [place for a in attentions for place in (a.query, a.key, a.value)]
    return "attentions share columns" if len(set(places)) < len(places) else None


kernel_attention = Operation("kernel_attention", reference, [Form("numba", _numba, _why_not)], _example)
