"""The width of printed tables."""

from rich.cells import cell_len


def fits(output: str) -> bool:
    """Whether the right edge of every table in `output` is within 80 columns; a table that is too wide loses it."""
    lines = [line.rstrip() for line in output.splitlines() if line.startswith(("┃", "│"))]
    return all(cell_len(line) <= 80 and line.endswith(("┃", "│")) for line in lines)
