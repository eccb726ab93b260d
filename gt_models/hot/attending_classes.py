"""Which equivalence classes attend in Attn_{k->l}, and the queries, keys and values of each (Kim et al. 2021, Section 3.2 and 4)."""

# mypy: disable-error-code="arg-type, assignment, operator, union-attr"

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn

from gt_models.hot.equivalence_classes import EquivalenceClass, distinct, equivalence_classes, set_partitions
from gt_models.hot.equivariant_linear import EquivariantLinear, linear
from gt_models.hot.support import Support
from gt_models.kernels.grouped import Grouped
from gt_models.kernels.kernel_attention import Columns
from gt_models.kernels.kernel_attention_groups import Groups


class AttendingClasses(nn.Module):
    """Classes without a sum over the input have one key per query, so their attention is 1 and they are a lightweight linear layer (Eq. 14);
    each of the others attends, with queries, keys and values of its own.

    Args:
        k, l: input and output order.
        hidden_dim: width of input and output.
        qk_dim, v_dim: widths of queries and keys, and of values, over all heads of one class.
        num_heads: divides both.
        global_classes: False removes the classes in which input and output share no node (Section 5, "w/o global").
        distinct_output: the output lives on tuples of distinct nodes only (hyperedges).

    Attributes:
        classes: those that attend, by output pattern; lists of queries, keys and values below are in this order.
        maps: by order o, the lightweight layer k -> o that gives the queries and keys of order o (Proposition 1), and for o = l the linear path.
    """

    # the places at which the released code does otherwise
    normalize = False  # Eq. (1) sums; matters for l = 0 alone

    def key_blocks(self, c: EquivalenceClass) -> tuple[int, ...]:
        """Blocks of the input pattern whose nodes a key is computed at: all of them (Proposition 1)."""
        return tuple(range(len(c.input_pattern)))

    def takes_all_rows(self, c: EquivalenceClass) -> bool:
        """Whether the class sums over the input tuples of every pattern: never, by Eq. (21)."""
        return False

    def __init__(
        self,
        k: int,
        l: int,
        hidden_dim: int,
        qk_dim: int,
        v_dim: int,
        num_heads: int,
        global_classes: bool = True,
        distinct_output: bool = False,
    ):
        super().__init__()
        self.k, self.l, self.num_heads, self.qk_dim, self.v_dim = k, l, num_heads, qk_dim, v_dim
        classes = [
            c
            for c in equivalence_classes(k, l, distinct_output)
            if not c.is_light and (global_classes or l == 0 or not c.is_global)
        ]
        self.classes = sorted(
            classes, key=lambda c: (set_partitions(l).index(c.output_pattern), c.query_plan, c.key_plan)
        )
        self.value_slots = sorted(
            self.classes, key=lambda c: (set_partitions(k).index(c.input_pattern), c.key_plan, c.query_plan)
        )
        # classes of one plan share their groups; queries and keys of order o are slots of one lightweight layer k -> o, plan after plan
        query_plans, key_plans = _by(self.classes, lambda c: c.query_plan), _by(self.value_slots, lambda c: c.key_plan)
        query_order, key_order = (lambda c: len(c.output_pattern)), (lambda c: len(self.key_blocks(c)))
        orders = sorted({query_order(c) for c in self.classes} | {key_order(c) for c in self.classes} | {l})
        self.queries = {o: [p for p in query_plans if query_order(p[0]) == o] for o in orders}
        self.keys = {o: [p for p in key_plans if key_order(p[0]) == o] for o in orders}
        self.maps = nn.ModuleDict()
        for o in orders:
            width = qk_dim * sum(map(len, self.queries[o] + self.keys[o])) + hidden_dim * (o == l)
            self.maps[str(o)] = EquivariantLinear(
                k,
                o,
                hidden_dim,
                width,
                light=True,
                normalize=self.normalize,
                distinct_output=distinct_output and o == l,
            )
        self.value = nn.Linear(hidden_dim, len(self.classes) * v_dim) if self.classes else None
        self.output = nn.Linear(len(self.classes) * v_dim, hidden_dim) if self.classes else None
        # numbers of classes, for the forward pass: those of an output pattern; the queries and keys in the columns of each map; those that sum
        # over the same entries, side by side in `value`
        number = {c: s for s, c in enumerate(self.classes)}
        self.of_pattern = {p: [number[c] for c in self.classes if c.output_pattern == p] for p in set_partitions(l)}
        self.outs = [number for number, mine in enumerate(filter(None, self.of_pattern.values())) for _ in mine]
        self.columns = {
            o: ([number[c] for p in self.queries[o] for c in p], [number[c] for p in self.keys[o] for c in p])
            for o in orders
            if self.queries[o] or self.keys[o]
        }
        same_entries = _by(self.value_slots, lambda c: self.takes_all_rows(c) or c.input_pattern)
        self.value_groups = [[number[c] for c in group] for group in same_entries]
        self.grouping = (
            "groups",
            tuple((c, self.takes_all_rows(c), self.key_blocks(c)) for c in self.classes),
        )  # the same for like layers
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for layer in self.maps.values():
            layer.reset_parameters()
        for layer in (self.value, self.output):
            if layer is not None:  # unstated: initialisation; as the equivariant layers'
                nn.init.xavier_normal_(layer.weight)
                nn.init.zeros_(layer.bias)

    def queries_and_keys(
        self, values: Tensor, support: Support, single: bool
    ) -> tuple[list[Columns], list[Columns], Tensor | None]:
        """Queries and keys of each class at the tuples of distinct nodes of their order, [r, heads, head], and the light classes' part at the
        output tuples of distinct nodes, [r, hidden_dim] (None where no query or key shares its map). `single`: half precision becomes single."""
        queries: dict[int, Columns] = {}
        keys: dict[int, Columns] = {}
        light_rows = None
        for o, (of_queries, of_keys) in self.columns.items():
            rows = self.maps[str(o)].at_pattern(values, support, distinct(o))  # [r, classes x qk (+ hidden)]
            rows = full(rows) if single else rows
            if o == self.l:
                rows, light_rows = rows.split(
                    [self.qk_dim * (len(of_queries) + len(of_keys)), self.maps[str(o)].in_dim], 1
                )
            parts = self._side_by_side(rows, [*of_queries, *of_keys], self.qk_dim)
            queries |= dict(parts[: len(of_queries)])
            keys |= dict(parts[len(of_queries) :])
        return [queries[s] for s in range(len(queries))], [keys[s] for s in range(len(keys))], light_rows

    def class_values(self, values: Tensor, support: Support) -> list[Columns]:
        """w^V of Eq. (10): values of each class at the entries that it sums over, [r, heads, head]; one product for all that sum over the
        same ones."""
        found: dict[int, Columns] = {}
        if self.value is not None:
            parts = [len(group) * self.v_dim for group in self.value_groups]
            for group, weight, bias in zip(
                self.value_groups, self.value.weight.split(parts), self.value.bias.split(parts), strict=True
            ):
                v = linear(values[self.key_rows(support, self.classes[group[0]])], weight, bias)
                found |= dict(self._side_by_side(v, group, self.v_dim))
        return [found[s] for s in range(len(found))]

    def _side_by_side(self, rows: Tensor, classes: list[int], width: int) -> list[tuple[int, Columns]]:
        """The columns of each of these classes in `rows`, `width` each."""
        return [(s, Columns(rows, at * width, self.num_heads, width // self.num_heads)) for at, s in enumerate(classes)]

    def key_rows(self, support: Support, c: EquivalenceClass) -> slice:
        """The entries that the class sums over."""
        return slice(0, len(support.sets[c.k])) if self.takes_all_rows(c) else support.sets[c.k].rows[c.input_pattern]

    def groups(self, support: Support) -> list[Groups]:
        """Of each class which entries it sums over for each query, and the rows of their keys; kept on `support`."""
        return support.cached(self.grouping, lambda: [self._groups_of(support, c) for c in self.classes])

    def _groups_of(self, support: Support, c: EquivalenceClass) -> Groups:
        blocks, wide = self.key_blocks(c), self.takes_all_rows(c)
        entries, queries, number = support.groups(c, wide)
        tied, key = c if len(c.shared) > 1 else (c.k, c.l), None  # groups of two shared nodes are numbered together
        if (source := self.key_source(support, c)) is not None:
            rows = support.sets[len(blocks)].rows[distinct(len(blocks))]
            key = support.cached(
                ("keys", c.k, c.input_pattern, blocks, wide), lambda: Grouped(source, rows.stop - rows.start)
            )
        of_entries = support.cached(("entries", tied, c.key_plan, wide), lambda: Grouped(entries, number))
        return Groups(
            of_entries, support.cached(("queries", tied, c.query_plan), lambda: Grouped(queries, number)), key
        )

    def key_source(self, support: Support, c: EquivalenceClass) -> Tensor | None:
        """For each entry that the class sums over, the row of its key among the distinct tuples of the key's order; None: itself."""
        blocks, wide = self.key_blocks(c), self.takes_all_rows(c)
        if len(blocks) == c.k or (len(c.input_pattern) == 1 == len(blocks)):  # the one row of a node is its number
            return None
        columns = [support.sets[c.k].index[self.key_rows(support, c), c.input_pattern[a][0]] for a in blocks]
        return support.cached(
            ("key source", c.k, c.input_pattern, blocks, wide), lambda: support.rows_of_distinct(columns)
        )

    def query_source(self, support: Support, c: EquivalenceClass) -> Tensor | None:
        """The same for queries."""
        if len(c.output_pattern) == c.l or len(c.output_pattern) == 1:
            return None
        columns = support.sets[c.l].nodes(c.output_pattern)
        return support.cached(("query source", c.l, c.output_pattern), lambda: support.rows_of_distinct(columns))

    def at_outputs(self, queries: Columns, support: Support, c: EquivalenceClass) -> Columns:
        """From queries at the distinct tuples of their order to those at the output tuples of the class."""
        source = self.query_source(support, c)
        if source is None:
            return queries
        return queries._replace(rows=queries.unflatten().flatten(1).index_select(0, source), first=0)


def full(x: Tensor) -> Tensor:
    """Half precision to single: random features and long sums need its mantissa."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _by(classes: Iterable[EquivalenceClass], key: Callable[[EquivalenceClass], Any]) -> list[list[EquivalenceClass]]:
    """Classes that lie side by side and have one key, together."""
    return [list(group) for _, group in groupby(classes, key)]
