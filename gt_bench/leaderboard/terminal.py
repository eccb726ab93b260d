"""What reports print on a terminal."""

import os
import sys
import textwrap
from collections.abc import Collection, Sequence

from rich.console import Console

from gt_bench.leaderboard.columns import remarks_of, terminal_table
from gt_bench.schemas import Row
from gt_bench.utils.column_widths import fitting_table
from gt_bench.utils.format import print_text


def console() -> Console:
    """As wide as the terminal, or as COLUMNS says; where there is neither, wide enough for most tables."""
    return Console(width=None if sys.stdout.isatty() or os.environ.get("COLUMNS") else 180)


def print_table(
    names: Sequence[str], rows: Sequence[Sequence[str]], *priority: str, wrapped: Collection[str] = (), right: Collection[str] = (),
    title: str | None = None, files: str = "", bold: Collection[int] = (),
) -> None:  # fmt: skip
    """Prints what fits the terminal (`gt_bench.utils.column_widths.fitting_table`)."""
    out = console()
    out.print(fitting_table(names, rows, out.width, priority, wrapped, right, title, files, bold))


def print_wrapped(line: str) -> None:
    """Prints a sentence, broken at spaces to the width of the terminal."""
    print_text(
        textwrap.fill(line, console().width, break_long_words=False, break_on_hyphens=False, subsequent_indent="  ")
    )


def print_rows(title: str, rows: Sequence[Row]) -> None:
    """Rows of leaderboards as a table, with their remarks below it, each once."""
    out = console()
    out.print(terminal_table(title, rows, out.width))
    for remark in dict.fromkeys(r for row in rows for r in remarks_of(row)):
        print_text(f"  {remark}")
