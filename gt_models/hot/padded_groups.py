"""Queries and keys of one equivalence class in padded groups: softmax attention is a batch of matrix products."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from gt_models.hot.equivalence_classes import EquivalenceClass, Partition
from gt_models.hot.support import Support

PAIRS = 1 << 22  # pairs of a query and a key in one part: bounds its memory


@dataclass(frozen=True)
class Part:
    """Groups of similar size, padded to one size.

    Attributes:
        queries: rows of queries, long [groups, L_q]; -1 is padding.
        keys: rows of keys, long [groups, L_k]; -1 is padding.
        mask: the pairs of the class, bool [groups, 1, L_q, L_k]. It is all True for a query without keys, to keep the
            softmax finite.
        any_key: the queries that have keys, bool [groups, L_q].
    """

    queries: Tensor
    keys: Tensor
    mask: Tensor
    any_key: Tensor

    def pad_queries(self, x: Tensor) -> Tensor:
        """[queries, heads, d] -> [groups, heads, L_q, d]."""
        return _pad(x, self.queries)

    def pad_keys(self, x: Tensor) -> Tensor:
        """[keys, heads, d] -> [groups, heads, L_k, d]."""
        return _pad(x, self.keys)


@dataclass(frozen=True)
class PaddedGroups:
    """All queries and keys of a class.

    Attributes:
        parts: the padded groups.
        place: the place of each query in the padded queries of all parts, long [queries]; behind the last one for a
            query without keys.
    """

    parts: list[Part]
    place: Tensor

    def unpad(self, padded: list[Tensor], value: Tensor) -> Tensor:
        """Put the results of all parts in the order of the queries.

        Args:
            padded: for each part [groups, heads, L_q, d_v].
            value: [keys, heads, d_v].

        Returns:
            [queries, heads, d_v]; 0 for a query without keys.
        """
        rows = (x.transpose(1, 2).flatten(0, 1) for x in padded)
        return torch.cat([*rows, value[:0], value.new_zeros(1, *value.shape[1:])]).index_select(0, self.place)


def padded_groups(support: Support, c: EquivalenceClass) -> PaddedGroups:
    """The queries and keys of class `c`: by graph if sizes must be static, else by the groups of `Support.groups`."""
    return _by_graph(support, c) if support.fixed else _by_group(support, c)


def _by_graph(support: Support, c: EquivalenceClass) -> PaddedGroups:
    """One part, whose size follows from the sizes of the batch alone."""
    source, target = support.sets[c.k], support.sets[c.l]
    key_rows, query_rows = source.rows[c.input_pattern], target.rows[c.output_pattern]
    key_group, query_group, _ = support.groups(c)
    keys, _ = _rows_by_graph(source.graph[key_rows], _bound(support, c.input_pattern), support.num_graphs)
    queries, place = _rows_by_graph(target.graph[query_rows], _bound(support, c.output_pattern), support.num_graphs)
    same = query_group[queries.clamp(min=0)][:, None, :, None] == key_group[keys.clamp(min=0)][:, None, None, :]
    part = _part(support, c, queries, keys, same)
    return PaddedGroups([part], torch.where(part.any_key.flatten()[place], place, part.any_key.numel()))


def _bound(support: Support, pattern: Partition) -> int:
    """An upper bound on a graph's stored tuples of this pattern."""
    nodes = len(pattern)
    if nodes <= 1:
        return support.batch.max_nodes if nodes else 1
    if nodes == 2 and 2 in support.sets:
        return support.batch.max_nodes**2 if support.flat_rows else support.batch.max_edges
    return len(support.sets[nodes])


def _rows_by_graph(graph: Tensor, bound: int, num_graphs: int) -> tuple[Tensor, Tensor]:
    """Rows by graph, [num_graphs, bound], -1 is padding; and the flat place of each row."""
    order = torch.argsort(graph, stable=True)
    counts = torch.zeros(num_graphs, dtype=torch.long, device=graph.device).index_add(0, graph, torch.ones_like(graph))
    ordered = graph[order]
    at = ordered * bound + torch.arange(graph.numel(), device=graph.device) - (counts.cumsum(0) - counts)[ordered]
    rows = torch.full((num_graphs * bound,), -1, device=graph.device).index_copy(0, at, order)
    return rows.view(num_graphs, bound), torch.empty_like(at).index_copy(0, order, at)


