"""Equivariant linear layers L_{k->l} (Maron et al. 2019; Kim et al. 2021, Eq. 1, 2, 14, 15), full and lightweight: linear in entries."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gt_models.hot.equivalence_classes import (
    EquivalenceClass,
    Partition,
    equivalence_classes,
    light_classes,
    set_partitions,
)
from gt_models.hot.support import Support
from gt_models.kernels.row_linear import row_linear

LARGE = 1 << 20  # multiplications from which `row_linear` has a faster form than torch


class EquivariantLinear(nn.Module):
    """L_{k->l}: one weight per equivalence class, one bias per pattern of the output.

    Args:
        k, l: input and output order.
        in_dim, out_dim: widths.
        light: only classes that need no sum over the input (Eq. 14).
        normalize: False sums over the stored entries of a class (Eq. 15); True takes their mean, as the authors' implementation does.
        distinct_output: the output is stored on tuples of distinct nodes only (hyperedges).
        global_classes: False drops the classes in which input and output share no node (not for l = 0, where nothing else exists).
        bias: whether there are biases.
    """

    def __init__(
        self,
        k: int,
        l: int,
        in_dim: int,
        out_dim: int,
        light: bool = False,
        normalize: bool = False,
        distinct_output: bool = False,
        global_classes: bool = True,
        bias: bool = True,
    ):
        super().__init__()
        self.k, self.l, self.in_dim, self.out_dim, self.normalize = k, l, in_dim, out_dim, normalize
        classes = (light_classes if light else equivalence_classes)(k, l, distinct_output)
        if distinct_output and k == l and l > 1:
            # unstated: how layers l -> l act on hyperedges. Elementwise: the other orders of a hyperedge are not stored.
            classes = tuple(c for c in classes if not c.is_light or c.blocks == tuple((i, i + k) for i in range(k)))
        self.classes = tuple(c for c in classes if global_classes or l == 0 or not c.is_global)
        self.patterns: tuple[Partition, ...] = tuple(
            p for p in set_partitions(l) if any(c.output_pattern == p for c in self.classes)
        )
        self.weight = nn.Parameter(torch.empty(len(self.classes) * in_dim, out_dim))
        self.bias = nn.Parameter(torch.empty(len(self.patterns), out_dim)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        # unstated: initialisation. The authors' implementation: one xavier_normal over the whole [classes x in, out] matrix. In their
        # extension for hyperedges (gps, movielens, drug; hot_pytorch/models/extension.py) the feed-forward differs: plain nn.Linear with
        # torch's start; here it is xavier_normal there too
        nn.init.xavier_normal_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, values: Tensor, support: Support) -> Tensor:
        """values [rows of order k, in_dim] -> [rows of order l, out_dim]."""
        weights = self.weight.split([len(self._of(p)) * self.in_dim for p in self.patterns])  # one gradient of all
        biases = [None] * len(weights) if self.bias is None else self.bias.unbind()
        parts = [
            linear(self._inputs(values, support, p), w.T, b)
            for p, w, b in zip(self.patterns, weights, biases, strict=True)
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def at_pattern(self, values: Tensor, support: Support, pattern: Partition, columns: slice = slice(None)) -> Tensor:
        """The output's `columns` at its tuples of one pattern: [r, width]."""
        first = next(a for a, c in enumerate(self.classes) if c.output_pattern == pattern)
        weight = self.weight[first * self.in_dim : (first + len(self._of(pattern))) * self.in_dim, columns]
        bias = None if self.bias is None else self.bias[self.patterns.index(pattern), columns]
        return linear(self._inputs(values, support, pattern), weight.T, bias)  # Eq. (15)

    def _of(self, pattern: Partition) -> tuple[EquivalenceClass, ...]:
        return tuple(c for c in self.classes if c.output_pattern == pattern)

    def _inputs(self, values: Tensor, support: Support, pattern: Partition) -> Tensor:
        """What each class of this pattern is given: [r, classes x in]."""
        classes = self._of(pattern)
        light = tuple(c for c in classes if c.is_light)  # these come first
        inputs = [support.take(values, light)] if light else []
        inputs += [self._sum(values, support, c) for c in classes[len(light) :]]
        return inputs[0] if len(inputs) == 1 else torch.cat(inputs, 1)

    def _sum(self, values: Tensor, support: Support, c: EquivalenceClass) -> Tensor:
        total = class_sum(values, support, c)
        return total / class_count(support, c).clamp(min=1).to(total.dtype)[:, None] if self.normalize else total

    def extra_repr(self) -> str:
        return f"{self.k} -> {self.l}, {self.in_dim} -> {self.out_dim}, {len(self.classes)} classes, normalize={self.normalize}"


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x W^T + b: [r, in], [out, in], [out] -> [r, out]. Small products are torch's own, whose gradients cost the fewest calls."""
    if torch.compiler.is_compiling() or x.size(0) * weight.numel() < LARGE:
        return F.linear(x, weight, bias)
    contiguous = (
        weight if weight.T.is_contiguous() else weight.contiguous()
    )  # oneDNN takes other strides a thousand times as long
    return row_linear(x, contiguous, bias)


def class_sum(values: Tensor, support: Support, c: EquivalenceClass) -> Tensor:
    """sum_i B^mu_ij A_i over the stored i (Eq. 15): values [rows of order k, d] -> [r, d] at the output tuples of the class' pattern.

    Sums over all keys of a group, less those where a summed node coincides with an output node (inclusion and exclusion over coarser
    classes): linear in stored entries, where the definition is quadratic.
    """
    if c.is_light:
        return support.take(values, (c,))
    key_group, query_group, num_groups = support.cached(("groups", c), lambda: support.groups(c))
    keys = values[support.sets[c.k].rows[c.input_pattern]]  # [r_k, d]
    sums = keys.new_zeros(num_groups, keys.size(1)).index_add(0, key_group, keys)  # [groups, d]
    total = sums.index_select(0, query_group)  # [r, d]
    for coarser in c.coarser:
        total = total - class_sum(values, support, coarser)
    return total


def class_count(support: Support, c: EquivalenceClass) -> Tensor:
    """How many stored i are in the class with each output tuple, float64 [r]."""

    def count() -> Tensor:
        ones = torch.ones(len(support.sets[c.k]), 1, dtype=torch.float64, device=support.device)
        return class_sum(ones, support, c).squeeze(1)

    return support.cached(("count", c), count)
