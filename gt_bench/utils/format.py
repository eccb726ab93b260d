"""Seconds, bytes and rows of tables as people read them; and text from anywhere, made harmless for each kind of output."""

import contextlib
from collections.abc import Iterable
from html import escape
from typing import Any

from gt_bench.utils.redact import printable


def hours(seconds: float) -> str:
    """Seconds as text, in the largest unit of which there are at least two."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:.3g} s"


def bytes_text(size: float) -> str:
    """Bytes as text, in binary units."""
    units = ["B", "KiB", "MiB", "GiB"]
    while size >= 1024 and len(units) > 1:
        size /= 1024
        units.pop(0)
    return f"{size:.3g} {units[0]}" if size < 1000 else f"{size:,.0f} {units[0]}"


def terminal_text(text: str) -> str:
    """Text from anywhere as a terminal may show it: line by line, without what a terminal would obey (escape, bell) or what hides or reorders
    characters (bidirectional marks)."""
    return "".join(character for character in str(text) if character.isprintable() or character == "\n")


def print_text(text: object = "", **options: Any) -> None:
    """`print` of `terminal_text`."""
    print(terminal_text(str(text)), **options)


def markdown_text(text: str) -> str:
    """Text from anywhere within a page of Markdown: on one line, without HTML, links and images, which a browser would load."""
    return escape(printable(text), quote=False).replace("](", "]\\(")


def csv_cell(value: object) -> object:
    """A value as a cell of a CSV file: a spreadsheet computes none of it, as it would of a text that begins with "="."""
    if not isinstance(value, str):
        return value
    text = printable(value)
    with contextlib.suppress(ValueError):
        float(text)
        return text
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def markdown_line(texts: Iterable[str]) -> str:
    """A row of a Markdown table; what would end a cell or the row is escaped."""
    return "| " + " | ".join(text.replace("|", "\\|").replace("\n", " ") for text in texts) + " |"
