"""Tables that fit a terminal: names are shortened, columns are stacked or left out, words are never broken."""

from collections.abc import Collection, Mapping, Sequence

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from gt_bench.utils.format import terminal_text

EDGE = 3  # width of a column besides its text: two spaces and a border


def fitting_table(
    names: Sequence[str], rows: Sequence[Sequence[str]], width: int, priority: Sequence[str] = (),
    wrapped: Collection[str] = (), right: Collection[str] = (), title: str | None = None, files: str = "",
    bold: Collection[int] = (), stacks: Sequence[Sequence[str]] = (),
    shorter: Mapping[str, Sequence[str]] | None = None,
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
        stacks: groups of columns that are always shown. If they do not fit next to each other, the columns of a group
            are shown below each other, as one column. If groups do not fit either, the last ones become one.
        shorter: column -> a shorter text for each row, used before columns are stacked.
    """
    names, rows = [terminal_text(name) for name in names], [[terminal_text(text) for text in row] for row in rows]
    whole = {name: [row[i] for row in rows] for i, name in enumerate(names)}
    short = whole | {name: list(map(terminal_text, texts)) for name, texts in (shorter or {}).items() if name in whole}
    groups = [present for group in stacks if (present := [name for name in group if name in whole])]
    required = {name for group in groups for name in group}
    # what does not fit even so is stacked higher
    higher = (
        [*groups[:count], [name for group in groups[count:] for name in group]] for count in range(len(groups))[::-1]
    )
    for columns, stack in ((whole, []), (short, []), *((short, stack) for stack in higher)):
        plan = _Columns(columns, stack, priority, wrapped, right)
        shown, space = plan.fitting(width, {"\n".join(group) for group in stack})
        if required <= {name for group in shown for name in group.split("\n")}:
            break
    left_out = [name for name in plan.texts if name not in shown]
    caption = f"columns that do not fit: {', '.join(left_out)}{files}".replace("\n", ", ") if left_out else None
    table = Table(
        title=title and Text(terminal_text(title)),
        caption=caption and Text(terminal_text(caption)),
        show_lines=bool(stack),
    )
    missing = {name: plan.whole[name] - plan.least[name] for name in shown}
    # rich would distribute the space itself, and exceed the width
    share = min(1.0, max(space, 0) / max(sum(missing.values()), 1))
    for name in (name for name in plan.texts if name in shown):
        table.add_column(
            Text(name),
            justify="right" if name in plan.right else "left",
            no_wrap=name not in plan.wrapped,
            width=min(plan.least[name] + int(share * missing[name]), width - EDGE - 1),
        )
    for i in range(len(rows)):
        texts = (Text(texts[i]) for name, texts in plan.texts.items() if name in shown)
        table.add_row(*texts, style="bold" if i in bold else None)
    return table


class _Columns:
    """The columns of a table, some of them stacked.

    Args:
        columns: texts by name.
        stacks: groups of columns that become one, at the place of the first.
        priority, wrapped, right: as in `fitting_table`.
    """

    def __init__(
        self,
        columns: Mapping[str, Sequence[str]],
        stacks: Sequence[Sequence[str]],
        priority: Sequence[str],
        wrapped: Collection[str],
        right: Collection[str],
    ):
        head = {group[0]: group for group in stacks}
        inner = {name for group in stacks for name in group[1:]}
        groups = [head.get(name, [name]) for name in columns if name not in inner]
        self.texts = {
            "\n".join(group): ["\n".join(lines) for lines in zip(*(columns[name] for name in group), strict=True)]
            for group in groups
        }
        self.wrapped = {"\n".join(group) for group in groups if any(name in wrapped for name in group)}
        self.right = {"\n".join(group) for group in groups if all(name in right for name in group)}
        rank = {name: i for i, name in enumerate(priority)}
        self.order = sorted(self.texts, key=lambda name: min(rank.get(part, len(rank)) for part in name.split("\n")))
        self.whole, self.least = {}, {}
        for group in groups:
            name = "\n".join(group)
            widths = {part: max(map(_longest_line, (part, *columns[part]))) for part in group}
            self.whole[name] = max(widths.values())
            self.least[name] = max(
                max(map(_longest_word, (part, *columns[part]))) if part in wrapped else widths[part] for part in group
            )

    def fitting(self, width: int, only: Collection[str] = ()) -> tuple[set[str], int]:
        """The columns, or `only` some, that fit by priority, and the space that remains."""
        shown: set[str] = set()
        space = width - 1
        for name in (name for name in self.order if not only or name in only):
            if self.least[name] + EDGE <= space or not shown:
                shown.add(name)
                space -= self.least[name] + EDGE
        return shown, space


def _longest_line(text: str) -> int:
    return max(map(cell_len, text.split("\n")))


def _longest_word(text: str) -> int:
    return max(map(cell_len, text.split()), default=0)
