"""Equivariant linear layers L_{k->l} (Maron et al. 2019; Kim et al. 2021, Eq. 1, 14, 15), full and lightweight.

Time and memory are linear in the stored entries.
"""

import torch
from torch import Tensor, nn

from gt_models.hot.equivalence_classes import (
    EquivalenceClass,
    Partition,
    equivalence_classes,
    light_classes,
    set_partitions,
)
from gt_models.hot.support import Support


class EquivariantLinear(nn.Module):
    """L_{k->l}(A)_j = sum_mu sum_i B^mu_ij A_i w_mu + sum_lambda C^lambda_j b_lambda (Eq. 1, 14, 15).

    It has one weight per equivalence class mu and one bias per equality pattern lambda of the output tuple j. B^mu_ij
    is 1 if (i, j) is in mu, else 0.

    Args:
        k: input order.
        l: output order.
        in_dim: input width.
        out_dim: output width.
        light: use only classes without a sum over the input (Eq. 14).
        normalize: take the mean over the stored entries of a class, as the authors' code does; False sums them (Eq.
            15).
        distinct_output: the output is stored only on tuples of distinct nodes (hyperedges).
        global_classes: False drops the classes in which input and output share no node (ignored for l = 0, which has no
            other class).
        bias: whether the layer has biases.

    Attributes:
        classes: the equivalence classes mu. Rows a * in_dim to (a + 1) * in_dim of `weight` belong to class a.
        patterns: the equality patterns lambda, in the order of the rows of `bias` and of the output.
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
            # unstated: how layers l -> l act on hyperedges. Elementwise: the other orders of a hyperedge are not
            # stored.
            classes = tuple(c for c in classes if not c.is_light or c.blocks == tuple((i, i + k) for i in range(k)))
        self.classes = tuple(c for c in classes if global_classes or l == 0 or not c.is_global)
        self.patterns: tuple[Partition, ...] = tuple(
            p for p in set_partitions(l) if any(c.output_pattern == p for c in self.classes)
        )
        self.weight = nn.Parameter(torch.empty(len(self.classes) * in_dim, out_dim))
        self.bias = nn.Parameter(torch.empty(len(self.patterns), out_dim)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        # unstated: initialisation. The authors' implementation: one xavier_normal over the whole [classes x in, out]
        # matrix. In their extension for hyperedges (gps, movielens, drug; hot_pytorch/models/extension.py) the
        # feed-forward differs: plain nn.Linear with torch's start; here it is xavier_normal there too
        nn.init.xavier_normal_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, values: Tensor, support: Support) -> Tensor:
        """Map a tensor of order k to one of order l.

        Args:
            values: A, [rows of order k, in_dim].
            support: the stored tuples.

        Returns:
            [rows of order l, out_dim].
        """
        parts = [self.class_sums(values, support, p) @ weight for p, weight in self.weights()]  # Eq. (15)
        if self.bias is not None:
            parts = [part + bias for part, bias in zip(parts, self.bias.unbind(), strict=True)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def weights(self) -> list[tuple[Partition, Tensor]]:
        """Each output pattern and the weights of its classes, [classes x in_dim, out_dim]."""
        rows = [len(self.classes_of(p)) * self.in_dim for p in self.patterns]
        return list(zip(self.patterns, self.weight.split(rows), strict=True))

    def classes_of(self, pattern: Partition) -> tuple[EquivalenceClass, ...]:
        """The classes of one output pattern, those without a sum first."""
        return tuple(c for c in self.classes if c.output_pattern == pattern)

    def class_sums(self, values: Tensor, support: Support, pattern: Partition) -> Tensor:
        """sum_i B^mu_ij A_i for the classes mu of one output pattern, [tuples j, classes x in_dim]."""
        classes = self.classes_of(pattern)
        light = tuple(c for c in classes if c.is_light)
        sums = [support.gather(values, light)] if light else []
        for c in classes[len(light) :]:
            total = class_sum(values, support, c)
            if self.normalize:
                total = total / class_count(support, c).clamp(min=1).to(total.dtype)[:, None]
            sums.append(total)
        return sums[0] if len(sums) == 1 else torch.cat(sums, 1)

    def extra_repr(self) -> str:
        return (
            f"{self.k} -> {self.l}, {self.in_dim} -> {self.out_dim}, {len(self.classes)} classes, "
            f"normalize={self.normalize}"
        )


def class_sum(values: Tensor, support: Support, c: EquivalenceClass) -> Tensor:
    """sum_i B^mu_ij A_i over the stored tuples i, for one class mu (Eq. 15).

    It is the sum over all input tuples that share the class' shared nodes with j, minus those in which a summed node
    equals an output node (inclusion and exclusion over coarser classes). This is linear in the stored entries. The
    definition is quadratic.

    Args:
        values: A, [rows of order k, d].
        support: the stored tuples.
        c: the class mu.

    Returns:
        [output tuples j of the class' pattern, d].
    """
    if c.is_light:
        return support.gather(values, (c,))
    key_group, query_group, num_groups = support.cached(("groups", c), lambda: support.groups(c))
    keys = values[support.sets[c.k].rows[c.input_pattern]]
    sums = keys.new_zeros(num_groups, keys.size(1)).index_add(0, key_group, keys)  # [groups, d]
    total = sums.index_select(0, query_group)
    for coarser in c.coarser:
        total = total - class_sum(values, support, coarser)
    return total


def class_count(support: Support, c: EquivalenceClass) -> Tensor:
    """Number of stored tuples i that are in the class with each output tuple, float64 [output tuples]."""

    def count() -> Tensor:
        ones = torch.ones(len(support.sets[c.k]), 1, dtype=torch.float64, device=support.device)
        return class_sum(ones, support, c).squeeze(1)

    return support.cached(("count", c), count)
