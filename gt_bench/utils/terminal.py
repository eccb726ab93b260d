"""Tables and sentences on a terminal, as wide as it is."""

import os
import sys
import textwrap
from collections.abc import Collection, Sequence

from rich.console import Console

from gt_bench.utils.column_widths import fitting_table
from gt_bench.utils.format import print_text


def console() -> Console:
    """Return a console as wide as the terminal or the variable COLUMNS; otherwise wide enough for most tables."""
    return Console(width=None if sys.stdout.isatty() or os.environ.get("COLUMNS") else 180, force_jupyter=False)


def print_table(
    names: Sequence[str], rows: Sequence[Sequence[str]], *priority: str, wrapped: Collection[str] = (),
    right: Collection[str] = (), title: str | None = None, files: str = "", bold: Collection[int] = (),
    always: Collection[str] = (), above: Sequence[str] = (),
) -> None:  # fmt: skip
    """Print `gt_bench.utils.column_widths.fitting_table` as wide as the terminal; arguments as there."""
    out = console()
    table = fitting_table(names, rows, out.width, priority, wrapped, right, title, files, bold, always, above)
    out.print(table, soft_wrap=True)


def print_wrapped(line: str) -> None:
    """Print a sentence, wrapped at spaces to the width of the terminal."""
    print_text(
        textwrap.fill(line, console().width, break_long_words=False, break_on_hyphens=False, subsequent_indent="  ")
    )
