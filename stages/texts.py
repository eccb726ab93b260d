"""Seconds, bytes and rows of tables as people read them."""

from collections.abc import Iterable


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


def markdown_line(texts: Iterable[str]) -> str:
    """A row of a Markdown table; what would end a cell or the row is escaped."""
    return "| " + " | ".join(text.replace("|", "\\|").replace("\n", " ") for text in texts) + " |"
