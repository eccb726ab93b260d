"""Tables that fit a terminal by leaving columns out, never by breaking a word."""

from collections.abc import Collection, Sequence

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from gt_bench.utils.format import terminal_text

EDGE = 3  # what a column takes besides its text: two blanks and a rule


def fitting_table(
    names: Sequence[str], rows: Sequence[Sequence[str]], width: int, priority: Sequence[str] = (), wrapped: Collection[str] = (),
    right: Collection[str] = (), title: str | None = None, files: str = "", bold: Collection[int] = (),
) -> Table:  # fmt: skip
    """A rich table of at most `width` columns of characters.

    Args:
        names, rows: the columns and their texts.
        priority: names in the order in which they are given room; others come after them, as they stand.
        wrapped: columns whose text may take several lines, at its blanks.
        right: columns of numbers.
        files: where a reader finds what is left out; the caption says so.
        bold: indices of rows that stand out.
    """
    names, rows = [terminal_text(name) for name in names], [[terminal_text(text) for text in row] for row in rows]
    order = [*(name for name in priority if name in names), *(name for name in names if name not in priority)]
    columns = {name: [name, *(row[i] for row in rows)] for i, name in enumerate(names)}
    whole = {name: max(map(cell_len, texts)) for name, texts in columns.items()}
    least = {
        name: max(map(_longest_word, texts)) if name in wrapped else whole[name] for name, texts in columns.items()
    }
    shown: set[str] = set()
    room = width - 1
    for name in order:
        if least[name] + EDGE <= room or not shown:
            shown.add(name)
            room -= least[name] + EDGE
    left_out = [name for name in names if name not in shown]
    caption = Text(terminal_text(f"left out for want of room: {', '.join(left_out)}{files}")) if left_out else None
    table = Table(title=title and Text(terminal_text(title)), caption=caption)
    lacking = {name: whole[name] - least[name] for name in shown}
    share = min(
        1.0, max(room, 0) / max(sum(lacking.values()), 1)
    )  # rich shares the room out otherwise, and then exceeds it
    for name in (name for name in names if name in shown):
        table.add_column(
            Text(name),
            justify="right" if name in right else "left",
            no_wrap=name not in wrapped,
            width=min(least[name] + int(share * lacking[name]), width - EDGE - 1),
        )
    for i, row in enumerate(rows):
        texts = (Text(text) for name, text in zip(names, row, strict=True) if name in shown)
        table.add_row(*texts, style="bold" if i in bold else None)
    return table


def _longest_word(text: str) -> int:
    return max(map(cell_len, text.split()), default=0)
