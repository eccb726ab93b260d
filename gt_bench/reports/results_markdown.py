"""docs/results.md: leaderboards of suites from shipped records.

python -m gt_bench.reports.results_markdown > docs/results.md
"""

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from gt_bench.claims.evaluate import Claim, ClaimVerdict, Evaluation, evaluate_claim, load_claims, needs_data
from gt_bench.claims.table import table_of
from gt_bench.config.cell_recipe import recipes_of
from gt_bench.config.grid import Grid, load_grid
from gt_bench.config.verdict_settings import Rules
from gt_bench.leaderboard.collect import SHIPPED, Version, every_row, shipped_of
from gt_bench.leaderboard.columns import SHOWN, cells
from gt_bench.leaderboard.coverage import coverage, seconds_by_device
from gt_bench.leaderboard.export import tally
from gt_bench.leaderboard.row import Row
from gt_bench.leaderboard.whole_paper import several_recipes
from gt_bench.papers.results_file import label_of, paper_titles
from gt_bench.papers.table_layout import layouts
from gt_bench.reports import over_datasets, suite_comparison
from gt_bench.reports.html.overview import PaperLine, of_papers
from gt_bench.reports.paper_summary import every_in_short
from gt_bench.reports.paper_table import KINDS, NOT_JUDGED, PaperTable, kind_of, paper_table, run_part, to_markdown
from gt_bench.store import uncommitted
from gt_bench.store.shipped_files import ROOT
from gt_bench.utils.format import markdown_line
from gt_bench.utils.paths import suite_folders

JUDGED = (
    "dataset", "model", "metric", "runs", "difference [95 %]", "verdict", "q", "margin (power)", "seeds needed",
    "claim",
)  # fmt: skip

DIFFERENCES = "differences.md"  # in the folder of a suite


def page(grid: Grid, root: Path = ROOT) -> str:
    """Returns docs/results.md: the tables of each paper with our results, and the differences that were investigated.

    Raises:
        StoreError: a shipped record is damaged.
    """
    rows = every_row(grid, root)
    tables = [paper_table(layout, rows) for layout in layouts()]
    shipped = [file for suite in grid.suites for file in shipped_of(grid, suite, root).values()]
    seconds = {file.cell: seconds_by_device(file.records) for file in shipped}
    covered = coverage(grid, rows, seconds, recipes_of(grid.cells.values()))
    lines = of_papers([its for its in covered if its.paper in grid.suites], rows)
    parts = [
        "# Results so far",
        "",
        "Generated from the shipped records by `python -m gt_bench.reports.results_markdown > docs/results.md`.",
        "`gt-bench page` writes all of it with plots and recipes into `reports/index.html`.",
        "`gt-bench board PAPER --table TABLE` prints one. `gt-bench store verify` lists the records that",
        "the current code would compute differently.",
        "A line `ours` is our mean and deviation over the runs of one recipe:",
        f"{'; '.join(f'{kind.sign} {kind.says}' for kind in KINDS)} ([what these words mean](statistics.md)).",
        "",
        *_papers(lines),
        "",
        "Numbers of the papers' models. *Worse side*: how many of the numbers of the final models that differ, with",
        "provisional ones, are worse than published. *p*: the test of these numbers by dataset; – if there are too few",
        "datasets ([how](statistics.md)).",
        "",
        *_several(lines, rows),
        "Rows of all published numbers, of other methods too:",
        "",
        *_counts(tables),
        "",
        tally(rows, grid.run.verdict),
        "",
        uncommitted.sentence({file.cell: file.records for file in shipped}, names=False),
        "",
    ]
    claims = _claims(rows, grid.run.verdict)
    verdicts = [(claim.paper, judged.verdict) for claim, judged in claims if claim.said != "asked here"]
    short = every_in_short([its for its in covered if its.paper in grid.suites], verdicts, rows)
    titles = {suite: suite for suite in dict.fromkeys(row.suite for row in rows)}
    for paper, title in (titles | paper_titles()).items():
        run = [part for table in tables if table.layout.paper == paper and (part := run_part(table))]
        bare = _unprinted([row for row in rows if row.suite == paper])
        if run or bare or paper in short:
            parts += [f"## {title}", "", *([str(short[paper]), ""] if paper in short else [])]
            for table in run:
                parts += [*to_markdown(table, signs=False).splitlines(), ""]
            parts += [*bare, ""] if bare else []
    labels = {name: label_of(name) for name in paper_titles()}
    parts += [
        "## Method against method over datasets",
        "",
        *over_datasets.markdown(over_datasets.diagrams(labels, rows), over_datasets.all_runs(rows), labels),
        "",
        "## Models of several suites",
        "",
        suite_comparison.RULE,
        "",
        *suite_comparison.markdown(
            suite_comparison.comparisons(
                grid, {file.cell: Version.of(SHIPPED, file.result, file.records) for file in shipped}, root
            )
        ),
        "## Every number judged",
        "",
        *_judged(rows),
        "",
        "## Claims of the papers",
        "",
        *_claims_in_short(claims, len(load_claims())),
        "",
    ]
    return "\n".join([*parts, "## Differences that were investigated", "", *_differences(root)])


