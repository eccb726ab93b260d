"""A run next to everything that is known on its dataset: shipped results, own results and published numbers."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, cast

from rich.box import SIMPLE_HEAD
from rich.console import Console

from gt_bench.analysis.paired_examples import example_error
from gt_bench.config.grid import Cell, Grid
from gt_bench.config.tried import tried_cells
from gt_bench.data.custom.metric import is_custom
from gt_bench.leaderboard.collect import OWN, collect, gather, tested_values
from gt_bench.leaderboard.printed_rows import short_names
from gt_bench.leaderboard.rows import spread, summarise
from gt_bench.papers.units import difference_text, mean_and_std, span_of
from gt_bench.reports.paired_runs import verdict_of
from gt_bench.reports.paper_table import tex_text
from gt_bench.reports.tuned_columns import HEADS, TunedColumns
from gt_bench.reports.tuned_columns import show as show_columns
from gt_bench.schemas import Record, Result, Row
from gt_bench.stats.paired import FIRST, SECOND, ExampleError, Paired, paired
from gt_bench.store.attempts import records_of
from gt_bench.store.run_store import Store
from gt_bench.store.shipped_files import ROOT
from gt_bench.utils.column_widths import fitting_table
from gt_bench.utils.terminal import print_table, print_wrapped

if TYPE_CHECKING:
    import pandas

COLUMNS = (
    "model", "of", "metric", "mean ± std", "runs", "difference [95 %]", "this run against it", "published",
    "status", "parameters", "s/epoch", "peak MiB",
)  # fmt: skip
# always shown: next to each other, or on a narrow terminal below each other
STACKS = (("model", "of"), ("mean ± std", "metric"), ("difference [95 %]", "this run against it"), ("runs", "status"))
WRAPPED = ("of", "this run against it", "status")
RIGHT = ("mean ± std", "runs", "published", "parameters", "s/epoch", "peak MiB")
PRINTED_WIDTH = 100  # of str(comparison), in characters
HERE = "this run"
OTHER_DATA = "other data: not comparable"  # the files have changed, or are read in another way


class Against(TypedDict):
    """Comparison of a row with this run; see `Compared`."""

    against: str | None
    against_difference: float | None
    against_interval: tuple[float, float] | None


NOT_COMPARED: Against = {"against": None, "against_difference": None, "against_interval": None}


class Compared(Row, Against):
    """A row and its comparison with this run.

    Attributes:
        of: "this run", or the suite with "shipped" or "own".
        against: whether this run is better or worse than the row, or inconclusive, as by `gt-bench compare`.
        against_difference: mean of this run minus the row over common seeds and splits; positive if this run is better.
        against_interval: its 95 % confidence interval; None for one pair.
        targets: as in the recipe; decides the unit of the metric.
    """

    of: str
    targets: str | None


@dataclass(frozen=True)
class Comparison:
    """Rows of one dataset, best first.

    Attributes:
        dataset: name of the dataset.
        rows: as in a leaderboard (raw units: a percentage is a fraction), compared with this run.
        recipe: file with the recipe of this run.
        tuned: default, tuned, and tuned and ensembled; None without an ensemble.
    """

    dataset: str
    rows: list[Compared]
    recipe: str
    tuned: TunedColumns | None = None

    @property
    def row(self) -> Compared:
        """The row of this run."""
        return next(row for row in self.rows if row["of"] == HERE)

    @property
    def mean(self) -> float | None:
        """Test metric of this run, mean over its seeds; None if no seed succeeded."""
        return self.row["mean"]

    @property
    def unit(self) -> str:
        """Unit of the metric, if it is not the unit of the data; otherwise empty."""
        if not (how := self.row["targets"]) or not _has_unit(self.row["metric"]):
            return ""
        of = "training targets" if how == "train" else "targets"
        what = "variances" if self.row["metric"] == "mse" else "standard deviations"
        return (
            f"{_metric(self.row)}: in {what} of the {of} (`targets: {how}` in the recipe; "
            "--set targets=null: in the unit of the data)"
        )

    def texts(self) -> list[list[str]]:
        """Return the texts of each row, in the order of `COLUMNS`."""
        return [_texts(row) for row in self.rows]

    def to_pandas(self) -> "pandas.DataFrame":
        """Return the rows as a DataFrame, in raw units (a percentage is a fraction), best first.

        Raises:
            ModuleNotFoundError: pandas is not installed.
        """
        import pandas

        return pandas.DataFrame(self.rows)

    def to_latex(self) -> str:
        """Return the table as LaTeX with booktabs: model, mean and deviation, runs, difference and verdict."""
        columns = ("model", "of", "mean ± std", "runs", "difference [95 %]", "this run against it")
        places = [COLUMNS.index(name) for name in columns]
        metric = self.texts()[self.rows.index(self.row)][COLUMNS.index("metric")]
        heads = ("model", "from", metric, "runs", "difference [95 %]", "this run against it")
        lines = [heads, *([texts[place] for place in places] for texts in self.texts())]
        body = [" & ".join(map(tex_text, line)) + r" \\" for line in lines]
        return "\n".join(
            [
                r"\begin{tabular}{llrrrl}",
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
        texts = self.texts()
        table = fitting_table(
            COLUMNS, texts, PRINTED_WIDTH, wrapped=WRAPPED, right=RIGHT, stacks=STACKS, shorter=_short_names(texts)
        )
        table.box, table.caption = SIMPLE_HEAD, None
        out = Console(width=PRINTED_WIDTH, file=io.StringIO(), color_system=None, force_jupyter=False)
        out.print(table)
        lines = cast(io.StringIO, out.file).getvalue().splitlines()
        shown = [line.rstrip() for line in lines if line.strip()]
        if self.tuned:
            body = [HEADS, *self.tuned.texts()]
            widths = [max(len(line[i]) for line in body) for i in range(len(HEADS))]
            shown += ["", self.tuned.title()]
            shown += ["  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) for line in body]
        return "\n".join([f"{self.dataset}: {self._summary()}", *shown, *([self.unit] if self.unit else [])])

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
        return (
            f"<table><caption>{escape(self.dataset)}: "
            f"{escape(self._summary())}</caption><tr>{head}</tr>{body}</table>{unit}"
        )

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
    """Compare a result with the shipped cells and all other results of this folder on the same dataset.

    Args:
        cell: the cell of the result.
        result: this run.
        grid: the grid.
        recipe: file with its recipe.
        store: folder of the records.
        results: folder of results.
        records: folder of suites with shipped records.
    """
    runs = Store(store)
    here = records_of(result, runs)
    ours: Compared = {**summarise(result, here), "of": HERE, "targets": result["recipe"].get("targets"), **NOT_COMPARED}
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
            source = f"{row['cell'].split('/')[0]}, {row.get('source', OWN)}"
            other: Compared = {**row, "of": source, "targets": targets, **NOT_COMPARED}
            if _measure(other) == _measure(ours):
                found_pairs = _against((ours["cell"], here), (row["cell"], theirs), grid, runs, records)
                if isinstance(found_pairs, Paired):
                    words = {FIRST: "better", SECOND: "worse"}
                    other["against"] = words.get(found_pairs.word) or verdict_of(found_pairs)
                    other["against_difference"] = found_pairs.difference
                    other["against_interval"] = found_pairs.interval
                else:
                    other["against"] = found_pairs
            rows.append(other)
            seen.add(runs_of_row)
    sign = -1 if result["direction"] == "max" else 1
    # rows with another metric or unit are below those that are compared
    rows.sort(key=lambda row: (_measure(row) != _measure(ours), row["mean"] is None, sign * (row["mean"] or 0.0)))
    return Comparison(cell.dataset, rows, recipe)


def _measure(row: Compared) -> tuple[str | None, str | None]:
    """Return metric and unit of a row; only rows with the same are compared."""
    return row["metric"], row["targets"]


def _against(
    ours: tuple[str, Sequence[Record]], others: tuple[str, Sequence[Record]], grid: Grid, store: Store, root: Path
) -> Paired | str:
    """Compare the runs of two cells over their common seeds and splits, or return why they cannot be compared."""
    data = [{record["deterministic"]["digests"]["data"] for record in side} for _, side in (ours, others)]
    if ours[1] and others[1] and data[0] != data[1]:
        return OTHER_DATA
    values = [tested_values(side) for _, side in (ours, others)]
    common = sorted(values[0].keys() & values[1].keys())
    if not common:
        return "no seed in common"
    runs = [
        {(run["seed"], run["split"]): record for record in side if (run := record["deterministic"])}
        for _, side in (ours, others)
    ]
    run = ours[1][0]["deterministic"]
    pairs = [(runs[0][one], runs[1][one]) for one in common]
    examples = example_error((ours[0], others[0]), pairs, run["metric"], store, root)
    first, second = ([side[one] for one in common] for side in values)
    return paired(
        first, second, run["direction"], grid.run.verdict,
        examples if isinstance(examples, ExampleError) else None, span_of(run["metric"]),
    )  # fmt: skip


def _short_names(texts: Sequence[Sequence[str]]) -> dict[str, list[str]]:
    return {name: short_names([row[COLUMNS.index(name)] for row in texts]) for name in ("model", "of")}


def _metric(row: Compared) -> str:
    """Return the metric of a row; for standardised targets with its divisor."""
    divided_by = (
        "" if not row["targets"] or not _has_unit(row["metric"]) else " / σ²" if row["metric"] == "mse" else " / σ"
    )
    return f"{row['metric']}{divided_by}"


def _has_unit(metric: str | None) -> bool:
    """Return whether a metric is in the unit of the targets; unknown for a user-supplied one."""
    return metric is not None and metric != "r2" and not is_custom(metric)


def _texts(row: Compared) -> list[str]:
    percent = row["unit"] == "percent"
    mean = mean_and_std(row["mean"], spread(row), percent)
    published = mean_and_std(row["published_mean"], row["published_std"], percent)
    difference = difference_text(row["against_difference"], row["against_interval"], percent)
    metric = f"{row['metric']} %" if percent else _metric(row)
    return [
        row["model"], row["of"], metric, mean, f"{row['runs']}/{row['seeds']}", difference,
        row["against"] or "–", published, row["status"] + (", reduced" if row["reduced"] else ""),
        "–" if row["parameters"] is None else f"{row['parameters']:,}",
        "–" if row["seconds_per_epoch"] is None else f"{row['seconds_per_epoch']:.3g}",
        "–" if row["peak_memory_mib"] is None else f"{row['peak_memory_mib']:,.0f}",
    ]  # fmt: skip


def shown(comparison: Comparison, lines: Sequence[str] = ()) -> None:
    """Print a comparison as wide as the terminal.

    Args:
        comparison: the comparison.
        lines: further lines, printed below.
    """
    here = [i for i, row in enumerate(comparison.rows) if row["of"] == HERE]
    print_table(
        COLUMNS,
        comparison.texts(),
        wrapped=WRAPPED,
        right=RIGHT,
        bold=here,
        title=f"{comparison.dataset}: {comparison._summary()}",
        stacks=STACKS,
        shorter=_short_names(comparison.texts()),
    )
    if comparison.tuned:
        show_columns(comparison.tuned)
        print_wrapped(comparison.tuned.note())
    for line in (comparison.unit, *lines):
        if line:
            print(line)
