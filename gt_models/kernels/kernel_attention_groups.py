"""Which queries attend to which keys in kernel attention, shared by the reference and the fast forms."""

from typing import Any, NamedTuple

from gt_models.kernels.grouped import Grouped


class Groups:
    """Which keys a query attends to: those of its group.

    Args:
        entries: the group of each of E entries. An entry is a key with a value.
        queries: the group of each of R queries.
        key: the key of each entry; None: entry e has key e.

    Attributes:
        layout: what a fast form derives from these, for its next calls.
    """

    def __init__(self, entries: Grouped, queries: Grouped, key: Grouped | None = None):
        self.entries, self.queries, self.key = entries, queries, key
        self.layout: Any = None


class Attention(NamedTuple):
    """One attention of several: the number of the matrix, and the first column, of queries, keys and values; the number of its output."""

    query: tuple[int, int]
    key: tuple[int, int]
    value: tuple[int, int]
    groups: Groups
    out: int
