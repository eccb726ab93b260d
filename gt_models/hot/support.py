"""Supports of higher-order tensors: which tuples of nodes an order-0, 1, 2 or 3 tensor is stored on, and how tuples of two orders meet.

Sparse form (Kim et al. 2021, Section 4.2): order 2 is stored on the diagonal (i, i) and on the edges. Dense form: on all pairs.
Everything here is integer arithmetic on the batch, done once per batch by sorting, and shared by all layers.
"""

# mypy: disable-error-code="arg-type, assignment"

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gt_models.batch import GraphBatch
from gt_models.hot.equivalence_classes import EquivalenceClass, Partition, distinct, set_partitions
from gt_models.kernels.grouped import Grouped
from gt_models.kernels.taken_rows import taken_rows
from gt_models.layers.static_shapes import needs_static_shapes


class TupleSet:
    """Tuples of one order, rows of one equality pattern side by side.

    Args:
        index: long [m, order], node ids in the batch.
        graph: long [m], graph of each tuple.
        rows: the range of rows of each pattern.
    """

    def __init__(self, index: Tensor, graph: Tensor, rows: dict[Partition, slice]):
        self.index, self.graph, self.rows = index, graph, rows

    def __len__(self) -> int:
        return self.index.size(0)

    def nodes(self, pattern: Partition) -> list[Tensor]:
        """The node of each block of `pattern`, [r] each, for the r tuples that have it."""
        return [self.index[self.rows[pattern], block[0]] for block in pattern]


class Support:
    """The tuple sets of a batch by order, and what layers look up in them (cached by name).

    Build it with `Support(batch)` (orders 0 and 1), `sparse` or `complete`. `sets[0]` are the graphs and `sets[1]` the nodes.

    Attributes:
        fixed: on a device, and under torch.compile, every size follows from the sizes of the batch: nothing waits for the device, and no graph
            breaks. On the CPU sizes may follow from what the batch holds.
        spare: the entries of order 2 that nothing reads, bool [rows]; None where there are none.
        edge_rows: of `sparse` and `complete`, the entry of each edge, long [E].
        flat_rows: of `complete`, by order the row of each tuple in flat, row-major order per graph.
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
        """Order 2 on the n diagonal entries, then the edges without repetition, sorted by source and target.

        A self-loop is the diagonal entry of its node; parallel edges are one entry. Where sizes are fixed there are as many entries as nodes
        and edges, and those of self-loops and repetitions are spare and come last.
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
        """Orders 2..`order` on all tuples of nodes of one graph."""
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
        """Tuples of so many distinct nodes of one graph, in the whole batch."""
        if nodes <= 2:
            return self.num_nodes if nodes == 1 else self.batch.num_pairs - self.num_nodes
        return sum(math.perm(n, nodes) for n in self.sizes.tolist())

    def add_hyperedges(self, index: Tensor) -> "Support":
        """Order `index.size(1)` on the given tuples [H, order] of distinct nodes of one graph, kept in their order (repetitions too)."""
        self.sets[index.size(1)] = TupleSet(
            index, self.graph_of_node[index[:, 0]], {distinct(index.size(1)): slice(0, index.size(0))}
        )
        return self

    def take(self, values: Tensor, classes: tuple[EquivalenceClass, ...]) -> Tensor:
        """For classes without sum and of one output pattern: the one input entry of each of its tuples, side by side [r, classes x d]; 0
        where it is not stored."""
        if len(classes) == 1 and isinstance(only := self.light_rows(classes[0]), slice):
            return values[only]
        taken = taken_rows(values, self.cached(("rows", classes), lambda: self._taken_rows(classes)))
        return taken.view(-1, len(classes) * values.size(1))

    def _taken_rows(self, classes: tuple[EquivalenceClass, ...]) -> Grouped:
        """Input row of each output tuple and class, [r x classes]; beyond the last row where it is not stored."""
        columns, count = [], len(self.sets[classes[0].k])
        for c in classes:
            rows = self.light_rows(c)
            columns.append(torch.arange(rows.start, rows.stop, device=self.device) if isinstance(rows, slice) else rows)
        rows = torch.stack(columns, 1).flatten()
        return Grouped(torch.where(rows < 0, count, rows), count + 1)

    def cached(self, key: Any, build: Callable[[], Any]) -> Any:
        """What `build` gives, computed once for this support and kept under `key`."""
        if torch.compiler.is_compiling():  # a compiler finds what is computed twice
            return build()
        if key not in self._cache:
            self._cache[key] = build()
        return self._cache[key]

    def lookup(self, order: int, columns: list[Tensor]) -> Tensor:
        """Row of each tuple (columns[0][r], columns[1][r], ...) in the set of that order; -1 where it is not stored."""
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
        """Row of each tuple of distinct nodes among all of them."""
        return self.lookup(len(columns), columns) - self.sets[len(columns)].rows[distinct(len(columns))].start

    def counted(self, order: int, rows: slice, group: Tensor, beyond: int) -> Tensor:
        """`group` of the entries `rows` of that order; `beyond` for spare ones."""
        return group if self.spare is None or order != 2 else torch.where(self.spare[rows], beyond, group)

    def light_rows(self, c: EquivalenceClass) -> Tensor | slice:
        """For a class without sum: the input row of each output tuple of the class' pattern; -1 where it is not stored."""
        return self.cached(("light", c), lambda: self._light_rows(c))

    def groups(self, c: EquivalenceClass, all_rows: bool = False) -> tuple[Tensor, Tensor, int]:
        """Group of each key and of each query, and the number of groups: keys and queries of a group share nodes, or a graph.

        `all_rows`: keys are the input tuples of every pattern, grouped by position.
        """
        # unstated: Eq. (21) takes the union of keys over all queries. Read per shared node, as the authors' implementation does: with one union
        # for the whole graph no class would pass a message along an edge, which Theorem 2 needs
        source, target = self.sets[c.k], self.sets[c.l]
        rows = slice(0, len(source)) if all_rows else source.rows[c.input_pattern]
        spare = int(self.spare is not None)  # spare entries are a group of their own, which nothing reads
        if not c.shared:
            keys = self.counted(c.k, rows, source.graph[rows], self.num_graphs)
            return keys, target.graph[target.rows[c.output_pattern]], self.num_graphs + spare
        keys = [source.index[rows, c.input_pattern[a][0]] for a, _ in c.shared]
        queries = [target.nodes(c.output_pattern)[b] for _, b in c.shared]
        if len(keys) == 1:
            return self.counted(c.k, rows, keys[0], self.num_nodes), queries[0], self.num_nodes + spare
        codes, place = torch.unique(torch.cat([self._code(keys), self._code(queries)]), return_inverse=True)
        return place[: keys[0].numel()], place[keys[0].numel() :], codes.numel()

    def _light_rows(self, c: EquivalenceClass) -> Tensor | slice:
        source, target = self.sets[c.k], self.sets[c.l]
        if c.k == 0:
            return target.graph[target.rows[c.output_pattern]]
        if c.k == c.l and all((a in block) == (a + c.k in block) for block in c.blocks for a in range(c.k)):
            return source.rows[c.input_pattern]  # i = j: the rows themselves, also where tuples repeat
        if c.l == 1 and len(c.blocks) == 1:
            return source.rows[c.input_pattern]  # i = (j, ..., j): as many as nodes, in their order
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
                f"{self.num_nodes} nodes are too many for tuples of order {len(columns)} in one batch: use smaller batches"
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
