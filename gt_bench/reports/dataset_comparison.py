"""A run next to everything that is known on its dataset: shipped results, own results and published numbers."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from gt_bench.analysis.paired_examples import compare_runs
from gt_bench.config.grid import Cell, Grid
from gt_bench.config.tried import tried_cells
from gt_bench.data.custom.metric import is_custom
from gt_bench.leaderboard.collect import OWN, Gathered, collect, summarise
from gt_bench.leaderboard.columns import cost_texts
from gt_bench.leaderboard.export import to_columns
from gt_bench.leaderboard.row import Row
from gt_bench.leaderboard.words import status_of
from gt_bench.papers.units import difference_text, mean_and_std
from gt_bench.records.cell import CellResult
from gt_bench.reports.paper_table import tex_text
from gt_bench.reports.show_paired_runs import verdict_of
from gt_bench.reports.tuned_columns import HEADS, TunedColumns
from gt_bench.reports.tuned_columns import show as show_columns
from gt_bench.stats.paired import FIRST, SECOND
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
ALWAYS = ("mean ± std", "runs", "difference [95 %]", "this run against it", "published")
NAMES = ("model", "of", "metric", "status")
WRAPPED = ("of", "this run against it", "status")
RIGHT = ("mean ± std", "runs", "published", "parameters", "s/epoch", "peak MiB")
PRINTED_WIDTH = 100  # of str(comparison), in characters
HERE = "this run"
OTHER_DATA = "other data: not comparable"  # the files have changed, or are read in another way


@dataclass(frozen=True)
class Compared:
    """A row and its comparison with this run.

    Attributes:
        row: the row.
        of: "this run", or the suite with "shipped" or "own".
        against: whether this run is better or worse than the row, or inconclusive, as by `gt-bench compare`.
        against_difference: mean of this run minus the row over common seeds and splits; positive if this run is better.
        against_interval: its 95 % confidence interval; None for one pair.
        targets: as in the recipe; decides the unit of the metric.
    """

    row: Row
    of: str
    targets: str | None
    against: str | None = None
    against_difference: float | None = None
    against_interval: tuple[float, float] | None = None

    @property
    def mean(self) -> float | None:
        """Mean of the row."""
        return self.row.summary.mean

    @property
    def measure(self) -> tuple[str | None, str | None]:
        """Metric and unit; only rows with the same are compared."""
        return self.row.metric, self.targets

    def columns(self) -> dict[str, object]:
        """Return the columns of the row and of the comparison."""
        own = {name: value for name, value in vars(self).items() if name != "row"}
        return {**to_columns(self.row), **own}


@dataclass(frozen=True)
class Comparison:
    """Rows of one dataset, best first.

    Attributes:
        dataset: name of the dataset.
        compared: rows of the leaderboard, compared with this run.
        recipe: file with the recipe of this run.
        tuned: default, tuned, and tuned and ensembled; None without an ensemble.
    """

    dataset: str
    compared: list[Compared]
    recipe: str
    tuned: TunedColumns | None = None

    @property
    def here(self) -> Compared:
        """This run."""
        return next(row for row in self.compared if row.of == HERE)

    @property
    def rows(self) -> list[dict[str, object]]:
        """The columns of the rows, as in a leaderboard (raw units: a percentage is a fraction)."""
        return [row.columns() for row in self.compared]

    @property
    def row(self) -> dict[str, object]:
        """The columns of this run."""
        return self.here.columns()

    @property
    def mean(self) -> float | None:
        """Test metric of this run, mean over its seeds; None if no seed succeeded."""
        return self.here.mean

    @property
    def unit(self) -> str:
        """Unit of the metric, if it is not the unit of the data; otherwise empty."""
        if not (how := self.here.targets) or not _has_unit(self.here.row.metric):
            return ""
        of = "training targets" if how == "train" else "targets"
        what = "variances" if self.here.row.metric == "mse" else "standard deviations"
        return (
            f"{_metric(self.here)}: in {what} of the {of} (`targets: {how}` in the recipe; "
            "--set targets=null: in the unit of the data)"
        )

    def texts(self) -> list[list[str]]:
        """Return the texts of each row, in the order of `COLUMNS`."""
        return [_texts(row) for row in self.compared]

    def to_pandas(self) -> "pandas.DataFrame":
        """Return the rows as a DataFrame, in raw units (a percentage is a fraction), best first."""
        import pandas

        return pandas.DataFrame(self.rows)

    def to_latex(self) -> str:
        """Return the table as LaTeX with booktabs: model, mean and deviation, runs, difference and verdict."""
        columns = ("model", "of", "mean ± std", "runs", "difference [95 %]", "this run against it")
        places = [COLUMNS.index(name) for name in columns]
        metric = self.texts()[self.compared.index(self.here)][COLUMNS.index("metric")]
        heads = ("model", "from", metric, "runs", "difference [95 %]", "this run against it")
        lines = [heads, *([texts[place] for place in places] for texts in self.texts())]
        body = [" & ".join(map(tex_text, line)) + r" \\" for line in lines]
        rows = [r"\toprule", body[0], r"\midrule", *body[1:], r"\bottomrule"]
        return "\n".join([r"\begin{tabular}{llrrrl}", *rows, r"\end{tabular}", ""])

    def __str__(self) -> str:
        texts = self.texts()
        table = fitting_table(COLUMNS, texts, PRINTED_WIDTH, wrapped=WRAPPED, right=RIGHT, always=ALWAYS, above=NAMES)
        shown = table.plain.splitlines()
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
        for row, texts in zip(self.compared, self.texts(), strict=True):
            tag = "b" if row.of == HERE else "span"
            body += "<tr>" + "".join(f"<td><{tag}>{escape(text)}</{tag}></td>" for text in texts) + "</tr>"
        unit = f"<p>{escape(self.unit)}</p>" if self.unit else ""
        return (
            f"<table><caption>{escape(self.dataset)}: "
            f"{escape(self._summary())}</caption><tr>{head}</tr>{body}</table>{unit}"
        )

    def _summary(self) -> str:
        ranked = [row for row in self.compared if row.mean is not None and row.measure == self.here.measure]
        if self.here not in ranked:
            return f"this run has no number: {status_of(self.here.row.state)}"
        paired = any(row.against_difference is not None for row in self.compared)
        over = "; differences over common runs" if paired else ""  # they are not those of the means
        return f"this run is number {ranked.index(self.here) + 1} of {len(ranked)} by its mean{over}"


def comparison(
    cell: Cell,
    result: CellResult,
    grid: Grid,
    recipe: str,
    store: Path,
    gathered: Gathered,
    results: Path = Path("results"),
    records: Path = ROOT,
) -> Comparison:
    """Compare a result with the shipped cells and all other results of this folder on the same dataset and metric.

    Args:
        cell: the cell of the result.
        result: this run.
        grid: the grid.
        recipe: file with its recipe.
        store: folder of the records.
        gathered: all results on the dataset.
        results: folder of results.
        records: folder of suites with shipped records.
    """
    runs = Store(store)
    here = records_of(result, runs)
    ours = Compared(summarise(result, here), HERE, result.recipe.get("targets"))
    rows = [ours]
    others = [other for other in tried_cells(cell.dataset, results) if other.cell != cell.cell]
    tried, _, known = collect(others, results, runs, grid.run.verdict)
    known |= {record.digest: record for version in gathered.versions.values() for record in version.records}
    seen = {frozenset(ours.row.summary.digests)}
    for row in (*gathered.rows, *gathered.others, *tried):
        runs_of_row = frozenset(row.summary.digests)
        if row.summary.mean is not None and row.metric == result.metric and runs_of_row not in seen:
            theirs = [known[digest] for digest in row.summary.digests if digest in known]
            targets = theirs[0].run.recipe.get("targets") if theirs else None
            other = Compared(row, f"{row.suite}, {row.source or OWN}", targets)
            if other.measure == ours.measure:
                data = [{record.run.digests.data for record in side} for side in (here, theirs)]
                if here and theirs and data[0] != data[1]:
                    other = replace(other, against=OTHER_DATA)
                elif found := compare_runs((cell.cell, row.cell), (here, theirs), grid.run.verdict, runs, records):
                    pairs = found[0]
                    word = {FIRST: "better", SECOND: "worse"}.get(pairs.word) or verdict_of(pairs)
                    other = replace(
                        other, against=word, against_difference=pairs.difference, against_interval=pairs.interval
                    )
                else:
                    other = replace(other, against="no seed in common")
            rows.append(other)
            seen.add(runs_of_row)
    sign = -1 if result.direction == "max" else 1
    # rows with another unit are below those that are compared
    rows.sort(key=lambda row: (row.measure != ours.measure, row.mean is None, sign * (row.mean or 0.0)))
    return Comparison(cell.dataset, rows, recipe)


def _metric(row: Compared) -> str:
    """Return the metric of a row; for standardised targets with its divisor."""
    metric = row.row.metric
    divided_by = "" if not row.targets or not _has_unit(metric) else " / σ²" if metric == "mse" else " / σ"
    return f"{metric}{divided_by}"


def _has_unit(metric: str | None) -> bool:
    """Return whether a metric is in the unit of the targets; unknown for a user-supplied one."""
    return metric is not None and metric != "r2" and not is_custom(metric)


def _texts(compared: Compared) -> list[str]:
    row = compared.row
    mine, percent = row.summary, row.percent
    published = mean_and_std(row.published.mean, row.published.std, percent) if row.published else "–"
    difference = difference_text(compared.against_difference, compared.against_interval, percent)
    metric = f"{row.metric} %" if percent else _metric(compared)
    return [
        row.model, compared.of, metric, mean_and_std(mine.mean, mine.spread, percent), f"{mine.runs}/{mine.wanted}",
        difference, compared.against or "–", published, status_of(row.state) + (", reduced" if row.reduced else ""),
        *cost_texts(row.cost),
    ]  # fmt: skip


def shown(comparison: Comparison, lines: Sequence[str] = ()) -> None:
    """Print a comparison as wide as the terminal.

    Args:
        comparison: the comparison.
        lines: further lines, printed below.
    """
    here = [i for i, row in enumerate(comparison.compared) if row.of == HERE]
    print_table(
        COLUMNS,
        comparison.texts(),
        wrapped=WRAPPED,
        right=RIGHT,
        bold=here,
        title=f"{comparison.dataset}: {comparison._summary()}",
        always=ALWAYS,
        above=NAMES,
    )
    if comparison.tuned:
        show_columns(comparison.tuned)
        print_wrapped(comparison.tuned.note())
    for line in (comparison.unit, *lines):
        if line:
            print(line)
