"""What a run came to beside everything that is known on its dataset: the numbers shipped, those computed here, and what papers print."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from gt_bench.config.grid import Cell, Grid
from gt_bench.config.suite import load_suite
from gt_bench.config.tried import tried_cells
from gt_bench.leaderboard.collect import OWN, collect, gather
from gt_bench.leaderboard.rows import summarise
from gt_bench.leaderboard.terminal import console, print_table
from gt_bench.reports.compare import verdict_of
from gt_bench.reports.paper_table import tex_text
from gt_bench.schemas import Record, Result, Row
from gt_bench.stats.paired import paired
from gt_bench.store.archive import ROOT
from gt_bench.store.run_store import Store
from gt_bench.utils.paths import suite_folders

if TYPE_CHECKING:
    import pandas

COLUMNS = (
    "model",
    "of",
    "metric",
    "mean ± std",
    "runs",
    "this run against it",
    "published",
    "status",
    "parameters",
    "s/epoch",
    "peak MiB",
)
FIRST = ("model", "mean ± std", "runs", "this run against it", "status", "of")  # where there is no room for all
WIDE, NAME_LENGTH = 120, 22  # from this width of a terminal names are whole; characters of a shortened one
HERE = "this run"
OTHER_DATA = "other data: not comparable"  # of another state of the files, or read otherwise


class Compared(Row):
    """A row and what it is of: "this run", or the suite with "shipped" or "own"; `against`: whether this run is better, worse, or
    inconclusive beside it (`gt-bench compare`); `targets`: as in its recipe, which decides the unit of its metric."""

    of: str
    against: str | None
    targets: str | None


@dataclass(frozen=True)
class Comparison:
    """Rows of one dataset, the best first.

    Attributes:
        dataset: its name.
        rows: as a leaderboard has them (raw units: a percentage is a fraction), with `of` and `against`.
        recipe: file with the recipe of this run.
    """

    dataset: str
    rows: list[Compared]
    recipe: str

    @property
    def row(self) -> Compared:
        """The row of this run."""
        return next(row for row in self.rows if row["of"] == HERE)

    @property
    def mean(self) -> float | None:
        """Test metric of this run, mean over its seeds; None where none ended well."""
        return self.row["mean"]

    @property
    def unit(self) -> str:
        """What the metric is measured in, where that is not the unit of the data; else empty."""
        if not (how := self.row["targets"]):
            return ""
        of = "training targets" if how == "train" else "targets"
        what = "variances" if self.row["metric"] == "mse" else "standard deviations"
        return f"{_metric(self.row)}: in {what} of the {of} (`targets: {how}` in the recipe; --set targets=null: in the data's own unit)"

    def texts(self) -> list[list[str]]:
        """What is shown, by row, in the order of `COLUMNS`."""
        return [_texts(row) for row in self.rows]

    def to_pandas(self) -> "pandas.DataFrame":
        """The rows as a DataFrame, in raw units (a percentage is a fraction); the best first.

        Raises:
            ModuleNotFoundError: without pandas.
        """
        import pandas

        return pandas.DataFrame(self.rows)

    def to_latex(self) -> str:
        """The table for a paper, with booktabs: model, mean and deviation, runs, and whether this run is better."""
        columns = ("model", "of", "mean ± std", "runs", "this run against it")
        places = [COLUMNS.index(name) for name in columns]
        metric = self.texts()[self.rows.index(self.row)][COLUMNS.index("metric")]
        heads = ("model", "from", metric, "runs", "against")
        lines = [heads, *([texts[place] for place in places] for texts in self.texts())]
        body = [" & ".join(map(tex_text, line)) + r" \\" for line in lines]
        return "\n".join(
            [
                r"\begin{tabular}{llrrl}",
                r"\toprule",
                body[0],
                r"\midrule",
                *body[1:],
                r"\bottomrule",
                r"\end{tabular}",
                "",
            ]
        )

    def __str__(self) -> str:
        rows = [list(COLUMNS), *self.texts()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join(
            [
                f"{self.dataset}: {self._summary()}",
                lines[0],
                "-" * len(lines[0]),
                *lines[1:],
                *([self.unit] if self.unit else []),
            ]
        )

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        """For notebooks."""
        head = "".join(f"<th>{escape(name)}</th>" for name in COLUMNS)
        body = ""
        for row, texts in zip(self.rows, self.texts(), strict=True):
            tag = "b" if row["of"] == HERE else "span"
            body += "<tr>" + "".join(f"<td><{tag}>{escape(text)}</{tag}></td>" for text in texts) + "</tr>"
        unit = f"<p>{escape(self.unit)}</p>" if self.unit else ""
        return f"<table><caption>{escape(self.dataset)}: {escape(self._summary())}</caption><tr>{head}</tr>{body}</table>{unit}"

    def _summary(self) -> str:
        ranked = [row for row in self.rows if row["mean"] is not None and _measure(row) == _measure(self.row)]
        if self.row not in ranked:
            return f"this run has no number: {self.row['status']}"
        return f"this run is number {ranked.index(self.row) + 1} of {len(ranked)} by its mean"


def comparison(
    cell: Cell,
    result: Result,
    grid: Grid,
    recipe: str,
    store: Path,
    results: Path = Path("results"),
    records: Path = ROOT,
) -> Comparison:
    """`result`, just computed, beside the shipped cells and every other result of this folder on the same dataset."""
    runs = Store(store)
    here = [record for digest in result["runs"] if (record := runs.get(digest)) is not None]
    ours: Compared = {
        **summarise(result, here),
        "of": HERE,
        "against": None,
        "targets": result["recipe"].get("targets"),
    }
    rows = [ours]
    cells = {key: other for key, other in grid.cells.items() if other.dataset == cell.dataset}
    found = gather(grid.model_copy(update={"cells": cells}), results, store, records)
    others = [other for other in tried_cells(cell.dataset, results) if other.cell != cell.cell]
    tried, _, known = collect(others, results, runs, grid.run.verdict)
    known |= {record["digest"]: record for version in found.versions.values() for record in version.records}
    seen = {frozenset(ours["digests"])}
    for row in (*found.rows, *found.others, *tried):
        runs_of_row = frozenset(row["digests"])
        if row["mean"] is not None and (row["metric"] != result["metric"] or runs_of_row not in seen):
            theirs = [known[digest] for digest in row["digests"] if digest in known]
            targets = theirs[0]["deterministic"]["recipe"].get("targets") if theirs else None
            other: Compared = {
                **row,
                "of": f"{row['cell'].split('/')[0]}, {row.get('source', OWN)}",
                "against": None,
                "targets": targets,
            }
            if _measure(other) == _measure(ours):
                other["against"] = _against(here, theirs, grid)
            rows.append(other)
            seen.add(runs_of_row)
    sign = -1 if result["direction"] == "max" else 1
    # what is measured otherwise, by another metric of the same runs or in another unit, stands below what is compared
    rows.sort(key=lambda row: (_measure(row) != _measure(ours), row["mean"] is None, sign * (row["mean"] or 0.0)))
    return Comparison(cell.dataset, rows, recipe)


def _measure(row: Compared) -> tuple[str | None, str | None]:
    """What a row's number is of: two of another metric, or of targets in another unit, say nothing of each other."""
    return row["metric"], row["targets"]


