"""HOT: kernel attention of a layer in one call, on the CPU; fused softmax attention.

The products of attention are formed only for the rows and columns that are read: values at the entries that a class
sums over, w^O of the classes of an output pattern.
"""

from itertools import groupby

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gt_models.hot.attention import HigherOrderAttention
from gt_models.hot.equivalence_classes import EquivalenceClass, Partition, distinct
from gt_models.hot.equivariant_linear import EquivariantLinear
from gt_models.hot.support import Support
from gt_models.kernels.dispatch import Form, attach, differs, reads
from gt_models.kernels.grouped import Columns, Grouped, Groups
from gt_models.kernels.kernel_attention import kernel_attentions
from gt_models.kernels.multi_linear import linear
from gt_models.kernels.once_differentiable import refuse_second_derivative
from gt_models.layers.performer import RandomFeatures
from gt_models.released.hot import ReleasedAttention

LARGE = 1 << 20  # multiplications from which `linear` is faster than torch

ByClass = dict[EquivalenceClass, Columns]


# -- parts of equivariant linear layers --------------------------------------------------------------------------------


def _at_pattern(
    layer: EquivariantLinear, values: Tensor, support: Support, pattern: Partition, columns: slice = slice(None)
) -> Tensor:
    """The output's `columns` on the output tuples of one pattern, [output tuples, width]."""
    first, count = layer.patterns.index(pattern), len(layer.classes_of(pattern))
    bias = None if layer.bias is None else layer.bias[first, columns]
    row = layer.in_dim * next(a for a, c in enumerate(layer.classes) if c.output_pattern == pattern)
    weight = layer.weight[row : row + count * layer.in_dim, columns]
    return _product(layer.class_sums(values, support, pattern), weight.T, bias)


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`x` W^T + b for a weight [out, in]. Small products are torch's own, whose gradients have the fewest calls."""
    if x.size(0) * weight.numel() < LARGE:
        return F.linear(x, weight, bias)
    # oneDNN needs a thousand times as long for other strides
    return linear(x, weight if weight.T.is_contiguous() else weight.contiguous(), bias)


# -- kernel attention --------------------------------------------------------------------------------------------------


def kernel_attention(layer: HigherOrderAttention, values: Tensor, support: Support, features: RandomFeatures) -> Tensor:
    """`HigherOrderAttention.forward` with the ReLU kernel (Eq. 21)."""
    queries, keys, linear_path = _queries_and_keys(layer, values, support)
    by_class = _values(layer, values, support)
    patterns = [pattern for pattern, _ in groupby(layer.classes, lambda c: c.output_pattern)]
    attended = kernel_attentions(
        [_at_outputs(layer, queries[c], support, c) for c in layer.classes],
        [keys[c] for c in layer.classes],
        [by_class[c] for c in layer.classes],
        _groups(layer, support),
        [patterns.index(c.output_pattern) for c in layer.classes],
        features.projection * features.projection.size(1) ** -0.25,
        features.eps,
    )
    output: nn.Linear = layer.output  # type: ignore[assignment]
    light: EquivariantLinear = layer.maps[str(layer.l)]  # type: ignore[assignment]
    parts, before = [], 0
    for pattern in light.patterns:
        part = linear_path
        if pattern != distinct(layer.l):
            part = _at_pattern(light, values, support, pattern, slice(light.out_dim - values.size(1), None))
        if pattern in patterns:
            heads = layer.dropout(attended[patterns.index(pattern)])
            weight = output.weight[:, before : before + heads.size(1)]
            part, before = part + _product(heads, weight, output.bias), before + heads.size(1)
        else:
            part = part + output.bias
        parts.append(part)
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _queries_and_keys(layer: HigherOrderAttention, values: Tensor, support: Support) -> tuple[ByClass, ByClass, Tensor]:
    """`HigherOrderAttention.queries_and_keys`, the linear path only on output tuples of distinct nodes."""
    queries: ByClass = {}
    keys: ByClass = {}
    linear_path = values
    for o, of_queries in layer.query_slots.items():
        of_keys = layer.key_slots[o]
        rows = _at_pattern(layer.maps[str(o)], values, support, distinct(o))  # type: ignore[arg-type]
        if o == layer.l:
            rows, linear_path = rows.split([rows.size(1) - values.size(1), values.size(1)], 1)
        columns = _columns(rows, len(of_queries) + len(of_keys), layer.num_heads)
        queries |= zip(of_queries, columns, strict=False)
        keys |= zip(of_keys, columns[len(of_queries) :], strict=True)
    return queries, keys, linear_path


