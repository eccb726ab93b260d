"""Higher-order self-attention Attn_{k->l} (Kim et al. 2021, Section 3.2 and 4): softmax and kernel form on a `Support`.

Classes without a sum over the input have one key per query, so their attention is 1 and they are a lightweight linear layer; each of the
others attends: softmax over exactly the keys of the class (Eq. 12, 17), or a kernel with keys and queries decoupled (Eq. 21), linear in
stored entries.
"""

from collections.abc import Callable
from itertools import groupby
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gt_models.nn.equivariant_linear import EquivariantLinear, class_sum
from gt_models.nn.partitions import EquivalenceClass, Partition, distinct, equivalence_classes, set_partitions
from gt_models.nn.performer import RandomFeatures
from gt_models.nn.softmax_plan import masked_attention
from gt_models.nn.tiles import Chunk, Tiling, from_tiles, to_tiles
from gt_models.nn.tuples import Support

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
        self.attention = "softmax" if l == 0 and attention == "kernel" else attention
        self.key_order, self.key_diagonal, self.key_stabilizer = key_order, key_diagonal, key_stabilizer
        classes = [
            c for c in equivalence_classes(k, l, distinct_output) if not c.is_light and (global_classes or l == 0 or not c.is_global)
        ]
        self.classes = sorted(classes, key=lambda c: (set_partitions(l).index(c.output_pattern), c.query_plan, c.key_plan))
        self.value_slots = sorted(self.classes, key=lambda c: (set_partitions(k).index(c.input_pattern), c.key_plan, c.query_plan))
        # slots of each order: queries of the classes with so many output nodes, then keys; the lightweight classes ride along
        orders = sorted({self._query_order(c) for c in self.classes} | {self._key_order(c) for c in self.classes} | {l})
        self.queries = {o: [c for c in self.classes if self._query_order(c) == o] for o in orders}
        self.keys = {o: [c for c in self.value_slots if self._key_order(c) == o] for o in orders}
        self.maps = nn.ModuleDict()
        for o in orders:
            width = qk_dim * (len(self.queries[o]) + len(self.keys[o])) + hidden_dim * (o == l)
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

    def forward(self, values: Tensor, support: Support, features: RandomFeatures | None = None) -> Tensor:
        """values [rows of order k, hidden_dim]; `features`: the kernel's feature map."""
        if self.attention == "kernel" and features is None:
            raise ValueError("kernel attention needs its feature map: pass features=RandomFeatures(qk_dim // num_heads)")
        slots = self._slots(values, support)
        if self.attention == "kernel":
            attended = self._kernel(values, slots, support, features)
        else:
            attended = self._softmax(values, slots, support) if self.attention == "softmax" else self._ones(values, support)
        out = []
        light = self.maps[str(self.l)]
        skip = self.qk_dim * (len(self.queries[self.l]) + len(self.keys[self.l]))
        for pattern in light.patterns:
            if pattern == distinct(self.l) and "all" in slots:
                part = slots["all"][:, skip:]
            else:
                part = light.at_pattern(values, support, pattern, slice(skip, None))  # [r, hidden]
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

    def _slots(self, values: Tensor, support: Support) -> dict:
        """Queries and keys of each order at its tuples of distinct nodes: {("q" | "k", order): [r, slots, heads, head]}, and "all"."""
        found, h, d = {}, self.num_heads, self.qk_dim // self.num_heads
        for name, layer in self.maps.items():
            o = int(name)
            num_q, num_k = len(self.queries[o]), len(self.keys[o])
            if num_q + num_k == 0 or self.attention == "ones":
                continue
            rows = layer.at_pattern(values, support, distinct(o))  # [r, slots x qk (+ hidden)]
            if o == self.l:
                found["all"] = rows
            found["q", o] = rows[:, : num_q * self.qk_dim].unflatten(1, (num_q, h, d))
            found["k", o] = rows[:, num_q * self.qk_dim : (num_q + num_k) * self.qk_dim].unflatten(1, (num_k, h, d))
        return found

    def _values(self, values: Tensor, support: Support) -> dict[tuple[Partition, bool], Tensor]:
        """Values at the entries that classes sum over: {family: [r, slots, heads, head]}."""
        found = {}
        for family in self._families():
            mine = [s for s, c in enumerate(self.value_slots) if self._family(c) == family]
            part = slice(mine[0] * self.v_dim, (mine[-1] + 1) * self.v_dim)
            rows = values if family[1] else values[support.sets[self.k].rows[family[0]]]
            v = F.linear(rows, self.value.weight[part], self.value.bias[part])  # w^V of Eq. (10)
            found[family] = v.unflatten(1, (len(mine), self.num_heads, self.v_dim // self.num_heads))
        return found

    def _wide(self, c: EquivalenceClass) -> bool:
        """Whether the class sums over the input tuples of every pattern."""
        return self.key_diagonal and self.attention == "kernel" and len(c.input_pattern) > 1 and bool(c.shared)

    def _family(self, c: EquivalenceClass) -> tuple[Partition, bool]:
        """Classes of one family sum over the same entries."""
        return c.input_pattern, self._wide(c)

    def _families(self) -> list[tuple[Partition, bool]]:
        return list(dict.fromkeys(self._family(c) for c in self.value_slots))

    def _kernel(self, values: Tensor, slots: dict, support: Support, features: RandomFeatures) -> dict[Partition, Tensor]:
        """Eq. (21) for all classes: sums of phi(K) V^T once per group, read by the queries of the group."""
        v = {f: F.pad(x, (0, 1), value=1.0) for f, x in self._values(values, support).items()}  # a channel of ones sums to Z
        phi_k = {o: self._key_features(slots["k", o], o, support, features) for o in self.keys if self.keys[o]}
        phi_q = {o: features(slots["q", o], True) for o in self.queries if self.queries[o]}
        sums: dict[EquivalenceClass, Tensor] = {}
        for family, entries in v.items():
            mine = [c for c in self.value_slots if self._family(c) == family]
            plans = _by(mine, lambda c: c.key_plan)
            chunks = [Chunk(mine.index(cs[0]), len(cs), self._key_tiling(support, cs[0])) for cs in plans]
            for cs, chunk, v_tiles in zip(plans, chunks, to_tiles(entries, chunks), strict=True):  # [classes, tiles, heads, length, v + 1]
                o = self._key_order(cs[0])
                source = self._key_source(support, cs[0])
                (k_tiles,) = to_tiles(phi_k[o], [Chunk(self.keys[o].index(cs[0]), len(cs), chunk.tiling, source)])
                total = chunk.tiling.per_group(k_tiles.transpose(-1, -2) @ v_tiles)  # [classes, groups, heads, features, v + 1]
                sums |= {c: total[s] for s, c in enumerate(cs)}
        attended = {}
        for pattern in dict.fromkeys(c.output_pattern for c in self.classes):
            cs = [c for c in self.classes if c.output_pattern == pattern]
            o = self._query_order(cs[0])
            plans = _by(cs, lambda c: c.query_plan)
            first = self.queries[o].index(cs[0])
            source = self._query_source(support, cs[0])
            chunks = [Chunk(self.queries[o].index(p[0]), len(p), self._query_tiling(support, p[0]), source) for p in plans]
            tiles = []
            for chunk, q_tiles, p in zip(chunks, to_tiles(phi_q[o], chunks), plans, strict=True):
                read = torch.stack(
                    [q_tiles[s] @ chunk.tiling.per_tile(sums[c]) for s, c in enumerate(p)]
                )  # [classes, tiles, heads, length, v + 1]
                z = read[..., -1:]
                tiles.append(read[..., :-1] / torch.where(z == 0, 1.0, z))  # no keys: zero
            chunks = [Chunk(c.first - first, c.count, c.tiling) for c in chunks]
            attended[pattern] = from_tiles(tiles, chunks, len(cs)).flatten(1)  # [r, classes x v]
        return attended

    def _key_features(self, keys: Tensor, order: int, support: Support, features: RandomFeatures) -> Tensor:
        if features.kernel != "softmax":
            return features(keys, False)  # [r, slots, heads, features]
        with torch.no_grad():
            top = ((keys * keys.size(-1) ** -0.25) @ features.projection.to(keys.dtype).T).amax(-1)  # [r, slots, heads]
            if self.key_stabilizer == "call":
                top = top.amax().clamp(min=0.0) if top.numel() else top.new_zeros(())
            else:
                graph = support.sets[order].graph[support.sets[order].rows[distinct(order)]]
                index = graph[:, None, None].expand_as(top)
                top = top.new_zeros(support.num_graphs, *top.shape[1:]).scatter_reduce(0, index, top, "amax", include_self=False)[graph]
            top = top[..., None]
        return features(keys, False, stabilizer=top)

    def _softmax(self, values: Tensor, slots: dict, support: Support) -> dict[Partition, Tensor]:
        """Eq. (17): for each class softmax over exactly its keys."""
        v, attended = self._values(values, support), {}
        for pattern in dict.fromkeys(c.output_pattern for c in self.classes):
            outputs = []
            for c in (c for c in self.classes if c.output_pattern == pattern):
                o_q, o_k = self._query_order(c), self._key_order(c)
                q = slots["q", o_q][:, self.queries[o_q].index(c)]  # [r_q, heads, head]
                k = slots["k", o_k][:, self.keys[o_k].index(c)]
                same = [s for s in self.value_slots if self._family(s) == self._family(c)]
                x = v[self._family(c)][:, same.index(c)]
                sources = (self._query_source(support, c), self._key_source(support, c))
                outputs.append(masked_attention(q, k, x, *sources, support, c))  # [r, heads, head]
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

    def _groups(self, support: Support, c: EquivalenceClass) -> tuple[Tensor, Tensor, int]:
        return support.cached(("groups", c, self._wide(c)), lambda: support.groups(c, self._wide(c)))

    def _key_tiling(self, support: Support, c: EquivalenceClass) -> Tiling:
        def build() -> Tiling:
            keys, _, count = self._groups(support, c)
            return Tiling(keys, count)

        return support.cached(("key tiling", c.k, c.key_plan, c.l if len(c.shared) > 1 else None, self._wide(c)), build)

    def _query_tiling(self, support: Support, c: EquivalenceClass) -> Tiling:
        def build() -> Tiling:
            _, queries, count = self._groups(support, c)
            return Tiling(queries, count)

        return support.cached(("query tiling", c.l, c.query_plan, c.k if len(c.shared) > 1 else None), build)

    def _key_source(self, support: Support, c: EquivalenceClass) -> Tensor | None:
        """For each entry that the class sums over, the row of its key among the tuples of distinct nodes of the key's order; None: itself."""
        blocks = tuple(range(len(c.input_pattern))) if self.key_order == "unique" else c.free
        if len(blocks) == c.k:
            return None
        wide = self._wide(c)
        rows = slice(0, len(support.sets[c.k])) if wide else support.sets[c.k].rows[c.input_pattern]
        columns = [support.sets[c.k].index[rows, c.input_pattern[a][0]] for a in blocks]
        return support.cached(("key source", c.k, c.input_pattern, blocks, wide), lambda: _rows_of_distinct(support, columns))

    def _query_source(self, support: Support, c: EquivalenceClass) -> Tensor | None:
        """The same for queries."""
        if len(c.output_pattern) == c.l:
            return None
        columns = support.sets[c.l].nodes(c.output_pattern)
        return support.cached(("query source", c.l, c.output_pattern), lambda: _rows_of_distinct(support, columns))


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
    qk_dim: int, v_dim: int, num_heads: int, attention: str, key_order: str, key_diagonal: bool, key_stabilizer: str
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
