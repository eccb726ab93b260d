"""A published table with our runs: their number, ours and the verdict, in the layout of the paper.

For a terminal, Markdown, LaTeX, HTML and CSV. The published values of a method are one line. Each of our recipes for it
is a line below, in the same unit and with the same number of digits.
"""

import re
import string
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from gt_bench.leaderboard.export import to_columns
from gt_bench.leaderboard.row import Row
from gt_bench.leaderboard.words import status_of
from gt_bench.papers.published import Published
from gt_bench.papers.table_layout import Column, Layout
from gt_bench.papers.units import arrow, half_up
from gt_bench.stats.verdict import VerdictWord
from gt_bench.utils.format import csv_text, terminal_text
from gt_bench.utils.redact import printable

if TYPE_CHECKING:
    from rich.table import Table


class Kind(NamedTuple):
    """A kind of verdict: its word, a sign that needs no colour, its description, and its colour on a terminal."""

    word: str
    sign: str
    tex: str
    says: str
    colour: str


NOT_JUDGED = "none"  # all words that are no verdict
KINDS = (
    Kind(VerdictWord.REPRODUCED, "✓", r"$\checkmark$", "reproduced", "blue"),
    Kind(VerdictWord.CONSISTENT, "≈", r"$\approx$", "consistent", "cyan"),
    Kind(VerdictWord.BETTER, "▲", r"$\blacktriangle$", "better", "green"),
    Kind(VerdictWord.WORSE, "▼", r"$\blacktriangledown$", "worse", "yellow"),
    Kind(VerdictWord.UNDECIDED, "?", "?", "undecided: the paper leaves out what would decide it", "magenta"),
    Kind(NOT_JUDGED, "·", r"$\cdot$", "not judged", "dim"),
)
BY_WORD = {kind.word: kind for kind in KINDS}
PROVISIONAL = "…"  # behind a sign: fewer seeds than the recipe asks for


def kind_of(row: Row) -> Kind:
    """Returns the kind of a row's verdict."""
    return BY_WORD.get(row.verdict.word if row.verdict else NOT_JUDGED, BY_WORD[NOT_JUDGED])


class TableLine(NamedTuple):
    """A line of the table: own rows by column, or published numbers by column."""

    method: str
    recipe: str | None
    printed: Mapping[Column, Published]
    rows: Mapping[Column, Row]


@dataclass(frozen=True)
class PaperTable:
    """A layout with our rows. `marks`: notes on published values by (method, column)."""

    layout: Layout
    ours: Mapping[tuple[str, Column], Sequence[Row]]
    notes: tuple[str, ...]  # each once; `mark` has its letter
    marks: Mapping[tuple[str, Column], str]

    @property
    def lines(self) -> list[TableLine]:
        """Returns for each method the published line, then one for each recipe of ours."""
        lines = []
        for method in self.layout.methods:
            printed = {c: p for c in self.layout.columns if (p := self.layout.printed.get((method, c)))}
            lines.append(TableLine(method, None, printed, {}))
            here = {column: self.ours.get((method, column), ()) for column in self.layout.columns}
            for recipe in dict.fromkeys(name_of(row) for rows in here.values() for row in rows):
                by_column = {c: row for c, rows in here.items() for row in rows if name_of(row) == recipe}
                lines.append(TableLine(method, recipe, {}, by_column))
        return lines

    @property
    def run(self) -> int:
        """Returns how many of its numbers are compared with a run of ours."""
        return sum(any(row.summary.mean is not None for row in rows) for rows in self.ours.values())

    @property
    def kinds(self) -> list[Kind]:
        """The kinds of verdicts in the table."""
        there = {kind_of(row).word for rows in self.ours.values() for row in rows if row.summary.mean is not None}
        return [kind for kind in KINDS if kind.word in there]