def _values(layer: HigherOrderAttention, values: Tensor, support: Support) -> ByClass:
    """w^V at the entries that each class sums over; one product for all classes that sum over the same ones."""
    linear: nn.Linear = layer.value  # type: ignore[assignment]
    found: ByClass = {}
    groups = [list(g) for _, g in groupby(layer.value_order, lambda c: layer.sums_all_patterns(c) or c.input_pattern)]
    widths = [len(group) * layer.v_dim for group in groups]
    for group, weight, bias in zip(groups, linear.weight.split(widths), linear.bias.split(widths), strict=True):
        rows = _product(values[layer.entries(support, group[0])], weight, bias)
        found |= zip(group, _columns(rows, len(group), layer.num_heads), strict=True)
    return found


def _columns(rows: Tensor, count: int, num_heads: int) -> list[Columns]:
    """The columns of `rows` in `count` equal parts."""
    width = rows.size(1) // max(count, 1)
    return [Columns(rows, at * width, num_heads, width // num_heads) for at in range(count)]


def _at_outputs(layer: HigherOrderAttention, query: Columns, support: Support, c: EquivalenceClass) -> Columns:
    """From the queries of distinct tuples to those of the output tuples of a class."""
    rows = layer.query_rows(support, c)
    if rows is None:
        return query
    return query._replace(rows=query.unflatten().flatten(1).index_select(0, rows), first=0)


def _groups(layer: HigherOrderAttention, support: Support) -> list[Groups]:
    """Of each class, the groups of entries and queries, and the key of each entry; cached for all equal layers."""
    alike = tuple((c, layer.sums_all_patterns(c), layer.key_blocks(c)) for c in layer.classes)
    return support.cached(
        ("groups of all classes", alike), lambda: [_groups_of(layer, support, c) for c in layer.classes]
    )


def _groups_of(layer: HigherOrderAttention, support: Support, c: EquivalenceClass) -> Groups:
    blocks, every = layer.key_blocks(c), layer.sums_all_patterns(c)
    entries, queries, number = support.groups(c, every)
    tied, key = c if len(c.shared) > 1 else (c.k, c.l), None  # groups of two shared nodes are numbered together
    if (source := layer.key_rows(support, c)) is not None:
        rows = support.sets[len(blocks)].rows[distinct(len(blocks))]
        key = support.cached(
            ("keys", c.k, c.input_pattern, blocks, every), lambda: Grouped(source, rows.stop - rows.start)
        )
    return Groups(
        support.cached(("entries", tied, c.key_plan, every), lambda: Grouped(entries, number)),
        support.cached(("queries", tied, c.query_plan), lambda: Grouped(queries, number)),
        key,
    )


def _kernel_why_not(
    layer: HigherOrderAttention, values: Tensor, support: Support, features: RandomFeatures | None = None
) -> str | None:
    if layer.attention != "kernel" or features is None or features.kernel != "relu" or layer.value is None:
        return "not the ReLU kernel"
    if torch.is_autocast_enabled(values.device.type):
        return "autocast is on"
    children = {"value": nn.Linear, "output": nn.Linear} | {f"maps.{o}": EquivariantLinear for o in layer.query_slots}
    return differs("features", features, RandomFeatures) or reads(layer, children)


for kind in (HigherOrderAttention, ReleasedAttention):
    attach(kind, "forward", "hot_attention", [Form("numba", lambda: kernel_attention, _kernel_why_not)])


# -- softmax attention -------------------------------------------------------------------------------------------------


def attend(layer: HigherOrderAttention, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """`HigherOrderAttention.attend`."""
    return refuse_second_derivative(F.scaled_dot_product_attention(query, key, value, attn_mask=mask))


for kind in (HigherOrderAttention, ReleasedAttention):
    attach(kind, "attend", "hot_softmax", [Form("fused", lambda: attend, devices=("cpu", "cuda"))])
