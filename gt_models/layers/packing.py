"""Tokens of graphs of different sizes one after the other, without padding.

Groups of graphs of similar size serve operations that need padding.
"""

# mypy: disable-error-code="arg-type, assignment, attr-defined"

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from gt_models.layers.cached import cached_property


@dataclass
class Packing:
    """How the tokens of B graphs lie in [T, d]: graphs by falling length, each graph's tokens together.

    Attributes:
        num_tokens: T.
        counts, start: tokens of each graph and its first one, in the batch's order, long [B].
        ptr: first token of each graph by falling length, and the number of tokens, long [B + 1].
        rank: place of each graph of the batch in that order, long [B].
        graph: graph of each token (its place by falling length), long [T].
        longest: upper bound of the graphs' lengths if padded forms pad all graphs to one length; None if
            they form groups of similar length, which synchronises a GPU once.
        max_padding: a group takes graphs as long as each needs at most this share of padding. None is no padding on the
            CPU where at most 32 lengths occur (copies cost more there than calls), else a quarter.
    """

    num_tokens: int
    counts: Tensor
    start: Tensor
    ptr: Tensor
    rank: Tensor
    graph: Tensor
    longest: int | None = None
    max_padding: float | None = None

    @classmethod
    def of(
        cls, counts: Tensor, num_tokens: int | None = None, longest: int | None = None, max_padding: float | None = None
    ) -> Packing:
        """The packing of graphs with `counts` tokens, long [B].

        `num_tokens` is their sum where it is known without asking the device.
        """
        num_tokens = int(counts.sum()) if num_tokens is None else num_tokens
        falling, order = counts.sort(descending=True, stable=True)
        places = torch.arange(counts.numel(), device=counts.device)
        rank = torch.empty_like(order).scatter(0, order, places)
        ptr = F.pad(falling.cumsum(0), (1, 0))
        graph = torch.repeat_interleave(places, falling, output_size=num_tokens)
        return cls(num_tokens, counts, ptr[rank], ptr, rank, graph, longest, max_padding)

    @property
    def num_graphs(self) -> int:
        """Sequences in the batch."""
        return self.counts.numel()

    @property
    def first(self) -> Tensor:
        """First token of each graph by falling length, long [B]; no graph may be without a token."""
        return self.ptr[:-1]

    @cached_property
    def groups(self) -> list[Group]:
        """What padded forms work on; together they hold every token once, in order."""
        falling = self.ptr.diff()
        if self.longest is not None:
            return [_group(falling, self.graph, self.ptr, self.longest)]
        lengths, max_padding = falling.tolist(), self.max_padding
        if max_padding is None:
            max_padding = 0.0 if self.ptr.device.type == "cpu" and len(set(lengths)) <= 32 else 0.25
        groups, first, token, end = [], 0, 0, sum(length > 0 for length in lengths)
        while first < end:
            last = first
            while last < end and lengths[last] >= lengths[first] * (1.0 - max_padding):
                last += 1
            tokens = sum(lengths[first:last])
            if tokens == (last - first) * lengths[first]:
                groups.append(Group(last - first, lengths[first], tokens))
            else:
                graph, ptr = self.graph[token : token + tokens] - first, self.ptr[first:last] - token
                groups.append(_group(falling[first:last], graph, ptr, lengths[first]))
            first, token = last, token + tokens
        return groups


@dataclass
class Group:
    """Consecutive graphs whose attention is computed together, padded to `length`.

    Without places and mask where lengths agree.

    Attributes:
        num_graphs, length, num_tokens: b, L and the real tokens t.
        place: padded place of each token, long [t].
        mask: bool [b, 1, 1, L], True at real keys.
    """

    num_graphs: int
    length: int
    num_tokens: int
    place: Tensor | None = None
    mask: Tensor | None = None


def _group(counts: Tensor, graph: Tensor, ptr: Tensor, length: int) -> Group:
    local = torch.arange(graph.numel(), device=graph.device) - ptr[graph]
    mask = torch.arange(length, device=graph.device) < counts[:, None]
    return Group(counts.numel(), length, graph.numel(), graph * length + local, mask[:, None, None])


def by_groups(
    query: Tensor | None,
    tokens: Tensor,
    packing: Packing,
    num_heads: int,
    attend: Callable[[Tensor, Tensor, Tensor, Group, int], Tensor],
) -> Tensor:
    """attend(q, k, v, group, row) of each group, [b, H, L or 1, d_h] and [b, H, L, d_h] -> the shape of q.

    `row` is the group's first query.

    Arguments and result of `softmax_attention`. Padding is zeros.
    """
    outs, token, graph = [], 0, 0
    for group in packing.groups:
        b, length = group.num_graphs, group.length
        rows = tokens[token : token + group.num_tokens]
        if group.place is not None:
            rows = rows.new_zeros(b * length, rows.size(1)).index_copy(0, group.place, rows)
        # split by width and not by a view's dimension: backward is then one copy into the gradient of `tokens`
        states = rows.split(rows.size(1) // (3 if query is None else 2), 1)
        *q, k, v = [
            t.unflatten(1, (num_heads, -1)).unflatten(0, (b, length)).transpose(1, 2) for t in states
        ]  # [b, H, L, d_h]
        q = (
            q[0] if query is None else query[graph : graph + b].view(b, 1, num_heads, -1).transpose(1, 2)
        )  # [b, H, L or 1, d_h]
        out = attend(q, k, v, group, token if query is None else graph).transpose(1, 2).reshape(b * q.size(2), -1)
        outs.append(out if group.place is None or query is not None else out.index_select(0, group.place))
        token, graph = token + group.num_tokens, graph + b
    if not outs:
        return tokens.new_zeros(0, tokens.size(1) // 3) if query is None else torch.zeros_like(query)
    return outs[0] if len(outs) == 1 else torch.cat(outs)
