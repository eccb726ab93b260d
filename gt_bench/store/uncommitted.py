"""Which records name a commit with uncommitted changes, so that git cannot show the code that computed them."""

from collections.abc import Mapping, Sequence

from gt_bench.records.run import RunRecord

DIRTY = "-dirty"


def is_uncommitted(record: RunRecord) -> bool:
    """Returns whether a record was computed by code that differs from its commit, in any of its sessions."""
    return any(commit.endswith(DIRTY) for commit in commits(record))


def commits(record: RunRecord) -> list[str]:
    """Returns the commit of each session of a record."""
    last = record.measured.environment.commit or "unknown"
    return [session.commit for session in record.measured.sessions] or [last]


def sentence(records: Mapping[str, Sequence[RunRecord]], names: bool = True) -> str:
    """Returns how many records are of uncommitted code, and of which cells.

    Args:
        records: records by cell.
        names: whether the cells are named.
    """
    total = sum(map(len, records.values()))
    found = {cell: count for cell, its in records.items() if (count := sum(map(is_uncommitted, its)))}
    if not found:
        return f"All {total} records are of committed code."
    return (
        f"{sum(found.values())} of {total} records, of {len(found)} cells, name a commit with uncommitted changes, so "
        "git cannot show exactly the code that computed them. Golden values compare short runs of the current code "
        "on a CPU; they cannot cover these." + (f" Their cells: {', '.join(found)}." if names else "")
    )
