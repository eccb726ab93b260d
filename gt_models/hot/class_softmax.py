"""Softmax attention of one equivalence class over exactly its keys: groups padded to like sizes, with the class' distinctness as mask."""

# mypy: disable-error-code="misc"

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from gt_models.hot.equivalence_classes import EquivalenceClass, Partition
from gt_models.hot.support import Support
from gt_models.kernels.grouped import Grouped, Sorted

_PAIRS = 1 << 22  # query-key pairs of one piece: bounds what a piece holds


class Piece(NamedTuple):
    """Groups of like size: rows of queries [g, Lq] and of keys [g, Lk] (-1 beyond the end), which pair attends, bool [g, 1, Lq, Lk], and
    which queries have any key, bool [g, 1, Lq, 1]."""

    queries: Tensor
    keys: Tensor
    mask: Tensor
    any_key: Tensor


def masked_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    query_source: Tensor | None,
    key_source: Tensor | None,
    support: Support,
    c: EquivalenceClass,
) -> Tensor:
    """softmax_i(<q_j, k_i> / sqrt(d)) v_i over the keys i of class `c`: q, k [rows, heads, d], v [r_k, heads, d_v] -> [r, heads, d_v].

    `query_source`, `key_source`: row of q for each query and of k for each key, None where they are the same. A query without keys gives 0.
    """
    q = q if query_source is None else q.index_select(0, query_source)
    k = k if key_source is None else k.index_select(0, key_source)
    if support.fixed:
        piece, place = support.cached(("softmax", c), lambda: _whole(support, c))
        return _attend(q, k, v, piece).flatten(0, 1).index_select(0, place)
    rows, outputs = [], []
    for piece in support.cached(("softmax", c), lambda: _pieces(support, c)):
        out = _attend(q, k, v, piece).flatten(0, 1)
        real = (piece.queries.flatten() >= 0).nonzero().squeeze(1)
        rows.append(piece.queries.flatten()[real])
        outputs.append(out.index_select(0, real))
    if not outputs:
        return v.new_zeros(q.size(0), *v.shape[1:]) + 0.0 * (q.sum() + k.sum() + v.sum())
    return v.new_zeros(q.size(0), *v.shape[1:]).index_copy(0, torch.cat(rows), torch.cat(outputs))


def _attend(q: Tensor, k: Tensor, v: Tensor, piece: Piece) -> Tensor:
    """[g, Lq, heads, d_v]."""
    at_q, at_k = piece.queries.clamp(min=0), piece.keys.clamp(min=0)
    padded = [
        x.index_select(0, at.flatten()).unflatten(0, at.shape).transpose(1, 2)
        for x, at in ((q, at_q), (k, at_k), (v, at_k))
    ]
    out = F.scaled_dot_product_attention(*padded, attn_mask=piece.mask)  # [g, heads, Lq, d_v]
    return torch.where(piece.any_key, out, 0.0).transpose(1, 2)


def _whole(support: Support, c: EquivalenceClass) -> tuple[Piece, Tensor]:
    """One piece of all graphs, each padded to what a graph of the batch can have, and the place of each query in it [r]."""
    source, target = support.sets[c.k], support.sets[c.l]
    key_rows, query_rows = source.rows[c.input_pattern], target.rows[c.output_pattern]
    key_group, query_group, _ = support.groups(c)
    keys, _ = _by_graph(source.graph[key_rows], _most(support, c.input_pattern), support.num_graphs)
    queries, place = _by_graph(target.graph[query_rows], _most(support, c.output_pattern), support.num_graphs)
    key_nodes = [source.nodes(c.input_pattern)[a] for a in c.free]
    same = query_group[queries.clamp(min=0)][:, None, :, None] == key_group[keys.clamp(min=0)][:, None, None, :]
    return _piece(queries, keys, target.nodes(c.output_pattern), key_nodes, same), place


