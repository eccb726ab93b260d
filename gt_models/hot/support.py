"""Supports of higher-order tensors: the stored tuples of nodes of each order, and index tensors between orders.

Sparse form (Kim et al. 2021, Section 4.2): order 2 is stored on the diagonal (i, i) and on the edges. Dense form: on
all pairs. Index tensors are computed once per batch, by sorting, and shared by all layers.
"""

# mypy: disable-error-code="arg-type, assignment"

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from gt_models.batch import GraphBatch
from gt_models.hot.equivalence_classes import EquivalenceClass, Partition, distinct, set_partitions
from gt_models.layers.static_shapes import needs_static_shapes


class TupleSet:
    """The stored tuples of one order, those of one equality pattern in consecutive rows.

    Args:
        index: node ids in the batch, long [m, order].
        graph: graph of each tuple, long [m].
        rows: the range of rows of each pattern.
    """

    def __init__(self, index: Tensor, graph: Tensor, rows: dict[Partition, slice]):
        self.index, self.graph, self.rows = index, graph, rows

    def __len__(self) -> int:
        return self.index.size(0)

    def nodes(self, pattern: Partition) -> list[Tensor]:
        """For each block of `pattern`, its node in the tuples of this pattern, long [tuples] each."""
        return [self.index[self.rows[pattern], block[0]] for block in pattern]