def paper_table(layout: Layout, rows: Sequence[Row]) -> PaperTable:
    """Returns the table with those of `rows` that are compared with one of its numbers."""
    ours: dict[tuple[str, Column], list[Row]] = {}
    for row in rows:
        if row.published and (row.published.paper, row.published.table) == (layout.paper, layout.table):
            _, _, method, dataset, metric, split = row.published.place
            if (where := (method, Column(dataset, metric, split))) in layout.printed:
                ours.setdefault(where, []).append(row)
    letters: dict[str, str] = {}
    marks = {}
    for method in layout.methods:
        for column in layout.columns:
            if printed := layout.printed.get((method, column)):
                mark = ",".join(letters.setdefault(text, _letter(len(letters))) for text in printed.remarks)
                if mark:
                    marks[method, column] = mark
    return PaperTable(layout, ours, tuple(letters), marks)


def run_part(table: PaperTable) -> PaperTable | None:
    """Returns the methods and columns that have a run of ours; None if there are none."""
    run = [place for place, rows in table.ours.items() if any(row.summary.mean is not None for row in rows)]
    if not run:
        return None
    part = table.layout.only({method for method, _ in run}, {column for _, column in run})
    return paper_table(part, [row for rows in table.ours.values() for row in rows])


def _letter(number: int) -> str:
    """Returns the letter of a footnote: a, b, ... z, aa, ab, ..."""
    first, last = divmod(number, 26)
    return ("" if first == 0 else string.ascii_lowercase[first - 1]) + string.ascii_lowercase[last]


def name_of(row: Row) -> str:
    """Returns the name of an own line: its recipe, with the suite if it is not that of the paper, and a flag."""
    name = row.model if row.published and row.suite == row.published.paper else f"{row.model} ({row.suite})"
    return f"{name} (!)" if row.chosen_on_test else name


def heading(column: Column, layout: Layout) -> list[str]:
    """Returns the lines of a column's head: the dataset, and metric and split if the table has several."""
    direction = next(p.direction for (_, c), p in layout.printed.items() if c == column)
    metric = [f"{column.metric} {arrow(direction)}"] if layout.varies("metric") else []
    return [column.dataset, *metric, *([column.split] if layout.varies("split") else [])]


def caption(layout: Layout) -> str:
    """Returns paper and table, with the metric and split that all columns share."""
    first = next(iter(layout.printed.values()))
    shared = [f"{first.metric} {arrow(first.direction)}"] if not layout.varies("metric") else []
    shared += [f"{first.split} split"] if not layout.varies("split") and first.split != "test" else []
    units = {p.unit for p in layout.printed.values()}
    shared += ["%"] if units == {"percent"} else []
    return f"{layout.paper}, {layout.title}" + (f": {', '.join(shared)}" if shared else "")


def digits_of(published: Published) -> int:
    """Returns the decimals of a published number."""
    first = re.match(r"\d+(?:\.(\d+))?", published.printed)
    return len((first and first[1]) or "") if first else 2


def our_number(row: Row, published: Published) -> str:
    """Returns our mean and deviation in the unit and with the digits of the paper; without a mean, the status."""
    mine = row.summary
    if mine.mean is None:
        return status_of(row.state.model_copy(update={"stale": []}))
    scale, digits = 100 if published.unit == "percent" else 1, digits_of(published)
    # 203 of 400 are 50.75 %: the float is slightly below, and would be shown as 50.7
    values = [mine.mean, *([] if mine.spread is None else [mine.spread])]
    return " ± ".join(f"{half_up(scale * value, digits):.{digits}f}" for value in values)


def sign_of(row: Row) -> str:
    """Returns the sign of the verdict, with a mark while seeds are missing. Empty without a number."""
    return "" if row.summary.mean is None else kind_of(row).sign + (PROVISIONAL if row.provisional else "")


def _texts(
    table: PaperTable, line: TableLine, mark: Callable[[str], str], sign: Callable[[Row], str],
    number: Callable[[str], str] = str,
) -> list[str]:  # fmt: skip
    """Returns the texts of the columns of a line, with formats of their parts. Empty where the paper has no number."""
    texts = []
    for column in table.layout.columns:
        if column in line.printed:
            text = number(line.printed[column].printed)
            texts.append(text + mark(note) if (note := table.marks.get((line.method, column))) else text)
        elif column in line.rows:
            row = line.rows[column]
            ours = number(our_number(row, table.layout.printed[line.method, column]))
            texts.append(f"{ours} {sign(row)}".strip())
        else:
            texts.append("")
    return texts


