"""Rows in groups, sorted once for all that read them."""

from functools import cached_property
from typing import NamedTuple

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
