"""Softmax attention among the tokens of each graph (Vaswani et al. 2017, Section 3.2), https://arxiv.org/abs/1706.03762.

    out_i = sum_j a_ij v_j     a_ij = softmax over the tokens j of i's graph of <q_i, k_j> / sqrt(d_h)     per head

Tokens of all graphs lie one after the other, without padding: `Packing` says where.
"""

# mypy: disable-error-code="arg-type, assignment, attr-defined"

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from gt_models.kernels.dispatch import Form, Operation
from gt_models.kernels.dropout_hash import GOLDEN, hash32, threshold
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
        longest: upper bound of the graphs' lengths where padded forms shall pad all graphs to one length; None where they shall form
            groups of like length, which waits for a device once.
        max_padding: a group takes graphs as long as each needs at most this share of padding. None is no padding on the CPU where at most
            32 lengths occur (copies cost more there than calls), else a quarter.
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
        """The packing of graphs with `counts` tokens, long [B]; `num_tokens` is their sum where it is known without asking the device."""
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
    """Consecutive graphs whose attention is computed together, padded to `length`; without places and mask where lengths agree.

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
    """attend(q, k, v, group, row) of each group, [b, H, L or 1, d_h] and [b, H, L, d_h] -> the shape of q; `row` is the group's first query.

    Arguments and result of `reference`. Padding is zeros.
    """
    outs, token, graph = [], 0, 0
    for group in packing.groups:
        b, length = group.num_graphs, group.length
        part = tokens[token : token + group.num_tokens]
        if group.place is not None:
            part = part.new_zeros(b * length, part.size(1)).index_copy(0, group.place, part)
        # split by width and not by a view's dimension: backward is then one copy into the gradient of `tokens`
        parts = part.split(part.size(1) // (3 if query is None else 2), 1)
        *q, k, v = [
            t.unflatten(1, (num_heads, -1)).unflatten(0, (b, length)).transpose(1, 2) for t in parts
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


def reference(
    query: Tensor | None, tokens: Tensor, packing: Packing, num_heads: int, dropout: float, seed: Tensor
) -> Tensor:
    """Queries, keys and values -> what each query receives, [T, d] or [B, d].

    Args:
        query: None, or one query for each graph in the order of `packing.ptr`, [B, d]; then no graph may be without tokens.
        tokens: queries, keys and values side by side [T, 3 d], or keys and values [T, 2 d] beside a `query`.
        packing: where the graphs' tokens lie.
        num_heads: H, which divides d.
        dropout: rate at which weights are dropped, the others scaled by 1 / (1 - rate).
        seed: long [1] on the CPU: which weights are dropped is a hash of it, the query, the head and the key's place in its graph. On
            other devices torch's fused attention draws them, from the device's own generator.

    Holds the weights [b, H, L, L] of a group of graphs on the CPU.
    """

    def attend(q: Tensor, k: Tensor, v: Tensor, group: Group, row: int) -> Tensor:
        if not dropout and group.length == 1:  # torch's attention hides a score that is NaN where there is one key
            return ((q / math.sqrt(q.size(-1))) @ k.transpose(-1, -2)).softmax(-1) @ v
        if not dropout or q.device.type != "cpu":
            out = F.scaled_dot_product_attention(q, k, v, attn_mask=group.mask, dropout_p=dropout)
            if q.device.type != "cpu":
                return out
            # on the CPU it returns zeros for a query that is not finite
            return out.masked_fill(~q.isfinite().all(-1, keepdim=True), torch.nan)
        scores = (q / math.sqrt(q.size(-1))) @ k.transpose(-1, -2)  # [b, H, L or 1, L]
        scores = scores if group.mask is None else scores.masked_fill(~group.mask, -torch.inf)
        if query is not None or group.place is None:
            rows = torch.arange(row, row + q.size(0) * q.size(2), device=q.device)
        else:
            rows = torch.zeros(q.size(0) * q.size(2), dtype=torch.long, device=q.device)
            rows = rows.index_copy(0, group.place, torch.arange(row, row + group.num_tokens, device=q.device))
        keep = _kept(seed, rows.view(q.size(0), 1, -1, 1), num_heads, k.size(2), dropout)
        return (scores.softmax(-1) * keep / (1.0 - dropout)) @ v

    return by_groups(query, tokens, packing, num_heads, attend)


def _kept(seed: Tensor, rows: Tensor, num_heads: int, num_keys: int, rate: float) -> Tensor:
    """Which weights stay: numbers of the queries, long [b, 1, L, 1] -> bool [b, H, L, keys]."""
    heads = torch.arange(num_heads, device=rows.device)[:, None, None]
    row = hash32(((rows * num_heads + heads) & 0xFFFFFFFF) ^ seed)  # [b, H, L, 1]
    draw = hash32((row + torch.arange(num_keys, device=rows.device) * GOLDEN) & 0xFFFFFFFF)
    return draw >= threshold(rate)


def _example(
    query: Tensor | None, tokens: Tensor, packing: Packing, num_heads: int, dropout: float, seed: Tensor
) -> tuple[tuple, dict]:
    """Graphs of 19, 3 and 1 tokens: more than one tile of queries, and parts of one."""
    counts, parts = torch.tensor([3, 19, 1], device=tokens.device), 3 if query is None else 2
    draw = lambda rows, width: torch.randn(rows, width, dtype=tokens.dtype).to(tokens.device).requires_grad_()  # noqa: E731
    queries = None if query is None else draw(3, query.size(1))
    return (queries, draw(23, tokens.size(1) // parts * parts), Packing.of(counts), num_heads, dropout, seed), {}


def _numba():
    from gt_models.kernels.packed_attention_numba import packed_attention

    return packed_attention


packed_attention = Operation("packed_attention", reference, [Form("numba", _numba)], _example)