def _differences(root: Path) -> list[str]:
    """Returns explanations of numbers that differ (suites/NAME/differences.md), as Markdown."""
    lines = []
    for name, folder in suite_folders().items():
        path = root / name / DIFFERENCES if (root / name).is_dir() else folder / DIFFERENCES
        if path.exists():
            lines += [f"### {label_of(name)}", "", path.read_text(encoding="utf-8")]
    return lines


def _papers(lines: Sequence[PaperLine]) -> list[str]:
    """Returns the table of papers: their own numbers by complete verdict."""
    words = [kind.word for kind in KINDS if kind.word != NOT_JUDGED]
    head = ["paper", "numbers", "complete", *words, "provisional", "worse side", "p"]
    table = [markdown_line(head), f"| --- |{' ---: |' * (len(head) - 1)}"]
    for line in lines:
        judged = [kind["count"] for kind in line["kinds"] if kind["word"] in words]
        values = [
            line["label"], line["numbers"], line["complete"], *judged, line["provisional"], line["worse"], line["p"]
        ]  # fmt: skip
        table.append(markdown_line(map(str, values)))
    totals = {key: sum(line[key] for line in lines) for key in ("numbers", "complete", "provisional")}
    return [
        *table,
        "",
        f"{totals['complete']} of {totals['numbers']} numbers have a complete verdict, with all runs of the recipe; "
        f"{totals['provisional']} more have a provisional one, which no count of verdicts contains.",
    ]


def _several(lines: Sequence[PaperLine], rows: Sequence[Row]) -> list[str]:
    """Returns which of several complete recipes of a number is counted."""
    texts = [
        f"{its[0].dataset}: " + ", ".join(f"{row.model} ({kind_of(row).word})" for row in its)
        for line in lines
        for its in several_recipes(line["paper"], rows).values()
    ]
    if not texts:
        return []
    said = "Of several complete recipes of a number, that which the paper describes is counted, here the first"
    return [f"{said}: {'; '.join(texts)}.", ""]


def _counts(tables: Sequence[PaperTable]) -> list[str]:
    """Returns a line per paper: its numbers, how many were run, and their verdicts."""
    words = [kind.word for kind in KINDS[:-1]]
    head = ["paper", "numbers published", "run", *words, "not judged", "provisional"]
    lines = [markdown_line(head), f"| --- |{' ---: |' * (len(head) - 1)}"]
    for paper in dict.fromkeys(table.layout.paper for table in tables):
        mine = [table for table in tables if table.layout.paper == paper]
        run = [
            row
            for table in mine
            for rows in table.ours.values()
            for row in rows
            if row.summary.mean is not None and not row.chosen_on_test
        ]
        kinds = Counter(kind_of(row).word for row in run if not row.provisional)
        counts = [
            sum(len(table.layout.printed) for table in mine),
            sum(table.run for table in mine),
            *(kinds[kind.word] for kind in KINDS),
            sum(row.provisional for row in run),
        ]
        lines.append(markdown_line([paper, *map(str, counts)]))
    return [*lines, "", "A number counts as run once; if several recipes are compared with it, each has a verdict."]


def _judged(rows: Sequence[Row]) -> list[str]:
    """Returns the rows that have a verdict, with its basis."""
    places = [SHOWN.index(name) for name in JUDGED]
    lines = [markdown_line(JUDGED), f"|{' --- |' * len(JUDGED)}"]
    for row in rows:
        if row.interval is not None:
            texts = cells(row)
            lines.append(markdown_line(texts[place] for place in places))
    return [
        *lines,
        "",
        "[What each column means](statistics.md). The other columns are in the files of "
        "`gt-bench board SUITE --write FOLDER`.",
    ]


def _unprinted(rows: Sequence[Row]) -> list[str]:
    """Returns a line per dataset of the rows without a published value."""
    datasets: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row.summary.mean is not None and not row.published:
            texts = cells(row)
            datasets.setdefault((row.dataset, texts[2]), []).append(f"{row.model} {texts[3]}")
    lines = [f"- {dataset} ({metric}): {', '.join(texts)}" for (dataset, metric), texts in datasets.items()]
    return ["Run, without a published number:", "", *lines] if lines else []


def _claims(rows: Sequence[Row], rules: Rules) -> list[tuple[Claim, Evaluation]]:
    """Returns the claims that published numbers and runs decide, with their verdicts."""
    return [
        (claim, evaluate_claim(claim, rows, rules=rules))
        for claim in load_claims()
        if claim.test and not needs_data(claim)
    ]


def _claims_in_short(claims: Sequence[tuple[Claim, Evaluation]], total: int) -> list[str]:
    """Returns counts of the verdicts on claims that need no data files, and the claims that fail."""
    failing = [
        f"- {judged.verdict}: {claim.paper}, {claim.place}: {claim.text}: {_shortened(judged.why)}"
        for claim, judged in claims
        if judged.verdict in (ClaimVerdict.FAILS, ClaimVerdict.INCONSISTENT)
    ]
    counted = table_of([claim for claim, _ in claims], {claim.id: judged for claim, judged in claims})[-1]
    return [
        f"[All {total} claims](claims.md). Counted here are those that need no data file and have a test: {counted}",
        "",
        *failing,
    ]


def _shortened(why: str) -> str:
    return why if len(why) <= 160 else f"{why[:160].rsplit(' ', 1)[0]} ..."


if __name__ == "__main__":
    sys.stdout.write(page(load_grid()))