def _against(here: Sequence[Record], theirs: Sequence[Record], grid: Grid) -> str:
    """The verdict of `gt-bench compare` on this run and another, over the seeds and splits that they share."""
    data = [{record["deterministic"]["digests"]["data"] for record in side} for side in (here, theirs)]
    if here and theirs and data[0] != data[1]:
        return OTHER_DATA
    ours, others = _values(here), _values(theirs)
    common = sorted(ours.keys() & others.keys())
    if not common:
        return "no seed in common"
    direction = here[0]["deterministic"]["direction"]
    found = paired([ours[run] for run in common], [others[run] for run in common], direction, grid.run.verdict)
    word = verdict_of(found)
    return {"first is better": "better", "second is better": "worse"}.get(word, word)


def _values(records: Sequence[Record]) -> dict[tuple[int, int], float]:
    runs = [record["deterministic"] for record in records]
    return {
        (r["seed"], r["split"]): r["test"]
        for r in runs
        if r["status"] == "ok" and r["test"] is not None and math.isfinite(r["test"])
    }


def _metric(row: Compared) -> str:
    """The metric of a row; of standardised targets, what it is divided by."""
    divided_by = "" if not row["targets"] else " / σ²" if row["metric"] == "mse" else " / σ"
    return f"{row['metric']}{divided_by}"


def _texts(row: Compared) -> list[str]:
    percent = row["unit"] == "percent"

    def number(value: float | None) -> str:
        return "–" if value is None else f"{100 * value:.2f}" if percent else f"{value:.4g}"

    spread = f" ± {number(row['std'])}" if row["runs"] > 1 and row["std"] is not None else ""
    printed = number(row["published_mean"]) + (
        f" ± {number(row['published_std'])}" if row["published_std"] is not None else ""
    )
    return [
        row["model"], row["of"], f"{row['metric']} %" if percent else _metric(row), number(row["mean"]) + spread, f"{row['runs']}/{row['seeds']}", row["against"] or "–", printed,
        row["status"] + (", reduced" if row["reduced"] else ""), "–" if row["parameters"] is None else f"{row['parameters']:,}",
        "–" if row["seconds_per_epoch"] is None else f"{row['seconds_per_epoch']:.3g}",
        "–" if row["peak_memory_mib"] is None else f"{row['peak_memory_mib']:,.0f}",
    ]  # fmt: skip


@cache
def _abbreviations() -> dict[str, str]:
    """The abbreviation of each suite that has one."""
    return {name: short for name in suite_folders() if (short := load_suite(name).abbreviation)}


def _shortened(text: str, width: int) -> str:
    """A name for a narrow terminal: suites by their initials, and a long name without its middle."""
    if width >= WIDE:
        return text
    for suite, short in _abbreviations().items():
        text = text.replace(suite, short)
    return text if len(text) <= NAME_LENGTH else f"{text[: NAME_LENGTH - 7]}…{text[-6:]}"


def shown(comparison: Comparison, lines: Sequence[str] = ()) -> None:
    """Prints the table, as wide as the terminal has room for."""
    out = console().width
    texts = [[_shortened(text, out) if i < 2 else text for i, text in enumerate(row)] for row in comparison.texts()]
    here = [i for i, row in enumerate(comparison.rows) if row["of"] == HERE]
    title = f"{comparison.dataset}: {comparison._summary()}"
    print_table(COLUMNS, texts, *FIRST, wrapped=("model", "of", "this run against it"), bold=here, title=title)
    for line in (comparison.unit, *lines):
        if line:
            print(line)