def legend(table: PaperTable) -> list[str]:
    """Returns an explanation of the signs that occur, and each footnote once."""
    said = [f"{kind.sign} {kind.says}" for kind in table.kinds]
    if any(row.provisional for rows in table.ours.values() for row in rows):
        said.append(f"{PROVISIONAL} with fewer seeds than the recipe asks for")
    head = [
        f"{table.run} of {len(table.layout.printed)} numbers have a run of ours"
        + (f": {'; '.join(said)}" if said else "")
    ]
    notes = [f"[{_letter(n)}] {printable(note)}" for n, note in enumerate(table.notes)]
    return [*head, *warnings(table), *notes]


def warnings(table: PaperTable) -> list[str]:
    """Returns an explanation of the mark of runs whose epoch was chosen on the test split, if there are any."""
    if not any(row.chosen_on_test for rows in table.ours.values() for row in rows):
        return []
    return ["(!) the epoch was chosen on the test split, as the authors did: not one of our results"]


def to_terminal(table: PaperTable, width: int) -> list["Table"]:
    """Returns Tables of rich, one below the other if `width` is too small for one; no word is broken."""
    from rich.table import Table
    from rich.text import Text

    lines = [(line, _texts(table, line, lambda m: f" [{m}]", sign_of)) for line in table.lines]
    labels = [line.method if line.recipe is None else f"  ours: {line.recipe}" for line, _ in lines]
    heads = [heading(column, table.layout) for column in table.layout.columns]
    widths = [max(len(t) for t in (*head, *(texts[i] for _, texts in lines))) for i, head in enumerate(heads)]
    blocks: list[list[int]] = []
    left = max(map(len, labels)) + 4
    used = width
    for number, wide in enumerate(widths):
        if used + wide + 3 > width:
            blocks.append([])
            used = left
        blocks[-1].append(number)
        used += wide + 3
    shown: list[Table] = []
    for block in blocks:
        one = Table(title=caption(table.layout) if not shown else None, title_justify="left")
        one.add_column("method", no_wrap=True)
        for number in block:
            one.add_column("\n".join(heads[number]), justify="right", no_wrap=True)
        for (line, texts), label in zip(lines, labels, strict=True):
            styles = [
                kind_of(line.rows[c]).colour if (c := table.layout.columns[n]) in line.rows else "" for n in block
            ]
            one.add_row(
                Text(terminal_text(label)),
                *(Text(terminal_text(texts[n]), style=style) for n, style in zip(block, styles, strict=True)),
            )
        shown.append(one)
    return shown


def to_markdown(table: PaperTable, signs: bool = True) -> str:
    """Returns the table as Markdown. `signs`: explain the signs below it."""
    out = [f"**{_md(caption(table.layout))}**", ""]
    out.append(_md_line(["method", *(" ".join(heading(c, table.layout)) for c in table.layout.columns)]))
    out.append(_md_line(["---", *["---:"] * len(table.layout.columns)]))
    for line in table.lines:
        label = line.method if line.recipe is None else f"ours: {line.recipe}"
        texts = _texts(table, line, lambda mark: f" [{mark}]", sign_of)
        out.append(_md_line([label, *(f"**{text}**" if text and line.recipe else text for text in texts)]))
    return "\n".join([*out, "", *(f"- {_md(text)}" for text in legend(table)[0 if signs else 1 :])]) + "\n"


def _md(text: str) -> str:
    return re.sub(r"([\\|<>*_\[\]])", r"\\\1", printable(text))


def _md_line(texts: Sequence[str]) -> str:
    escaped = (re.sub(r"([\\|<>_]|(?<=\])\()", r"\\\1", printable(text)) for text in texts)
    return f"| {' | '.join(escaped)} |"


TEX_NEEDS = r"% in the preamble: \usepackage{booktabs, amssymb}"


