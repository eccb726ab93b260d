"""A live table of the jobs of a sweep."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SHOWN = 20  # rows
Rows = list[list[str]]


@contextmanager
def job_table() -> Iterator[Callable[[Rows], None]]:
    """Yield a function that shows rows as a live table on a terminal. Elsewhere it does nothing: lines are printed."""
    if not sys.stdout.isatty():
        yield lambda rows: None
        return
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

    with Live(console=Console(), auto_refresh=False) as live:

        def update(rows: Rows) -> None:
            running = sum(row[1] == "running" for row in rows)
            title = f"{running} jobs running, {len(rows) - running} waiting"
            table = Table("job", "state", "where", "runs", "done", title=title)
            for row in rows[:SHOWN]:
                table.add_row(*(text.replace("[", r"\[") for text in row))
            live.update(table, refresh=True)

        yield update
