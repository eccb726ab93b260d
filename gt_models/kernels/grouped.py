"""Rows in groups, sorted once for all kernels that read them, and the arguments of attention within groups."""

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor


class Grouped:
    """Rows in groups.

    Args:
        of: long [r], the group of each row.
        num_groups: number of groups.
    """

    def __init__(self, of: Tensor, num_groups: int):
        self.of, self.num_groups = of, num_groups

    @cached_property
    def sorted(self) -> "Sorted":
        """The rows by group, on the CPU."""
        of = self.of.numpy()
        small = of.astype(np.int16) if self.num_groups < 1 << 15 else of  # numbers of 16 bits are sorted in linear time
        sizes = np.bincount(of, minlength=self.num_groups)
        return Sorted(of, np.concatenate([[0], np.cumsum(sizes)]), np.argsort(small, kind="stable"))


class Sorted(NamedTuple):
    """The group of each row [r]; the offsets of the groups [groups + 1] in the rows in their order [r]."""

    of: np.ndarray
    ptr: np.ndarray
    rows: np.ndarray


class Columns(NamedTuple):
    """The heads [r, H, d] in columns first to first + H d of `rows` [r, width]."""

    rows: Tensor
    first: int
    heads: int
    width: int

    def unflatten(self) -> Tensor:
        """[r, H, d]."""
        return self.rows[:, self.first : self.first + self.heads * self.width].unflatten(1, (self.heads, self.width))


class Groups:
    """Which keys a query attends to: those of its group.

    Args:
        entries: the group of each of E entries. An entry is a key with a value.
        queries: the group of each of R queries.
        key: the key of each entry; None: entry e has key e.

    Attributes:
        layout: index arrays that a fast form derives from these and reads again in later calls.
    """

    def __init__(self, entries: Grouped, queries: Grouped, key: Grouped | None = None):
        self.entries, self.queries, self.key = entries, queries, key
        self.layout: Any = None


class Attention(NamedTuple):
    """One attention of several.

    Queries, keys and values are (number of the matrix, first column); then groups, and the number of the output.
    """

    query: tuple[int, int]
    key: tuple[int, int]
    value: tuple[int, int]
    groups: Groups
    out: int
