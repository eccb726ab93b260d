"""A live table of the jobs of a sweep."""

import sys
from collections.abc import Callable
from types import TracebackType

SHOWN = 20  # rows


class JobTable:
    """A live table of the jobs on a terminal; it shows nothing elsewhere, where the printed lines are enough."""

    def __enter__(self) -> Callable[[list[list[str]]], None]:
        from rich.console import Console
        from rich.live import Live

        self.live = Live(console=Console(), auto_refresh=False) if sys.stdout.isatty() else None
        if self.live:
            self.live.__enter__()
        return self._update

    def _update(self, rows: list[list[str]]) -> None:
        from rich.table import Table

        if self.live:
            running = sum(row[1] == "running" for row in rows)
            title = f"{running} jobs running, {len(rows) - running} waiting"
            table = Table("job", "state", "where", "runs", "done", title=title)
            for row in rows[:SHOWN]:
                table.add_row(*(text.replace("[", r"\[") for text in row))
            self.live.update(table, refresh=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.live:
            self.live.__exit__(kind, error, trace)
