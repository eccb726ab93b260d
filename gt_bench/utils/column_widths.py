"""Tables that fit a terminal: columns are left out, words are never broken."""

from collections.abc import Collection, Sequence

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from gt_bench.utils.format import terminal_text

EDGE = 3  # width of a column besides its text: two spaces and a border


def fitting_table(
    names: Sequence[str], rows: Sequence[Sequence[str]], width: int, priority: Sequence[str] = (),
    wrapped: Collection[str] = (), right: Collection[str] = (), title: str | None = None, files: str = "",
    bold: Collection[int] = (),
) -> Table:  # fmt: skip
    """Return a rich table that is at most `width` characters wide.

    Args:
        names: of the columns.
        rows: texts, one per column.
        width: of the terminal.
        priority: names of columns in the order in which they get space; the others follow.
        wrapped: columns whose text may be wrapped at spaces.
        right: columns that are aligned right.
        title: above the table.
        files: where the reader finds columns that were left out, for the caption.
        bold: indices of rows in bold.
    """
    names, rows = [terminal_text(name) for name in names], [[terminal_text(text) for text in row] for row in rows]
    order = [*(name for name in priority if name in names), *(name for name in names if name not in priority)]
    columns = {name: [name, *(row[i] for row in rows)] for i, name in enumerate(names)}
    whole = {name: max(map(cell_len, texts)) for name, texts in columns.items()}
    least = {
        name: max(map(_longest_word, texts)) if name in wrapped else whole[name] for name, texts in columns.items()
    }
    shown: set[str] = set()
    space = width - 1
    for name in order:
        if least[name] + EDGE <= space or not shown:
            shown.add(name)
            space -= least[name] + EDGE
    left_out = [name for name in names if name not in shown]
    caption = Text(terminal_text(f"columns that do not fit: {', '.join(left_out)}{files}")) if left_out else None
    table = Table(title=title and Text(terminal_text(title)), caption=caption)
    missing = {name: whole[name] - least[name] for name in shown}
    # rich would distribute the space itself, and exceed the width
    share = min(1.0, max(space, 0) / max(sum(missing.values()), 1))
    for name in (name for name in names if name in shown):
        table.add_column(
            Text(name),
            justify="right" if name in right else "left",
            no_wrap=name not in wrapped,
            width=min(least[name] + int(share * missing[name]), width - EDGE - 1),
        )
    for i, row in enumerate(rows):
        texts = (Text(text) for name, text in zip(names, row, strict=True) if name in shown)
        table.add_row(*texts, style="bold" if i in bold else None)
    return table


def _longest_word(text: str) -> int:
    return max(map(cell_len, text.split()), default=0)
