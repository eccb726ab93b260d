"""Higher-order self-attention Attn_{k->l} (Kim et al. 2021, Section 3.2 and 4): softmax and kernel form on a `Support`.

Classes without a sum over the input have one key per query, so their attention is 1 and they are a lightweight linear layer; each of the
others attends: softmax over exactly the keys of the class (Eq. 12, 17), or a kernel with keys and queries decoupled (Eq. 21), linear in
stored entries.
"""

import math
from collections.abc import Callable
from itertools import groupby
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gt_models.hot.class_softmax import masked_attention
from gt_models.hot.equivalence_classes import EquivalenceClass, Partition, distinct, equivalence_classes, set_partitions
from gt_models.hot.equivariant_linear import EquivariantLinear, class_sum
from gt_models.hot.support import Support
from gt_models.kernels.kernel_attention import Groups, attend, kernel_attention
from gt_models.nn.performer import RandomFeatures, softmax_kernel

ATTENTIONS = ("softmax", "kernel", "ones")


class HigherOrderAttention(nn.Module):
    """Attn_{k->l}: [rows of order k, hidden_dim] -> [rows of order l, hidden_dim].

    Args:
        k, l: input and output order.
        hidden_dim: width of input and output.
        qk_dim, v_dim: widths of queries and keys, and of values, over all heads of one class.
        num_heads: divides both.
        dropout: on the classes' outputs before the output projection.
        attention: "softmax", "kernel" (l = 0 is always softmax, which is linear there), or "ones": every coefficient is 1 (Theorem 1).
        key_order: "unique": keys of as many nodes as their input tuple has (Proposition 1); "summed": of its summed nodes only (authors).
        key_diagonal: kernel form: whether sums over row or column neighbours contain the diagonal entry too (authors), or the union of
            the class' keys, which does not (Eq. 21).
        key_stabilizer: softmax kernel: the keys' maximum is taken over a "graph" (per slot and head) or the whole "call" (authors).
        global_classes: False removes the classes in which input and output share no node (Section 5, "w/o global").
        distinct_output: the output lives on tuples of distinct nodes only (hyperedges).
        normalize: see `EquivariantLinear`; matters for l = 0 alone.
    """

    def __init__(
        self,
        k: int,
        l: int,
        hidden_dim: int,
        qk_dim: int,
        v_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        attention: str = "softmax",
        key_order: str = "unique",
        key_diagonal: bool = False,
        key_stabilizer: str = "graph",
        global_classes: bool = True,
        distinct_output: bool = False,
        normalize: bool = False,
    ):
        super().__init__()
        check_attention(qk_dim, v_dim, num_heads, attention, key_order, key_diagonal, key_stabilizer)
        self.k, self.l, self.num_heads, self.qk_dim, self.v_dim = k, l, num_heads, qk_dim, v_dim
        # deviates: Eq. (21) for l = 0. One query per graph makes softmax linear already, and the authors' implementation keeps it
        self.attention = "softmax" if l == 0 and attention == "kernel" else attention
        self.key_order, self.key_diagonal, self.key_stabilizer = key_order, key_diagonal, key_stabilizer
        classes = [
            c for c in equivalence_classes(k, l, distinct_output) if not c.is_light and (global_classes or l == 0 or not c.is_global)
        ]
        self.classes = sorted(classes, key=lambda c: (set_partitions(l).index(c.output_pattern), c.query_plan, c.key_plan))
        self.value_slots = sorted(self.classes, key=lambda c: (set_partitions(k).index(c.input_pattern), c.key_plan, c.query_plan))
        # classes of one plan share their groups; queries and keys of order o are slots of one lightweight layer k -> o, plan after plan
        self.query_plans, self.key_plans = _by(self.classes, lambda c: c.query_plan), _by(self.value_slots, lambda c: c.key_plan)
        orders = sorted({self._query_order(c) for c in self.classes} | {self._key_order(c) for c in self.classes} | {l})
        self.queries = {o: [p for p in self.query_plans if self._query_order(p[0]) == o] for o in orders}
        self.keys = {o: [p for p in self.key_plans if self._key_order(p[0]) == o] for o in orders}
        self.maps = nn.ModuleDict()
        for o in orders:
            width = qk_dim * sum(map(len, self.queries[o] + self.keys[o])) + hidden_dim * (o == l)
            self.maps[str(o)] = EquivariantLinear(
                k, o, hidden_dim, width, light=True, normalize=normalize, distinct_output=distinct_output and o == l
            )
        self.value = nn.Linear(hidden_dim, len(self.classes) * v_dim) if self.classes else None
        self.output = nn.Linear(len(self.classes) * v_dim, hidden_dim) if self.classes else None
        self.dropout = nn.Dropout(dropout)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for layer in self.maps.values():
            layer.reset_parameters()
        for layer in (self.value, self.output):
            if layer is not None:  # unstated: initialisation; as the equivariant layers'
                nn.init.xavier_normal_(layer.weight)
                nn.init.zeros_(layer.bias)

    @torch.compiler.disable  # integer look-ups of the support: little to compile
    def forward(self, values: Tensor, support: Support, features: RandomFeatures | None = None) -> Tensor:
        """values [rows of order k, hidden_dim]; `features`: the kernel's feature map. Kernel sums run in float32 under autocast."""
        if self.attention == "kernel" and features is None:
            raise ValueError("kernel attention needs its feature map: pass features=RandomFeatures(qk_dim // num_heads)")
        rows = {} if self.attention == "ones" else self._rows(values, support)
        if self.attention == "kernel":
            with torch.autocast(values.device.type, enabled=False):
                queries, keys, light_rows = self._slots({o: _full(x) for o, x in rows.items()})
                attended = self._kernel(_full(values), queries, keys, support, features)
        elif self.attention == "softmax":
            queries, keys, light_rows = self._slots(rows)
            attended = self._softmax(values, queries, keys, support)
        else:
            attended, light_rows = self._ones(values, support), None
        out, light = [], self.maps[str(self.l)]
        for pattern in light.patterns:
            if pattern == distinct(self.l) and light_rows is not None:
                part = light_rows
            else:
                part = light.at_pattern(values, support, pattern, slice(light.out_dim - values.size(1), None))  # [r, hidden]
            mine = [s for s, c in enumerate(self.classes) if c.output_pattern == pattern]
            if mine:
                joined = self.dropout(attended[pattern])  # [r, classes x v]
                weight = self.output.weight[:, mine[0] * self.v_dim : (mine[-1] + 1) * self.v_dim]
                part = part + F.linear(joined, weight, self.output.bias)  # w^O of Eq. (10)
            elif self.output is not None:
                part = part + self.output.bias
            out.append(part)
        return out[0] if len(out) == 1 else torch.cat(out)

    def _query_order(self, c: EquivalenceClass) -> int:
        return len(c.output_pattern)  # u_q of Proposition 1

    def _key_order(self, c: EquivalenceClass) -> int:
        return len(c.input_pattern) if self.key_order == "unique" else len(c.free)

    def _rows(self, values: Tensor, support: Support) -> dict[int, Tensor]:
        """Queries, then keys, of all plans of an order at its tuples of distinct nodes, and last, for order l, the light classes' part at
        the output tuples of distinct nodes: {order: [r, classes x qk (+ hidden)]}."""
        used = {o: layer for o, layer in ((int(name), layer) for name, layer in self.maps.items()) if self.queries[o] or self.keys[o]}
        return {o: layer.at_pattern(values, support, distinct(o)) for o, layer in used.items()}

    def _slots(self, rows: dict[int, Tensor]) -> tuple[dict[EquivalenceClass, Tensor], dict[EquivalenceClass, Tensor], Tensor | None]:
        """`rows` cut into queries and keys of each class, [r, heads, head], and the light part."""
        queries: dict[EquivalenceClass, Tensor] = {}
        keys: dict[EquivalenceClass, Tensor] = {}
        light_rows = None
        for o, values in rows.items():
            places = [(into, c) for into, plans in ((queries, self.queries[o]), (keys, self.keys[o])) for p in plans for c in p]
            *parts, rest = values.split([*[self.qk_dim] * len(places), values.size(1) - len(places) * self.qk_dim], 1)
            for (into, c), part in zip(places, parts, strict=True):
                into[c] = part.unflatten(1, (self.num_heads, -1))
            light_rows = rest if o == self.l else light_rows
        return queries, keys, light_rows

    def _values(self, values: Tensor, support: Support) -> dict[EquivalenceClass, Tensor]:
        """Values of each class at the entries that it sums over, [r, heads, head]: one product for all that sum over the same ones."""
        found: dict[EquivalenceClass, Tensor] = {}
        for rows, group in groupby(self.value_slots, lambda c: self._key_rows(support, c)):
            classes, first = list(group), len(found) * self.v_dim
            part = slice(first, first + len(classes) * self.v_dim)
            v = F.linear(values[rows], self.value.weight[part], self.value.bias[part])  # w^V of Eq. (10)
            found |= {c: x.unflatten(1, (self.num_heads, -1)) for c, x in zip(classes, v.split(self.v_dim, 1), strict=True)}
        return found

    def _wide(self, c: EquivalenceClass) -> bool:
        """Whether the class sums over the input tuples of every pattern."""
        return self.key_diagonal and self.attention == "kernel" and len(c.input_pattern) > 1 and bool(c.shared)

    def _key_rows(self, support: Support, c: EquivalenceClass) -> slice:
        """The entries that the class sums over."""
        return slice(0, len(support.sets[c.k])) if self._wide(c) else support.sets[c.k].rows[c.input_pattern]

    def _kernel(self, values: Tensor, queries: dict, keys: dict, support: Support, features: RandomFeatures) -> dict[Partition, Tensor]:
        """Eq. (21) for all classes: sums of phi(K) V^T once per group, read by the queries of the group."""
        v, attended = self._values(values, support), {}
        # a copy: a projection drawn anew in place must not change a backward pass to come
        projection = features.projection.to(values.dtype, copy=True)
        top: dict[int, Tensor] = {}  # one call of the authors' feature map takes the keys of one order
        if self.key_stabilizer == "call" and features.kernel == "softmax":
            top = {o: _call_maximum([keys[c] for p in plans for c in p], features) for o, plans in self.keys.items() if plans}
        for pattern in dict.fromkeys(c.output_pattern for c in self.classes):
            outputs = []
            for c in (c for c in self.classes if c.output_pattern == pattern):
                groups, source, q, k = self._groups(support, c), self._query_source(support, c), queries[c], keys[c]
                q = q if source is None else q.index_select(0, source)
                if features.kernel == "relu":
                    out = kernel_attention(q, k, v[c], projection * q.size(-1) ** -0.25, features.eps, groups)
                else:
                    stabilizer = self._key_stabilizer(k, groups, support, c, features, top.get(self._key_order(c)))
                    phi_q = softmax_kernel(q, projection, True, features.eps, detach=False)
                    phi_k = softmax_kernel(k, projection, False, features.eps, stabilizer=stabilizer)
                    out = attend(phi_q, phi_k, v[c], groups)
                outputs.append(out.flatten(1))
            attended[pattern] = torch.cat(outputs, 1)  # [r, classes x v]
        return attended

    def _key_stabilizer(
        self, keys: Tensor, groups: Groups, support: Support, c: EquivalenceClass, features: RandomFeatures, top: Tensor | None
    ) -> Tensor:
        """The softmax kernel's, of each key [K, heads, 1]: `top`, or the maximum over the graph's keys."""
        if top is not None:
            return top
        graph = support.sets[c.k].graph[self._key_rows(support, c)]  # of each entry
        here = _projected(keys, features).amax(-1)  # [K, heads]
        here = here if groups.key is None else here.index_select(0, groups.key)  # [E, heads]
        most = here.new_full((support.num_graphs, here.size(1)), -math.inf)
        most = most.scatter_reduce(0, graph[:, None].expand_as(here), here, "amax")
        if groups.key is not None:
            graph = graph.new_zeros(len(keys)).index_copy_(0, groups.key, graph)  # of each key that an entry has
        return most.masked_fill(most == -math.inf, 0.0).index_select(0, graph)[..., None]

    def _softmax(self, values: Tensor, queries: dict, keys: dict, support: Support) -> dict[Partition, Tensor]:
        """Eq. (17): for each class softmax over exactly its keys."""
        v, attended = self._values(values, support), {}
        for pattern in dict.fromkeys(c.output_pattern for c in self.classes):
            outputs = []
            for c in (c for c in self.classes if c.output_pattern == pattern):
                sources = self._query_source(support, c), self._key_source(support, c)
                outputs.append(masked_attention(queries[c], keys[c], v[c], *sources, support, c))
            attended[pattern] = torch.stack(outputs, 1).flatten(1)  # [r, classes x v]
        return attended

    def _ones(self, values: Tensor, support: Support) -> dict[Partition, Tensor]:
        """alpha = 1 on every class (proof of Theorem 1)."""
        attended = {}
        for pattern in dict.fromkeys(c.output_pattern for c in self.classes):
            outputs = []
            for c in (c for c in self.classes if c.output_pattern == pattern):
                s = self.value_slots.index(c) * self.v_dim
                v = F.linear(values, self.value.weight[s : s + self.v_dim], self.value.bias[s : s + self.v_dim])
                outputs.append(class_sum(v, support, c))
            attended[pattern] = torch.cat(outputs, 1)
        return attended

    def _groups(self, support: Support, c: EquivalenceClass) -> Groups:
        def build() -> Groups:
            return Groups(*support.groups(c, self._wide(c)), self._key_source(support, c))

        return support.cached(("groups of the kernel", c, self._wide(c), self.key_order), build)

    def _key_source(self, support: Support, c: EquivalenceClass) -> Tensor | None:
        """For each entry that the class sums over, the row of its key among the distinct tuples of the key's order; None: itself."""
        blocks = tuple(range(len(c.input_pattern))) if self.key_order == "unique" else c.free
        if len(blocks) == c.k:
            return None
        columns = [support.sets[c.k].index[self._key_rows(support, c), c.input_pattern[a][0]] for a in blocks]
        return support.cached(("key source", c.k, c.input_pattern, blocks, self._wide(c)), lambda: _rows_of_distinct(support, columns))

    def _query_source(self, support: Support, c: EquivalenceClass) -> Tensor | None:
        """The same for queries."""
        if len(c.output_pattern) == c.l:
            return None
        columns = support.sets[c.l].nodes(c.output_pattern)
        return support.cached(("query source", c.l, c.output_pattern), lambda: _rows_of_distinct(support, columns))


