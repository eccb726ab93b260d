"""Which records name a commit with uncommitted changes, so that git cannot show the code that computed them."""

from collections.abc import Mapping, Sequence

from gt_bench.schemas import Record

DIRTY = "-dirty"
CELLS = "Their cells"


def is_uncommitted(record: Record) -> bool:
    """Returns whether a record was computed by code that differs from its commit."""
    return (record["measured"]["environment"].get("commit") or "").endswith(DIRTY)


def uncommitted_cells(records: Mapping[str, Sequence[Record]]) -> dict[str, int]:
    """Counts the records of uncommitted code of each cell that has some.

    Args:
        records: records by cell.
    """
    counts = {cell: sum(map(is_uncommitted, its)) for cell, its in records.items()}
    return {cell: count for cell, count in counts.items() if count}


def sentence(records: Mapping[str, Sequence[Record]]) -> str:
    """Returns how many records are of uncommitted code, and of which cells.

    Args:
        records: records by cell.
    """
    total, found = sum(map(len, records.values())), uncommitted_cells(records)
    if not found:
        return f"All {total} records are of committed code."
    return (
        f"{sum(found.values())} of {total} records, of {len(found)} cells, name a commit with uncommitted changes, so "
        "git cannot show exactly the code that computed them. Golden values compare short runs of the current code "
        f"on a CPU; they cannot cover these. {CELLS}: "
        f"{', '.join(found)}."
    )
