"""Durations, sizes, table rows and JSON as text, and text from untrusted sources made safe for each kind of output."""

import contextlib
import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from pydantic import BaseModel

from gt_bench.utils.redact import printable


def duration(seconds: float) -> str:
    """Return seconds as text, in the largest unit that gives at least 2: `3.2 s`, `90.0 min`, `5.0 h`, `2.5 years`."""
    for unit, size in (("years", 365.25 * 86400), ("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:.3g} s"


def file_size(size: float) -> str:
    """Return bytes as text, in binary units: `512 B`, `1.5 MiB`."""
    units = ["B", "KiB", "MiB", "GiB"]
    while size >= 1024 and len(units) > 1:
        size /= 1024
        units.pop(0)
    return f"{size:.3g} {units[0]}" if size < 1000 else f"{size:,.0f} {units[0]}"


def terminal_text(text: str) -> str:
    """Return text without control characters (escape, bell) and marks that hide or reorder characters; lines remain."""
    return "".join(character for character in str(text) if character.isprintable() or character == "\n")


def print_text(text: object = "", **options: Any) -> None:
    """Print `terminal_text(text)`; options as for `print`."""
    print(terminal_text(str(text)), **options)


def markdown_text(text: str) -> str:
    """Return text for a Markdown page: on one line, without HTML, links and images, which a browser would load."""
    return escape(printable(text), quote=False).replace("](", "]\\(")


def csv_cell(value: object) -> object:
    """Return a value for a CSV file that no spreadsheet evaluates as a formula, as it would if text begins with "="."""
    if not isinstance(value, str):
        return value
    text = printable(value)
    with contextlib.suppress(ValueError):
        float(text)
        return text
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Return the columns of rows as CSV. Lists are joined by semicolons."""
    file = io.StringIO()
    writer = csv.DictWriter(file, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for row in rows:
        values = {key: "; ".join(map(str, value)) if isinstance(value, list) else value for key, value in row.items()}
        writer.writerow({key: csv_cell(value) for key, value in values.items()})
    return file.getvalue()


def markdown_line(texts: Iterable[str]) -> str:
    """Return a row of a Markdown table; characters that would end a cell or the row are escaped."""
    return "| " + " | ".join(text.replace("|", "\\|").replace("\n", " ") for text in texts) + " |"


def print_json(content: object) -> None:
    """Print JSON as documented in docs/json_output.md."""
    print(json.dumps(_finite(content), indent=1, allow_nan=False))


def _finite(content: object) -> object:
    """Replace NaN and infinity by None: JSON has neither."""
    if isinstance(content, BaseModel):
        content = content.model_dump(mode="json")
    if isinstance(content, dict):
        return {key: _finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content
