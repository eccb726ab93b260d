"""Tables that fit a terminal: names are never shortened and words never broken; columns are stacked or left out."""

from collections.abc import Collection, Mapping, Sequence

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from gt_bench.utils.format import terminal_text

GAP = "  "  # between two columns


def fitting_table(
    names: Sequence[str], rows: Sequence[Sequence[str]], width: int, priority: Sequence[str] = (),
    wrapped: Collection[str] = (), right: Collection[str] = (), title: str | None = None, files: str = "",
    bold: Collection[int] = (), always: Collection[str] = (), above: Sequence[str] = (),
) -> Text:  # fmt: skip
    """Return a table that is at most `width` characters wide, except where a single word is wider.

    A row is one line. If the columns that are always shown do not fit next to each other, each row begins with a line
    of its names, and the others that are always shown are below it.

    Args:
        names: of the columns.
        rows: texts, one per column.
        width: of the terminal.
        priority: names of columns in the order in which they get space; the others follow.
        wrapped: columns whose text may be wrapped at spaces.
        right: columns that are aligned right.
        title: above the table.
        files: where the reader finds columns that were left out, for the line below the table.
        bold: indices of rows in bold.
        always: columns that are always shown.
        above: columns with the names of a row, always shown; default: the first.
    """
    names = [terminal_text(name) for name in names]
    columns = {name: [terminal_text(row[i]) for row in rows] for i, name in enumerate(names)}
    above = [name for name in above or names[:1] if name in columns]
    needed = [name for name in names if name in above or name in always]
    least = {name: max(map(_word if name in wrapped else _line, (name, *columns[name]))) for name in names}
    shown, space = set(), width
    for name in dict.fromkeys([*needed, *(name for name in priority if name in columns), *names]):
        if least[name] <= space:
            shown.add(name)
            space -= least[name] + len(GAP)
    if shown.issuperset(needed):
        heads, blocks = [], [[name for name in names if name in shown]]
    else:
        heads, blocks = above, _packed([name for name in needed if name not in above], least, width - len(GAP))
    indent = GAP if heads else ""
    widths: dict[str, int] = {}
    for block in blocks:
        widths |= _widths(block, columns, least, width - len(indent))

    def lines(texts: Mapping[str, str]) -> list[str]:
        printed = _joined([texts[name] for name in heads], width)
        for block in blocks:
            cells = [_wrapped(texts[name], widths[name]) for name in block]
            for i in range(max(map(len, cells))):
                parts = [
                    _aligned(cell[i] if i < len(cell) else "", widths[name], name in right)
                    for name, cell in zip(block, cells, strict=True)
                ]
                printed.append(f"{indent}{GAP.join(parts)}".rstrip())
        return printed

    body = [lines({name: texts[i] for name, texts in columns.items()}) for i in range(len(rows))]
    head = lines({name: name for name in names})
    rule = "─" * max(cell_len(line) for part in (head, *body) for line in part)
    table = Text("\n".join([*([terminal_text(title), ""] if title else []), *head, rule]))
    for i, part in enumerate(body):
        table.append("\n" + "\n".join(part), style="bold" if i in bold else None)
    if left_out := [name for name in names if name not in widths and name not in heads]:
        caption = f"columns that do not fit: {', '.join(left_out)}{terminal_text(files)}"
        table.append("\n" + "\n".join(_wrapped(caption, width)), style="italic")
    return table


def _packed(names: Sequence[str], least: Mapping[str, int], width: int) -> list[list[str]]:
    """Return the columns in blocks, each of which fits the width."""
    blocks: list[list[str]] = []
    for name in names:
        if blocks and sum(least[other] + len(GAP) for other in blocks[-1]) + least[name] <= width:
            blocks[-1].append(name)
        else:
            blocks.append([name])
    return blocks


def _widths(
    block: Sequence[str], columns: Mapping[str, Sequence[str]], least: Mapping[str, int], width: int
) -> dict[str, int]:
    """Return the width of each column; wrapped ones share the space that is left."""
    missing = {name: max(map(_line, (name, *columns[name]))) - least[name] for name in block}
    space = width - sum(least[name] + len(GAP) for name in block) + len(GAP)
    share = min(1.0, max(space, 0) / max(sum(missing.values()), 1))
    return {name: least[name] + int(share * missing[name]) for name in block}


def _joined(texts: Sequence[str], width: int) -> list[str]:
    """Return texts next to each other, or below each other where they do not fit."""
    lines: list[str] = []
    for text in texts:
        if lines and cell_len(f"{lines[-1]}{GAP}{text}") <= width:
            lines[-1] += f"{GAP}{text}"
        else:
            lines.append(text)
    return lines


def _wrapped(text: str, width: int) -> list[str]:
    """Return the lines of a text, broken at spaces alone."""
    lines: list[str] = []
    for line in text.split("\n"):
        lines.append("")
        for word in line.split():
            longer = f"{lines[-1]} {word}".lstrip()
            if lines[-1] and cell_len(longer) > width:
                lines.append(word)
            else:
                lines[-1] = longer
    return lines


def _aligned(text: str, width: int, right: bool) -> str:
    return f"{' ' * (width - cell_len(text))}{text}" if right else set_cell_size(text, max(width, cell_len(text)))


def _line(text: str) -> int:
    return max(map(cell_len, text.split("\n")))


def _word(text: str) -> int:
    return max(map(cell_len, text.split()), default=0)