def _most(support: Support, pattern: Partition) -> int:
    """A bound on a graph's stored tuples of this pattern, from the sizes of the batch alone."""
    nodes = len(pattern)
    if nodes <= 1:
        return support.batch.max_nodes if nodes else 1
    if nodes == 2 and 2 in support.sets:
        return support.batch.max_nodes**2 if support.flat_rows else support.batch.max_edges
    return len(support.sets[nodes])


def _by_graph(graph: Tensor, most: int, num_graphs: int) -> tuple[Tensor, Tensor]:
    """Rows by graph, [num_graphs, most], -1 beyond the end; and the place of each row among them, flat."""
    order = torch.argsort(graph, stable=True)
    counts = torch.zeros(num_graphs, dtype=torch.long, device=graph.device).index_add(0, graph, torch.ones_like(graph))
    sorted_graph = graph[order]
    at = (
        sorted_graph * most
        + torch.arange(graph.numel(), device=graph.device)
        - (counts.cumsum(0) - counts)[sorted_graph]
    )
    rows = torch.full((num_graphs * most,), -1, device=graph.device).index_copy(0, at, order)
    return rows.view(num_graphs, most), torch.empty_like(at).index_copy(0, order, at)


def _pieces(support: Support, c: EquivalenceClass) -> list[Piece]:
    key_group, query_group, num_groups = support.groups(c)
    if key_group.numel() == 0 or query_group.numel() == 0:
        return []
    source, target = support.sets[c.k], support.sets[c.l]
    key_nodes = [source.nodes(c.input_pattern)[a] for a in c.free]
    query_nodes = target.nodes(c.output_pattern)
    by_key, by_query = Grouped(key_group, num_groups).sorted, Grouped(query_group, num_groups).sorted
    num_k, num_q = np.diff(by_key.ptr), np.diff(by_query.ptr)
    size = np.where((num_k > 0) & (num_q > 0), np.maximum(num_k, num_q), 0)
    # one bucket for all groups up to 8, then one for each power of two
    bucket = np.where(size > 0, np.log2(np.maximum(size - 1, 0) // 8 + 1).astype(int), -1)
    pieces = []
    for b in range(bucket.max() + 1):
        groups = np.flatnonzero(bucket == b)
        if not len(groups):
            continue
        long_q, long_k = int(num_q[groups].max()), int(num_k[groups].max())
        step_q = max(1, min(long_q, _PAIRS // long_k))
        step_g = max(1, _PAIRS // (long_k * long_q))
        for at in range(0, len(groups), step_g):
            keys = _padded(by_key, groups[at : at + step_g], 0, long_k)
            for first in range(0, long_q, step_q):
                queries = _padded(by_query, groups[at : at + step_g], first, min(step_q, long_q - first))
                pieces.append(_piece(queries, keys, query_nodes, key_nodes, True))
    return pieces


def _padded(rows: Sorted, groups: np.ndarray, first: int, length: int) -> Tensor:
    """The rows of each group from its row `first` on, [groups, length]; -1 beyond the end."""
    place = rows.ptr[groups][:, None] + first + np.arange(length)
    found = rows.rows[np.minimum(place, len(rows.rows) - 1)]
    return torch.from_numpy(np.where(place < rows.ptr[groups + 1][:, None], found, -1))


def _piece(
    queries: Tensor, keys: Tensor, query_nodes: list[Tensor], key_nodes: list[Tensor], same: Tensor | bool
) -> Piece:
    """`same`: which queries and keys are of one group, bool [g, 1, Lq, Lk], or True for all."""
    mask = ((queries >= 0)[:, :, None] & (keys >= 0)[:, None, :])[:, None] & same  # [g, 1, Lq, Lk]
    for q in query_nodes:
        for k in key_nodes:  # a summed node differs from every output node
            mask = mask & (q[queries.clamp(min=0)][:, None, :, None] != k[keys.clamp(min=0)][:, None, None, :])
    any_key = mask.any(-1, keepdim=True)
    return Piece(
        queries, keys, mask | ~any_key, any_key
    )  # a row without keys attends to all, for finite numbers, and is zeroed after
