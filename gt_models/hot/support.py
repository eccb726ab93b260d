"""Supports of higher-order tensors: which tuples of nodes an order-0, 1, 2 or 3 tensor is stored on, and how tuples of two orders meet.

Sparse form (Kim et al. 2021, Section 4.2): order 2 is stored on the diagonal (i, i) and on the edges. Dense form: on all pairs.
Everything here is integer arithmetic on the batch, done once per batch by sorting, and shared by all layers.
"""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from gt_models.batch import GraphBatch
from gt_models.hot.equivalence_classes import EquivalenceClass, Partition, distinct, set_partitions


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
    """

    def __init__(self, batch: GraphBatch):
        device = batch.ptr.device
        self.num_nodes, self.num_graphs, self.device = batch.num_nodes, batch.num_graphs, device
        self.graph_of_node, self.sizes, self.ptr = batch.batch, batch.sizes, batch.ptr
        graphs, nodes = torch.arange(self.num_graphs, device=device), torch.arange(self.num_nodes, device=device)
        self.sets = {
            0: TupleSet(graphs.new_empty(self.num_graphs, 0), graphs, {(): slice(0, self.num_graphs)}),
            1: TupleSet(nodes[:, None], batch.batch, {((0,),): slice(0, self.num_nodes)}),
        }
        self._cache: dict[Any, Any] = {}

    @classmethod
    def sparse(cls, batch: GraphBatch) -> "Support":
        """Order 2 on the n diagonal entries, then the edges without repetition, sorted by source and target.

        A self-loop is the diagonal entry of its node; parallel edges are one entry. `edge_rows` [E]: the entry of each edge.
        """
        support, n = cls(batch), batch.num_nodes
        source, target = batch.edge_index
        loop = source == target
        codes, place = torch.unique(torch.where(loop, -1, source * n + target), return_inverse=True)
        first = int(codes.numel() > 0 and bool(codes[0] < 0))  # the codes hold one -1 where there are self-loops
        codes = codes[first:]
        nodes = torch.arange(n, device=support.device)
        index = torch.cat(
            [torch.stack([nodes, nodes], 1), torch.stack([codes.div(max(n, 1), rounding_mode="floor"), codes % max(n, 1)], 1)]
        )  # [n + m, 2]
        support.sets[2] = support._sorted_set(index, {((0, 1),): n, ((0,), (1,)): codes.numel()})
        support._cache["codes", 2] = (codes, torch.arange(n, n + codes.numel(), device=support.device))
        support.edge_rows = torch.where(loop, source, place - first + n)
        return support

    @classmethod
    def complete(cls, batch: GraphBatch, order: int) -> "Support":
        """Orders 2..`order` on all tuples of nodes of one graph. `edge_rows` [E] as in `sparse`; `flat_rows[k]`: the row of each tuple in
        flat, row-major order per graph."""
        support = cls(batch)
        support.flat_rows = {}
        for k in range(2, order + 1):
            counts = support.sizes**k
            graph = torch.repeat_interleave(torch.arange(support.num_graphs, device=support.device), counts)
            number = torch.arange(graph.numel(), device=support.device) - (counts.cumsum(0) - counts)[graph]
            size, columns = support.sizes[graph], []
            for _ in range(k):
                columns.append(number % size + support.ptr[graph])
                number = number.div(size, rounding_mode="floor")
            index = torch.stack(columns[::-1], 1)  # [sum n_b^k, k]
            where = [_has_pattern(index, p).nonzero().squeeze(1) for p in set_partitions(k)]
            order_of_rows = torch.cat(where)
            support.flat_rows[k] = torch.empty_like(order_of_rows).index_copy_(
                0, order_of_rows, torch.arange(graph.numel(), device=support.device)
            )
            support.sets[k] = support._sorted_set(index[order_of_rows], {p: len(w) for p, w in zip(set_partitions(k), where, strict=True)})
        if order >= 2:
            support.edge_rows = support.lookup(2, list(batch.edge_index))
        return support

    def add_hyperedges(self, index: Tensor) -> "Support":
        """Order `index.size(1)` on the given tuples [H, order] of distinct nodes of one graph, kept in their order (repetitions too)."""
        self.sets[index.size(1)] = TupleSet(index, self.graph_of_node[index[:, 0]], {distinct(index.size(1)): slice(0, index.size(0))})
        return self

    def take(self, values: Tensor, classes: tuple[EquivalenceClass, ...]) -> Tensor:
        """For classes without sum and of one output pattern: the one input entry of each of its tuples, side by side [r, classes x d]; 0
        where it is not stored. The gradient is a sum over sorted rows: the same bits each time."""
        if len(classes) == 1 and isinstance(only := self.light_rows(classes[0]), slice):
            return values[only]
        rows, missing, ptr, order = self.cached(("take", classes), lambda: self._taking(classes))
        if values.requires_grad and values.dtype in (torch.float32, torch.float64):
            taken = _Take.apply(values, rows, missing, ptr, order)
        else:
            taken = values.index_select(0, rows)
            taken = taken if missing is None else taken.index_fill(0, missing, 0.0)
        return taken.view(-1, len(classes) * values.size(1))

    def _taking(self, classes: tuple[EquivalenceClass, ...]) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
        """Input row of each output tuple and class, [r x classes]; which of them are missing; and the output places that use each input
        row, as (ptr, order)."""
        columns, count = [], len(self.sets[classes[0].k])
        for c in classes:
            rows = self.light_rows(c)
            columns.append(torch.arange(rows.start, rows.stop, device=self.device) if isinstance(rows, slice) else rows)
        rows = torch.stack(columns, 1).flatten()
        missing, order = (rows < 0).nonzero().squeeze(1), torch.argsort(rows, stable=True)[int((rows < 0).sum()) :]
        counts = torch.bincount(rows[order], minlength=count)
        ptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        return rows.clamp(min=0), missing if missing.numel() else None, ptr, order

    def cached(self, key: Any, build: Callable[[], Any]) -> Any:
        if key not in self._cache:
            self._cache[key] = build()
        return self._cache[key]

    def lookup(self, order: int, columns: list[Tensor]) -> Tensor:
        """Row of each tuple (columns[0][r], columns[1][r], ...) in the set of that order; -1 where it is not stored."""
        if order == 1:
            return columns[0]
        codes, rows = self.cached(("codes", order), lambda: self._codes(order))
        wanted = self._code(columns)
        found = torch.full_like(wanted, -1)
        if codes.numel():
            at = torch.searchsorted(codes, wanted).clamp(max=codes.numel() - 1)
            found = torch.where(codes[at] == wanted, rows[at], -1)
        # the rows of an order-2 diagonal are the nodes, and the sparse set's codes leave them out
        return torch.where(columns[0] == columns[1], columns[0], found) if order == 2 else found

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
        if not c.shared:
            return source.graph[rows], target.graph[target.rows[c.output_pattern]], self.num_graphs
        keys = [source.index[rows, c.input_pattern[a][0]] for a, _ in c.shared]
        queries = [target.nodes(c.output_pattern)[b] for _, b in c.shared]
        if len(keys) == 1:
            return keys[0], queries[0], self.num_nodes
        codes, place = torch.unique(torch.cat([self._code(keys), self._code(queries)]), return_inverse=True)
        return place[: keys[0].numel()], place[keys[0].numel() :], codes.numel()

    def _light_rows(self, c: EquivalenceClass) -> Tensor | slice:
        source, target = self.sets[c.k], self.sets[c.l]
        if c.k == 0:
            return target.graph[target.rows[c.output_pattern]]
        if c.k == c.l and c.blocks == tuple((a, a + c.k) for a in range(c.k)):
            return source.rows[c.input_pattern]  # i = j, all entries distinct: the rows themselves, also where tuples repeat
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

    def _codes(self, order: int) -> tuple[Tensor, Tensor]:
        return self._code(list(self.sets[order].index.unbind(1))).sort()

    def _code(self, columns: list[Tensor]) -> Tensor:
        if self.num_nodes ** len(columns) >= 2**63:
            raise ValueError(f"{self.num_nodes} nodes are too many for tuples of order {len(columns)} in one batch: use smaller batches")
        code = columns[0]
        for column in columns[1:]:
            code = code * self.num_nodes + column
        return code


class _Take(Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, rows: Tensor, missing: Tensor | None, ptr: Tensor, order: Tensor) -> Tensor:
        ctx.save_for_backward(ptr, order)
        taken = values.index_select(0, rows)
        return taken if missing is None else taken.index_fill_(0, missing, 0.0)

    @staticmethod
    @once_differentiable
    @torch.autocast("cpu", enabled=False)  # backward may be called inside autocast
    @torch.autocast("cuda", enabled=False)
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return segment_sum(grad, *ctx.saved_tensors), None, None, None, None


def segment_sum(values: Tensor, ptr: Tensor, order: Tensor) -> Tensor:
    """Row i is the sum of values[order[ptr[i] : ptr[i + 1]]]: [r, d] -> [len(ptr) - 1, d]."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta", UserWarning)
        matrix = torch.sparse_csr_tensor(
            ptr, order, values.new_ones(order.numel()), (ptr.numel() - 1, values.size(0)), check_invariants=False
        )
    return matrix @ values


def _has_pattern(index: Tensor, pattern: Partition) -> Tensor:
    """Which tuples [m, order] have exactly this equality pattern, bool [m]."""
    keep = torch.ones(index.size(0), dtype=torch.bool, device=index.device)
    for a, block in enumerate(pattern):
        for position in block[1:]:
            keep &= index[:, position] == index[:, block[0]]
        for other in pattern[:a]:
            keep &= index[:, other[0]] != index[:, block[0]]
    return keep