class Support:
    """The stored tuples of a batch by order, and a cache of index tensors.

    Build it with `Support(batch)` (orders 0 and 1), `Support.sparse` or `Support.complete`.

    Attributes:
        sets: the stored tuples by order; order 0 are the graphs, order 1 the nodes.
        fixed: whether every size follows from the sizes of the batch, as on a GPU and under torch.compile: no
            synchronisation, no graph break. Otherwise sizes may depend on the values of the batch.
        spare: unused rows of order 2, bool [rows]; None if there are none.
        edge_rows: the row of each edge, long [E] (`sparse` and `complete`).
        flat_rows: by order, the row of each tuple in flat, row-major order per graph (`complete`).
    """

    edge_rows: Tensor

    def __init__(self, batch: GraphBatch):
        device = batch.ptr.device
        self.num_nodes, self.num_graphs, self.device = batch.num_nodes, batch.num_graphs, device
        self.graph_of_node, self.sizes, self.ptr = batch.batch, batch.sizes, batch.ptr
        self.batch, self.fixed = batch, needs_static_shapes(batch.ptr)
        graphs, nodes = torch.arange(self.num_graphs, device=device), torch.arange(self.num_nodes, device=device)
        self.sets = {
            0: TupleSet(graphs.new_empty(self.num_graphs, 0), graphs, {(): slice(0, self.num_graphs)}),
            1: TupleSet(nodes[:, None], batch.batch, {((0,),): slice(0, self.num_nodes)}),
        }
        self.spare: Tensor | None = None
        self.flat_rows: dict[int, Tensor] = {}
        self._codes: dict[int, tuple[Tensor, Tensor]] = {}
        self._cache: dict[Any, Any] = {}

    @classmethod
    def sparse(cls, batch: GraphBatch) -> "Support":
        """Store order 2 on the n diagonal entries, then on the edges without duplicates, sorted by source and target.

        A self-loop is the diagonal entry of its node; parallel edges are one entry. If sizes are fixed, there are n + E
        rows: those of self-loops and duplicates are spare and come last.
        """
        support, n = cls(batch), batch.num_nodes
        source, target = batch.edge_index
        loop = source == target
        codes, by_code = torch.where(loop, n * n, source * n + target).sort()  # self-loops last
        first = torch.cat([torch.ones_like(codes[:1], dtype=torch.bool), codes[1:] != codes[:-1]]) & (codes < n * n)
        entry = first.long().cumsum(0) - 1 + n  # of each code
        count = batch.num_edges if support.fixed else int(first.sum())
        chosen = by_code[torch.argsort((~first).long(), stable=True)[:count]]
        nodes = torch.arange(n, device=support.device)
        index = torch.cat([torch.stack([nodes, nodes], 1), batch.edge_index.index_select(1, chosen).T])  # [n + m, 2]
        support.sets[2] = support._sorted_set(index, {((0, 1),): n, ((0,), (1,)): count})
        if support.fixed:
            support.spare = torch.arange(n + count, device=support.device) >= n + first.sum()
        support._codes[2] = codes, entry
        support.edge_rows = torch.where(loop, source, torch.empty_like(entry).index_copy(0, by_code, entry))
        return support

    @classmethod
    def complete(cls, batch: GraphBatch, order: int) -> "Support":
        """Store orders 2 to `order` on all tuples of nodes of one graph."""
        support = cls(batch)
        for k in range(2, order + 1):
            counts = support.sizes**k
            total = sum(support._num_tuples(len(p)) for p in set_partitions(k))
            graph = torch.repeat_interleave(
                torch.arange(support.num_graphs, device=support.device), counts, output_size=total
            )
            number = torch.arange(total, device=support.device) - (counts.cumsum(0) - counts)[graph]
            size, columns = support.sizes[graph], []
            for _ in range(k):
                columns.append(number % size + support.ptr[graph])
                number = number.div(size, rounding_mode="floor")
            index = torch.stack(columns[::-1], 1)  # [sum n_b^k, k]
            patterns = torch.stack([_has_pattern(index, p) for p in set_partitions(k)])
            order_of_rows = torch.argsort(patterns.long().argmax(0), stable=True)
            support.flat_rows[k] = torch.empty_like(order_of_rows).index_copy(
                0, order_of_rows, torch.arange(total, device=support.device)
            )
            support.sets[k] = support._sorted_set(
                index[order_of_rows], {p: support._num_tuples(len(p)) for p in set_partitions(k)}
            )
        if order >= 2:
            support.edge_rows = support.lookup(2, [batch.edge_index[0], batch.edge_index[1]])
        return support

    def _num_tuples(self, nodes: int) -> int:
        """Number of tuples of `nodes` distinct nodes of one graph, in the whole batch."""
        if nodes <= 2:
            return self.num_nodes if nodes == 1 else self.batch.num_pairs - self.num_nodes
        return sum(math.perm(n, nodes) for n in self.sizes.tolist())

    def add_hyperedges(self, index: Tensor) -> "Support":
        """Store order `index.size(1)` on tuples of distinct nodes of one graph, long [H, order], with duplicates."""
        self.sets[index.size(1)] = TupleSet(
            index, self.graph_of_node[index[:, 0]], {distinct(index.size(1)): slice(0, index.size(0))}
        )
        return self

    def gather(self, values: Tensor, classes: tuple[EquivalenceClass, ...]) -> Tensor:
        """The one input entry that each output tuple has in each of these classes without a sum.

        Args:
            values: [rows of order k, d].
            classes: classes without a sum and of one output pattern.

        Returns:
            [output tuples, classes x d]; 0 where the entry is not stored.
        """
        if len(classes) == 1 and isinstance(rows := self.input_rows(classes[0]), slice):
            return values[rows]
        stacked = self.cached(("gathered", classes), lambda: self.gathered_rows(classes))
        with_zeros = F.pad(values, (0, 0, 0, 1))
        return with_zeros.index_select(0, stacked.flatten()).view(-1, len(classes) * values.size(1))

    def gathered_rows(self, classes: tuple[EquivalenceClass, ...]) -> Tensor:
        """Input row of each output tuple and class, long [output tuples, classes]; if not stored, behind the last."""
        columns, count = [], len(self.sets[classes[0].k])
        for c in classes:
            rows = self.input_rows(c)
            columns.append(torch.arange(rows.start, rows.stop, device=self.device) if isinstance(rows, slice) else rows)
        stacked = torch.stack(columns, 1)
        return torch.where(stacked < 0, count, stacked)

    def cached(self, key: Any, build: Callable[[], Any]) -> Any:
        """The result of `build`, computed once and cached under `key`."""
        if torch.compiler.is_compiling():  # a compiler removes common subexpressions itself
            return build()
        if key not in self._cache:
            self._cache[key] = build()
        return self._cache[key]

    def lookup(self, order: int, columns: list[Tensor]) -> Tensor:
        """The row of each tuple (columns[0][r], columns[1][r], ...) of this order, long [r]; -1 if it is not stored."""
        if order == 1:
            return columns[0]
        if order not in self._codes:
            codes, by_code = self._code(list(self.sets[order].index.unbind(1))).sort()
            self._codes[order] = codes, by_code
        codes, rows = self._codes[order]
        wanted = self._code(columns)
        found = torch.full_like(wanted, -1)
        if codes.numel():
            at = torch.searchsorted(codes, wanted).clamp(max=codes.numel() - 1)
            found = torch.where(codes[at] == wanted, rows[at], -1)
        # the rows of an order-2 diagonal are the nodes, and the sparse set's codes leave them out
        return torch.where(columns[0] == columns[1], columns[0], found) if order == 2 else found

    def rows_of_distinct(self, columns: list[Tensor]) -> Tensor:
        """The row of each tuple of distinct nodes, counted from the first such tuple of its order, long [r]."""
        return self.lookup(len(columns), columns) - self.sets[len(columns)].rows[distinct(len(columns))].start

    def counted(self, order: int, rows: slice, group: Tensor, beyond: int) -> Tensor:
        """`group` of the entries `rows` of this order, and `beyond` for spare ones."""
        return group if self.spare is None or order != 2 else torch.where(self.spare[rows], beyond, group)

    def input_rows(self, c: EquivalenceClass) -> Tensor | slice:
        """Input row of each output tuple of the pattern of a class without a sum; -1 if it is not stored."""
        return self.cached(("input rows", c), lambda: self._input_rows(c))

    def groups(self, c: EquivalenceClass, all_rows: bool = False) -> tuple[Tensor, Tensor, int]:
        """Groups of keys and queries that share the class' shared nodes, or only their graph.

        Args:
            c: the class.
            all_rows: keys are the input tuples of every pattern, grouped by position.

        Returns:
            Group of each key, long [keys]; group of each query, long [queries]; number of groups.
        """
        # unstated: Eq. (21) takes the union of keys over all queries. Read per shared node, as the authors'
        # implementation does: with one union for the whole graph no class would pass a message along an edge, which
        # Theorem 2 needs
        source, target = self.sets[c.k], self.sets[c.l]
        rows = slice(0, len(source)) if all_rows else source.rows[c.input_pattern]
        spare = int(self.spare is not None)  # spare entries are a separate group without queries
        if not c.shared:
            keys = self.counted(c.k, rows, source.graph[rows], self.num_graphs)
            return keys, target.graph[target.rows[c.output_pattern]], self.num_graphs + spare
        keys = [source.index[rows, c.input_pattern[a][0]] for a, _ in c.shared]
        queries = [target.nodes(c.output_pattern)[b] for _, b in c.shared]
        if len(keys) == 1:
            return self.counted(c.k, rows, keys[0], self.num_nodes), queries[0], self.num_nodes + spare
        codes, place = torch.unique(torch.cat([self._code(keys), self._code(queries)]), return_inverse=True)
        return place[: keys[0].numel()], place[keys[0].numel() :], codes.numel()

    def _input_rows(self, c: EquivalenceClass) -> Tensor | slice:
        source, target = self.sets[c.k], self.sets[c.l]
        if c.k == 0:
            return target.graph[target.rows[c.output_pattern]]
        if c.k == c.l and all((a in block) == (a + c.k in block) for block in c.blocks for a in range(c.k)):
            return source.rows[c.input_pattern]  # i = j: the rows themselves, also where tuples repeat
        if c.l == 1 and len(c.blocks) == 1:
            return source.rows[c.input_pattern]  # i = (j, ..., j): one per node, in their order
        nodes, block_of = target.nodes(c.output_pattern), dict(c.shared)
        columns = [torch.empty(0)] * c.k
        for a, block in enumerate(c.input_pattern):
            for position in block:
                columns[position] = nodes[block_of[a]]
        return self.lookup(c.k, columns)

    def _sorted_set(self, index: Tensor, counts: dict[Partition, int]) -> TupleSet:
        rows, start = {}, 0
        for pattern, count in counts.items():
            rows[pattern] = slice(start, start + count)
            start += count
        return TupleSet(index, self.graph_of_node[index[:, 0]], rows)

    def _code(self, columns: list[Tensor]) -> Tensor:
        if self.num_nodes ** len(columns) >= 2**63:
            raise ValueError(
                f"{self.num_nodes} nodes are too many for tuples of order {len(columns)} in one batch: use smaller "
                "batches"
            )
        code = columns[0]
        for column in columns[1:]:
            code = code * self.num_nodes + column
        return code


def _has_pattern(index: Tensor, pattern: Partition) -> Tensor:
    """Which tuples [m, order] have exactly this equality pattern, bool [m]."""
    keep = torch.ones(index.size(0), dtype=torch.bool, device=index.device)
    for a, block in enumerate(pattern):
        for position in block[1:]:
            keep &= index[:, position] == index[:, block[0]]
        for other in pattern[:a]:
            keep &= index[:, other[0]] != index[:, block[0]]
    return keep
