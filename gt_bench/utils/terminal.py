"""Tables and sentences on a terminal, as wide as it is."""

import os
import sys
import textwrap
from collections.abc import Collection, Mapping, Sequence

from rich.console import Console

from gt_bench.utils.column_widths import fitting_table
from gt_bench.utils.format import print_text


def console() -> Console:
    """Return a console as wide as the terminal or the variable COLUMNS; otherwise wide enough for most tables."""
    return Console(width=None if sys.stdout.isatty() or os.environ.get("COLUMNS") else 180, force_jupyter=False)


def print_table(
    names: Sequence[str], rows: Sequence[Sequence[str]], *priority: str, wrapped: Collection[str] = (),
    right: Collection[str] = (), title: str | None = None, files: str = "", bold: Collection[int] = (),
    stacks: Sequence[Sequence[str]] = (), shorter: Mapping[str, Sequence[str]] | None = None,
) -> None:  # fmt: skip
    """Print a table that fits the terminal.

    Args:
        names: as in `gt_bench.utils.column_widths.fitting_table`.
        rows: as in `fitting_table`.
        priority: names of columns in the order in which they get space.
        wrapped: as in `fitting_table`.
        right: as in `fitting_table`.
        title: as in `fitting_table`.
        files: as in `fitting_table`.
        bold: as in `fitting_table`.
        stacks: as in `fitting_table`.
        shorter: as in `fitting_table`.
    """
    out = console()
    out.print(fitting_table(names, rows, out.width, priority, wrapped, right, title, files, bold, stacks, shorter))


def print_wrapped(line: str) -> None:
    """Print a sentence, wrapped at spaces to the width of the terminal."""
    print_text(
        textwrap.fill(line, console().width, break_long_words=False, break_on_hyphens=False, subsequent_indent="  ")
    )
