"""The jobs of a sweep as a table on a terminal, drawn anew while it runs."""

import sys
from collections.abc import Callable
from types import TracebackType

SHOWN = 20  # rows


class JobTable:
    """A live table on a terminal; nothing elsewhere, where lines are enough."""

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
            table = Table(
                "job", "state", "where", "runs", "done", title=f"{running} jobs run, {len(rows) - running} wait"
            )
            for row in rows[:SHOWN]:
                table.add_row(*(text.replace("[", r"\[") for text in row))
            self.live.update(table, refresh=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.live:
            self.live.__exit__(kind, error, trace)