def to_tex(table: PaperTable) -> str:
    """Returns the table as a `table` environment of LaTeX with booktabs and amssymb."""
    columns = table.layout.columns

    def sign(row: Row) -> str:
        return "" if row.summary.mean is None else kind_of(row).tex + (r"\,\ldots" if row.provisional else "")

    def italic(text: str) -> str:
        return rf"\textit{{{tex_text(text)}}}"

    out = [
        TEX_NEEDS,
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{tex_text(caption(table.layout))}; lines in italics are ours}}",
    ]
    out += [rf"\begin{{tabular}}{{l{'r' * len(columns)}}}", r"\toprule"]
    heads = (("method",), *(map(tex_text, heading(column, table.layout)) for column in columns))
    out += [" & ".join(texts) + r" \\" for texts in zip_longest(*heads, fillvalue="")]
    out.append(r"\midrule")
    for line in table.lines:
        number = tex_text if line.recipe is None else italic
        texts = _texts(table, line, lambda mark: f"$^{{{mark}}}$", sign, number)
        label = tex_text(line.method) if line.recipe is None else rf"\quad {italic(line.recipe)}"
        out.append(" & ".join([label, *texts]) + r" \\")
    said = [f"{kind.tex} {tex_text(kind.says)}" for kind in table.kinds]
    notes = [f"$^{{{_letter(n)}}}$ {tex_text(printable(note))}" for n, note in enumerate(table.notes)]
    out += [r"\bottomrule", r"\end{tabular}"]
    out += [rf"\par\smallskip\raggedright\footnotesize {'. '.join([*said, *notes])}."] if said or notes else []
    return "\n".join([*out, r"\end{table}"]) + "\n"


_TEX = {"\\": r"\textbackslash{}", "±": r"$\pm$", "–": "--", "→": r"$\to$", "↑": r"$\uparrow$", "↓": r"$\downarrow$",
        "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
        "|": r"\textbar{}", "…": r"\ldots{}", "≥": r"$\ge$", "≤": r"$\le$"}  # fmt: skip


def tex_text(text: str) -> str:
    """Returns text with the special characters of LaTeX escaped."""
    return "".join(_tex_character(character) for character in text)


def _tex_character(character: str) -> str:
    if character in _TEX:
        return _TEX[character]
    if character in "&%$#_{}":
        return f"\\{character}"
    greek = re.fullmatch(r"GREEK (SMALL|CAPITAL) LETTER ([A-Z]+)|GREEK (PHI) SYMBOL", unicodedata.name(character, ""))
    if greek:
        name = (greek[2] or greek[3]).lower()
        return f"$\\{name.capitalize() if greek[1] == 'CAPITAL' else name}$"
    return character


CSV_COLUMNS = (
    "paper", "table", "method", "dataset", "metric", "split", "printed", "published_mean", "published_std",
    "published_runs", "cell", "source",
    "mean", "std", "runs", "difference", "interval_low", "interval_high", "verdict", "claim", "status", "notes",
)  # fmt: skip


def to_csv(table: PaperTable) -> str:
    """Return `entries` as CSV."""
    return csv_text(CSV_COLUMNS, entries(table))


def entries(table: PaperTable) -> Iterator[dict[str, object]]:
    """Yield a line per published number and run, in the order of the table.

    Numbers are in raw units (a percentage is a fraction); `printed` is the text of the paper.
    """
    for method in table.layout.methods:
        for column in table.layout.columns:
            printed = table.layout.printed.get((method, column))
            if printed is None:
                continue
            theirs = {
                "paper": printed.paper, "table": printed.table, "method": method, **column._asdict(),
                "printed": printed.printed, "published_mean": printed.mean, "published_std": printed.std,
                "published_runs": printed.runs, "notes": "; ".join(printed.remarks),
            }  # fmt: skip
            keys = [key for key in CSV_COLUMNS if key not in theirs]
            rows: Sequence[Row | None] = table.ours.get((method, column)) or [None]
            for row in rows:
                line: Mapping[str, object] = to_columns(row) if row else {}
                yield theirs | {key: line.get(key) for key in keys}
