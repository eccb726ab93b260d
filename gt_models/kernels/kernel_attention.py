"""Kernel attention within groups (Kim et al. 2021, Eq. 21, with the generalized kernel), https://arxiv.org/abs/2110.14416.

    out_j = phi(q_j)^T S_g / phi(q_j)^T z_g,   S_g = sum_i phi(k_i) v_i^T,   z_g = sum_i phi(k_i),   phi(u) = relu(P u) + eps

per head, for each query j and the keys i of its group g: linear in keys and queries. The attentions of a layer are one operation, so that
queries, keys and values stay columns of the products that gave them.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from gt_models.kernels.dispatch import Form, Operation
from gt_models.kernels.grouped import Grouped
from gt_models.kernels.kernel_attention_groups import Attention, Groups

LARGE = 1 << 22  # numbers that are computed twice rather than kept


class Columns(NamedTuple):
    """The heads [r, H, d] in columns first .. first + H d of `rows` [r, width]."""

    rows: Tensor
    first: int
    heads: int
    width: int

    def unflatten(self) -> Tensor:
        """[r, H, d]."""
        return self.rows[:, self.first : self.first + self.heads * self.width].unflatten(1, (self.heads, self.width))


def kernel_attentions(
    queries: Sequence[Columns], keys: Sequence[Columns], values: Sequence[Columns], groups: Sequence[Groups], outs: Sequence[int],
    projection: Tensor, eps: float,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Several attentions with heads of one size: output `o` is [R, attentions x H C], those with outs[a] = o side by side.

    Args:
        queries, keys, values: of each attention, [R, H, d], [K, H, d] and [E, H, C].
        groups: of its R queries and E entries.
        outs: 0, ..., 0, 1, ..., 1, ...: the output that each is part of.
        projection: P [m, d], the kernel's scale d^-1/4 in it.
        eps: added to each feature, so that no denominator is zero.

    A query without keys gets zeros.
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
    """`matrices`: those whose columns are queries, keys and values. See `kernel_attentions`."""
    width = projection.size(1)
    outs: list[list[Tensor]] = [[] for _ in range(1 + max(a.out for a in attentions))]
    for a in attentions:
        places = ((a.query, width), (a.key, width), (a.value, channels))
        query, key, value = (Columns(matrices[m], first, heads, size).unflatten() for (m, first), size in places)
        phi_query, phi_key = ((u @ projection.T).relu() + eps for u in (query, key))
        outs[a.out].append(attend(phi_query, phi_key, value, a.groups).flatten(1))
    return tuple(torch.cat(out, 1) for out in outs)


def attend(phi_query: Tensor, phi_key: Tensor, value: Tensor, groups: Groups) -> Tensor:
    """One attention from the features of any kernel: phi_query [R, H, m], phi_key [K, H, m], value [E, H, C] -> [R, H, C].

    Keeps [groups, H, m, C + 1] for the backward pass, and holds [E, H, m, C + 1] for a while.
    """
    phi_key = phi_key if groups.key is None else phi_key.index_select(0, groups.key.of)  # [E, H, m]
    with_one = torch.cat([value, torch.ones_like(value[..., :1])], -1)  # the last channel adds up to z
    outer = phi_key[..., :, None] * with_one[..., None, :]  # [E, H, m, C + 1]
    sums = outer.new_zeros(groups.entries.num_groups, *outer.shape[1:]).index_add(0, groups.entries.of, outer)
    arguments = (phi_query, sums, groups.queries.of)
    if phi_query.numel() * sums.size(-1) > LARGE:  # many: each query's sums are gathered again in the backward pass
        read = checkpoint(_read, *arguments, use_reentrant=False, preserve_rng_state=False)
    else:
        read = _read(*arguments)  # [R, H, C + 1]
    above, below = read[..., :-1], read[..., -1:]
    return above / below.masked_fill(below == 0, 1.0)


def _read(phi: Tensor, sums: Tensor, group: Tensor) -> Tensor:
    return (phi[..., None, :] @ sums.index_select(0, group)).squeeze(-2)


def _example(
    _: Any, heads: int, channels: int, projection: Tensor, eps: float, *matrices: Tensor
) -> tuple[tuple, dict]:
    """Two attentions with the same values' rows; three groups, the last without keys; in the first, entries 0 and 3 share a key."""
    width = projection.size(1)
    draw = lambda *shape: torch.randn(*shape, dtype=projection.dtype).to(projection.device).requires_grad_()  # noqa: E731
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
