"""Higher-order attention Attn_{k->l} (Kim et al. 2021, Eq. 10, 12, 13, 16 to 21)."""

import math
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from gt_models.hot.equivalence_classes import EquivalenceClass, distinct, equivalence_classes, set_partitions
from gt_models.hot.equivariant_linear import EquivariantLinear
from gt_models.hot.padded_groups import padded_groups
from gt_models.hot.support import Support
from gt_models.layers.accelerated import accelerated
from gt_models.layers.performer import RandomFeatures
from gt_models.layers.precision import widened

LARGE = 1 << 22  # numbers from which a tensor is computed again in the backward pass instead of stored

ByClass = dict[EquivalenceClass, Tensor]


class HigherOrderAttention(nn.Module):
    """Attn_{k->l}(A)_j = sum_mu sum_i alpha^mu_ij A_i w^V_mu w^O_mu, plus a lightweight linear layer of A (Eq. 10, 16).

    A class mu without a sum over the input has one key per query, hence alpha = 1. These classes are the lightweight
    linear layer (Eq. 14). Each other class has its own queries, keys and values.

    Args:
        k: input order.
        l: output order.
        hidden_dim: width of input and output.
        qk_dim: width of queries and keys, all heads of one class together.
        v_dim: width of values, all heads of one class together.
        num_heads: number of heads; divides `qk_dim` and `v_dim`.
        dropout: dropout rate of the attended values, before w^O.
        attention: "softmax" (Eq. 17) or "kernel" (Eq. 21).
        global_classes: False removes the classes in which input and output share no node (Section 5, "w/o global").
        distinct_output: the output is stored only on tuples of distinct nodes (hyperedges).

    Attributes:
        classes: the classes that attend, by output pattern. w^O has their blocks in this order.
        value_order: the same classes by input pattern. w^V has their blocks in this order.
        query_slots: by order o, the classes whose queries have this order, in the order of the columns of `maps[o]`.
        key_slots: the same for keys, whose columns follow those of the queries.
        maps: by order o, the lightweight layer k -> o that gives the queries and keys of order o (Proposition 1). The
            last `hidden_dim` columns of `maps[l]` are the lightweight linear layer of Eq. (10).
    """

    # the authors' code differs here (gt_models.released.hot)
    normalize = False

    def __init__(
        self, k: int, l: int, hidden_dim: int, qk_dim: int, v_dim: int, num_heads: int, dropout: float = 0.0,
        attention: str = "softmax", global_classes: bool = True, distinct_output: bool = False,
    ):  # fmt: skip
        super().__init__()
        check_attention(qk_dim, v_dim, num_heads, attention)
        # deviates: Eq. (21) for l = 0. One query per graph makes softmax linear already, and the authors'
        # implementation keeps it
        self.attention = "softmax" if l == 0 else attention
        self.k, self.l, self.num_heads, self.qk_dim, self.v_dim = k, l, num_heads, qk_dim, v_dim
        found = [
            c
            for c in equivalence_classes(k, l, distinct_output)
            if not c.is_light and (global_classes or l == 0 or not c.is_global)
        ]
        outputs, inputs = set_partitions(l).index, set_partitions(k).index
        self.classes = sorted(found, key=lambda c: (outputs(c.output_pattern), c.query_plan, c.key_plan))
        self.value_order = sorted(found, key=lambda c: (inputs(c.input_pattern), c.key_plan, c.query_plan))
        query_order, key_order = (lambda c: len(c.output_pattern)), (lambda c: len(self.key_blocks(c)))
        orders = sorted({query_order(c) for c in found} | {key_order(c) for c in found} | {l})
        self.query_slots = {o: [c for c in self.classes if query_order(c) == o] for o in orders}
        self.key_slots = {o: [c for c in self.value_order if key_order(c) == o] for o in orders}
        self.maps = nn.ModuleDict()
        for o in orders:
            width = qk_dim * len(self.query_slots[o] + self.key_slots[o]) + hidden_dim * (o == l)
            only_distinct = distinct_output and o == l
            self.maps[str(o)] = EquivariantLinear(
                k, o, hidden_dim, width, light=True, normalize=self.normalize, distinct_output=only_distinct
            )
        self.value = nn.Linear(hidden_dim, len(found) * v_dim) if found else None
        self.output = nn.Linear(len(found) * v_dim, hidden_dim) if found else None
        self.dropout = nn.Dropout(dropout)
        self.reset_parameters()

    def key_blocks(self, c: EquivalenceClass) -> tuple[int, ...]:
        """Blocks of the input pattern at whose nodes the keys are computed: all of them (Proposition 1)."""
        return tuple(range(len(c.input_pattern)))

    def sums_all_patterns(self, c: EquivalenceClass) -> bool:
        """Whether the class sums over input tuples of every pattern: never (Eq. 21)."""
        return False

    def reset_parameters(self) -> None:
        for layer in self.maps.values():
            layer.reset_parameters()  # type: ignore[operator]
        for linear in (self.value, self.output):
            if linear is not None:  # unstated: initialisation; as the equivariant layers'
                nn.init.xavier_normal_(linear.weight)
                nn.init.zeros_(linear.bias)

    @accelerated
    def forward(self, values: Tensor, support: Support, features: RandomFeatures | None = None) -> Tensor:
        """Attend from the output tuples to the input tuples.

        Args:
            values: A, [rows of order k, hidden_dim].
            support: the stored tuples.
            features: feature map phi of kernel attention. Its sums run in float32 at least, also under autocast.

        Returns:
            [rows of order l, hidden_dim].

        Raises:
            ValueError: kernel attention without a feature map.
        """
        queries, keys, linear_path = self.queries_and_keys(values, support)
        if self.value is None or self.output is None:
            return linear_path
        heads = self.value(values).unflatten(1, (len(self.classes), self.num_heads, -1))  # A_i w^V_mu
        of_class = dict(zip(self.value_order, heads.unbind(1), strict=True))
        if self.attention == "softmax":
            attended = self.softmax_attention(queries, keys, of_class, support)
        else:
            attended = self.kernel_attention(queries, keys, of_class, support, features)
        return linear_path + self.output(self.concatenate(attended, support).to(values.dtype))  # Eq. (10), (16)

    def queries_and_keys(self, values: Tensor, support: Support) -> tuple[ByClass, ByClass, Tensor]:
        """Q^mu and K^mu on the tuples of distinct nodes of their orders (Eq. 13, Proposition 1), and the linear path.

        Args:
            values: A, [rows of order k, hidden_dim].
            support: the stored tuples.

        Returns:
            Queries and keys by class, [distinct tuples, heads, head width] each; the linear path, [rows of order l,
            hidden_dim].
        """
        queries: ByClass = {}
        keys: ByClass = {}
        linear_path = values
        for o, of_queries in self.query_slots.items():
            of_keys, rows = self.key_slots[o], self.maps[str(o)](values, support)  # Eq. (14)
            if o == self.l:
                linear_path = rows[:, rows.size(1) - values.size(1) :]
            slots = len(of_queries) + len(of_keys)
            at_distinct = rows[support.sets[o].rows[distinct(o)], : slots * self.qk_dim]
            parts = at_distinct.unflatten(1, (slots, self.num_heads, -1)).unbind(1) if slots else ()
            queries |= zip(of_queries, parts, strict=False)
            keys |= zip(of_keys, parts[len(of_queries) :], strict=True)
        return queries, keys, linear_path

    # -- Eq. (12) and (17) -----------------------------------------------------------------------------------------

    def softmax_attention(self, queries: ByClass, keys: ByClass, values: ByClass, support: Support) -> ByClass:
        """sum_i alpha^mu_ij V_i, alpha^mu_ij = exp(<Q_j, K_i> / sqrt(d)) / Z_j for (i, j) in mu, else 0 (Eq. 12, 17).

        Args:
            queries: by class, [distinct tuples, heads, d].
            keys: by class, [distinct tuples, heads, d].
            values: by class, [rows of order k, heads, d_v].
            support: the stored tuples.

        Returns:
            By class, [output tuples of its pattern, heads, d_v].
        """
        found = {}
        for c in self.classes:
            query = take(queries[c], self.query_rows(support, c))
            key = take(keys[c], self.key_rows(support, c))
            value = values[c][support.sets[c.k].rows[c.input_pattern]]
            groups = support.cached(("padded groups", c), partial(padded_groups, support, c))
            parts = [
                self.attend(part.pad_queries(query), part.pad_keys(key), part.pad_keys(value), part.mask)
                for part in groups.parts
            ]
            found[c] = groups.unpad(parts, value)
        return found

    @accelerated
    def attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        """softmax_i(<Q_j, K_i> / sqrt(d)) V_i over the pairs that `mask` allows.

        Args:
            query: [groups, heads, L_q, d].
            key: [groups, heads, L_k, d].
            value: [groups, heads, L_k, d_v].
            mask: (i, j) in mu, bool [groups, 1, L_q, L_k].

        Returns:
            [groups, heads, L_q, d_v].
        """
        scores = query @ key.mT / math.sqrt(query.size(-1))
        return scores.masked_fill(~mask, -math.inf).softmax(-1).to(value.dtype) @ value

    # -- Eq. (18) to (21) ------------------------------------------------------------------------------------------

    def kernel_attention(
        self, queries: ByClass, keys: ByClass, values: ByClass, support: Support, features: RandomFeatures | None
    ) -> ByClass:
        """phi(Q_j)^T sum_{i in I} phi(K_i) V_i^T / phi(Q_j)^T sum_{i in I} phi(K_i) (Eq. 21).

        Args:
            queries: by class, [distinct tuples, heads, d].
            keys: by class, [distinct tuples, heads, d].
            values: by class, [rows of order k, heads, d_v].
            support: the stored tuples.
            features: phi.

        Returns:
            By class, [output tuples of its pattern, heads, d_v], float32 at least.

        Raises:
            ValueError: `features` is None.
        """
        if features is None:
            raise ValueError(
                "kernel attention needs its feature map: pass features=RandomFeatures(qk_dim // num_heads)"
            )
        found = {}
        device = next(iter(values.values())).device.type
        with torch.autocast(device, enabled=False):
            queries, keys, values = ({c: widened(x) for c, x in xs.items()} for xs in (queries, keys, values))
            stabilizers = self.key_stabilizers(keys, support, features) if features.kernel == "softmax" else {}
            for c in self.classes:
                phi_query = features(take(queries[c], self.query_rows(support, c)), True)
                phi_key = features(keys[c], False, stabilizer=stabilizers.get(c))
                found[c] = grouped_attention(
                    phi_query, take(phi_key, self.key_rows(support, c)), values[c][self.entries(support, c)],
                    *support.groups(c, self.sums_all_patterns(c)),
                )  # fmt: skip
        return found

    def key_stabilizers(self, keys: ByClass, support: Support, features: RandomFeatures) -> ByClass:
        """The stabilizer of the softmax kernel for each class' keys.

        It is the maximum of c P K over the keys of a graph and head. It cancels in Eq. (21) except for eps.

        Args:
            keys: by class, [distinct tuples, heads, d].
            support: the stored tuples.
            features: phi.

        Returns:
            By class, [distinct tuples, heads, 1].
        """
        found, num_graphs = {}, support.num_graphs
        for c in self.classes:
            entries, source = self.entries(support, c), self.key_rows(support, c)
            graph = support.counted(c.k, entries, support.sets[c.k].graph[entries], num_graphs)  # [entries]
            per_key = scaled_projection(keys[c], features).amax(-1)  # [keys, heads]
            per_entry = take(per_key, source)
            most = per_key.new_full((num_graphs + 1, per_key.size(1)), -math.inf)
            most = most.scatter_reduce(0, graph[:, None].expand_as(per_entry), per_entry, "amax")
            if source is not None:  # the graph of each key that an entry has
                graph = graph.new_full((len(per_key),), num_graphs).scatter_reduce(0, source, graph, "amin")
            found[c] = most.masked_fill(most == -math.inf, 0.0).index_select(0, graph)[..., None]
        return found

    # -- indices ---------------------------------------------------------------------------------------------------

    def entries(self, support: Support, c: EquivalenceClass) -> slice:
        """The input tuples i that the class sums over, as rows of order k."""
        return (
            slice(0, len(support.sets[c.k])) if self.sums_all_patterns(c) else support.sets[c.k].rows[c.input_pattern]
        )

    def key_rows(self, support: Support, c: EquivalenceClass) -> Tensor | None:
        """f_k of Proposition 1: the row of each entry's key, long [entries]; None if entry e has key e."""
        blocks, every = self.key_blocks(c), self.sums_all_patterns(c)
        if len(blocks) == c.k or (len(c.input_pattern) == 1 == len(blocks)):  # the one row of a node is its number
            return None
        columns = [support.sets[c.k].index[self.entries(support, c), c.input_pattern[a][0]] for a in blocks]
        return support.cached(
            ("key rows", c.k, c.input_pattern, blocks, every), lambda: support.rows_of_distinct(columns)
        )

    def query_rows(self, support: Support, c: EquivalenceClass) -> Tensor | None:
        """f_q of Proposition 1: the row of each output tuple's query, long [tuples]; None if tuple j has query j."""
        if len(c.output_pattern) == c.l or len(c.output_pattern) == 1:
            return None
        columns = support.sets[c.l].nodes(c.output_pattern)
        return support.cached(("query rows", c.l, c.output_pattern), lambda: support.rows_of_distinct(columns))

    def concatenate(self, attended: ByClass, support: Support) -> Tensor:
        """The classes side by side, with dropout and zeros where an output tuple does not have a class' pattern.

        Args:
            attended: by class, [output tuples of its pattern, heads, d_v].
            support: the stored tuples.

        Returns:
            [rows of order l, classes x v_dim].
        """
        parts, before = [], 0
        width = len(self.classes) * self.v_dim
        for pattern, rows in support.sets[self.l].rows.items():
            mine = [attended[c] for c in self.classes if c.output_pattern == pattern]
            if mine:
                part = self.dropout(torch.stack(mine, 1).flatten(1))
                parts.append(F.pad(part, (before, width - before - part.size(1))))
                before += part.size(1)
            else:
                parts.append(next(iter(attended.values())).new_zeros(rows.stop - rows.start, width))
        return parts[0] if len(parts) == 1 else torch.cat(parts)