def _by_group(support: Support, c: EquivalenceClass) -> PaddedGroups:
    """One part for all groups of up to 8 queries and keys, then one per power of two, split if it has many pairs."""
    key_group, query_group, num_groups = support.groups(c)
    by_key, first_key, num_keys = _sorted(key_group, num_groups)
    by_query, first_query, num_queries = _sorted(query_group, num_groups)
    size = torch.where((num_keys > 0) & (num_queries > 0), torch.maximum(num_keys, num_queries), 0)
    bucket = torch.where(size > 0, ((size - 1).clamp(min=0) // 8 + 1).log2().long(), -1)
    parts = []
    for b in range(int(bucket.max()) + 1 if num_groups else 0):
        groups = (bucket == b).nonzero().squeeze(1)
        if not len(groups):
            continue
        longest_query, longest_key = int(num_queries[groups].max()), int(num_keys[groups].max())
        step = max(1, min(longest_query, PAIRS // longest_key))  # queries of a group in one part
        for some in groups.split(max(1, PAIRS // (longest_key * longest_query))):
            keys = _padded(by_key, first_key[some], num_keys[some], longest_key)
            for at in range(0, longest_query, step):
                count = (num_queries[some] - at).clamp(min=0)
                queries = _padded(by_query, first_query[some] + at, count, min(step, longest_query - at))
                parts.append(_part(support, c, queries, keys, True))
    flat = torch.cat([*(torch.where(part.any_key, part.queries, -1).flatten() for part in parts), query_group[:0]])
    real = (flat >= 0).nonzero().squeeze(1)
    return PaddedGroups(parts, torch.full_like(query_group, len(flat)).index_copy(0, flat[real], real))


def _sorted(group: Tensor, num_groups: int) -> tuple[Tensor, Tensor, Tensor]:
    """Rows in the order of their groups; the first place and the number of rows of each group."""
    counts = torch.bincount(group, minlength=num_groups)
    return group.argsort(stable=True), counts.cumsum(0) - counts, counts


def _padded(rows: Tensor, first: Tensor, count: Tensor, length: int) -> Tensor:
    """`count` rows of each group from place `first` on, [groups, length]; -1 is padding."""
    at = torch.arange(length)
    found = rows[(first[:, None] + at).clamp(max=len(rows) - 1)]
    return torch.where(at < count[:, None], found, -1)


def _part(support: Support, c: EquivalenceClass, queries: Tensor, keys: Tensor, same: Tensor | bool) -> Part:
    """`same`: which queries and keys are of one group, bool [groups, 1, L_q, L_k], or True for all."""
    mask = ((queries >= 0)[:, :, None] & (keys >= 0)[:, None, :])[:, None] & same
    source, target = support.sets[c.k].nodes(c.input_pattern), support.sets[c.l].nodes(c.output_pattern)
    for query_node in target:
        for a in c.free:  # a summed node differs from every output node
            of_query, of_key = query_node[queries.clamp(min=0)], source[a][keys.clamp(min=0)]
            mask = mask & (of_query[:, None, :, None] != of_key[:, None, None, :])
    any_key = mask.any(-1, keepdim=True)
    return Part(queries, keys, mask | ~any_key, any_key[:, 0, :, 0])


def _pad(x: Tensor, rows: Tensor) -> Tensor:
    """[rows, heads, d] -> [groups, heads, L, d]; padding is zeros: numbers of another graph may not be finite."""
    with_zeros = F.pad(x, (0, 0, 0, 0, 0, 1))
    found = with_zeros.index_select(0, torch.where(rows < 0, len(x), rows).flatten())
    return found.unflatten(0, rows.shape).transpose(1, 2)