def _full(x: Tensor) -> Tensor:
    """Half precision to single: random features and long sums need its mantissa."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _projected(u: Tensor, features: RandomFeatures) -> Tensor:
    return (u * u.size(-1) ** -0.25) @ features.projection.to(u.dtype).T


def _call_maximum(keys: list[Tensor], features: RandomFeatures) -> Tensor:
    """One stabiliser for all keys of one order, at least 0 (authors: padding takes part in the maximum)."""
    largest = [_projected(k, features).amax() for k in keys if k.numel()]
    return torch.stack(largest or [features.projection.new_zeros(())]).amax().clamp(min=0.0)


def _by(classes: list[EquivalenceClass], key: Callable[[EquivalenceClass], Any]) -> list[list[EquivalenceClass]]:
    """Classes that lie side by side and have one key, together."""
    return [list(group) for _, group in groupby(classes, key)]


def _rows_of_distinct(support: Support, columns: list[Tensor]) -> Tensor | None:
    """Rows among the tuples of distinct nodes; None where they are 0, 1, 2, ... (the diagonal of order 2 and the nodes)."""
    order = len(columns)
    rows = support.lookup(order, columns) - support.sets[order].rows[distinct(order)].start
    whole = rows.numel() == len(support.sets[1]) and order == 1 and bool((rows == torch.arange(rows.numel(), device=rows.device)).all())
    return None if whole else rows


def check_attention(
    qk_dim: int,
    v_dim: int,
    num_heads: int,
    attention: str,
    key_order: str = "unique",
    key_diagonal: bool = False,
    key_stabilizer: str = "graph",
) -> None:
    """Raises ValueError for settings that cannot be, saying what can."""
    for name, width in (("qk_dim", qk_dim), ("v_dim", v_dim)):
        if num_heads < 1 or width % num_heads:
            raise ValueError(f"{name} {width} does not split into {num_heads} heads: make it a multiple of num_heads")
    for name, value, known in (
        ("attention", attention, ATTENTIONS),
        ("key_order", key_order, ("unique", "summed")),
        ("key_stabilizer", key_stabilizer, ("graph", "call")),
    ):
        if value not in known:
            raise ValueError(f"unknown {name} {value!r}; known: {', '.join(known)}")
    if key_diagonal and key_order == "unique":
        raise ValueError("key_diagonal=True sums over entries (i, i), which have no key of two distinct nodes: set key_order='summed'")