def grouped_attention(
    phi_query: Tensor, phi_key: Tensor, value: Tensor, key_group: Tensor, query_group: Tensor, num_groups: int
) -> Tensor:
    """Kernel attention of each query to the keys of its group (Eq. 21).

    Stores [groups, heads, m, d_v + 1] for the backward pass. A query without keys gets zeros.

    Args:
        phi_query: [queries, heads, m].
        phi_key: [keys, heads, m].
        value: [keys, heads, d_v].
        key_group: long [keys].
        query_group: long [queries].
        num_groups: number of groups.

    Returns:
        [queries, heads, d_v].
    """
    with_one = torch.cat([value, torch.ones_like(value[..., :1])], -1)  # the last channel gives sum_i phi(K_i)
    outer = phi_key[..., :, None] * with_one[..., None, :]  # [keys, heads, m, d_v + 1]
    sums = outer.new_zeros(num_groups, *outer.shape[1:]).index_add(0, key_group, outer)
    arguments = (phi_query, sums, query_group)
    if phi_query.numel() * sums.size(-1) > LARGE:
        read = checkpoint(_read, *arguments, use_reentrant=False, preserve_rng_state=False)
    else:
        read = _read(*arguments)
    numerator, z = read.split([value.size(-1), 1], -1)
    return numerator / z.masked_fill(z == 0, 1.0)


def _read(phi: Tensor, sums: Tensor, group: Tensor) -> Tensor:
    """phi(Q_j)^T S of the query's group, [queries, heads, d_v + 1]."""
    return (phi[..., None, :] @ sums.index_select(0, group)).squeeze(-2)


def scaled_projection(u: Tensor, features: RandomFeatures) -> Tensor:
    """`c` P u with c = d^-1/4, [..., d] -> [..., m]."""
    return (u * u.size(-1) ** -0.25) @ features.projection.to(u.dtype).T


def take(x: Tensor, rows: Tensor | None) -> Tensor:
    """These rows of x; all of them if `rows` is None."""
    return x if rows is None else x.index_select(0, rows)


def check_attention(qk_dim: int, v_dim: int, num_heads: int, attention: str) -> None:
    """Check the settings of attention.

    Raises:
        ValueError: a width that is no multiple of `num_heads`, or an unknown kind of attention.
    """
    for name, width in (("qk_dim", qk_dim), ("v_dim", v_dim)):
        if num_heads < 1 or width % num_heads:
            raise ValueError(f"{name} {width} does not split into {num_heads} heads: make it a multiple of num_heads")
    if attention not in ("softmax", "kernel"):
        raise ValueError(f"unknown attention {attention!r}; known: softmax, kernel")
