"""Leaderboards of suites from shipped records, on a terminal and as docs/results.md.

python -m gt_bench.reports.results_markdown > docs/results.md
"""

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from gt_bench.claims.evaluate import FAILS, INCONSISTENT, Claim, evaluate_claim, load_claims, needs_data
from gt_bench.claims.table import table_of
from gt_bench.config.grid import Grid, load_grid
from gt_bench.config.recipe import TRIED
from gt_bench.config.schema import RecipeError, nearest
from gt_bench.config.suite import load_suite
from gt_bench.config.verdict_settings import Rules
from gt_bench.leaderboard.collect import collect, every_row, gather, shipped_of, shipped_rows
from gt_bench.leaderboard.columns import SHOWN, cells, remarks_of
from gt_bench.leaderboard.export import tally, write_reports
from gt_bench.leaderboard.printed_rows import print_rows, short_names
from gt_bench.leaderboard.rows import with_state
from gt_bench.leaderboard.whole_paper import several_recipes
from gt_bench.papers.coverage import coverage, seconds_by_device
from gt_bench.papers.published import everything, paper_titles
from gt_bench.papers.table_layout import layouts
from gt_bench.provenance import uncommitted
from gt_bench.provenance.staleness import freshness
from gt_bench.reports import over_datasets
from gt_bench.reports.html.overview import NO_VERDICT, PaperLine, of_papers
from gt_bench.reports.paper_summary import every_in_short
from gt_bench.reports.paper_table import KINDS, PaperTable, kind_of, paper_table, run_part, to_markdown
from gt_bench.schemas import Row
from gt_bench.store.run_store import Store
from gt_bench.store.shipped_files import ROOT
from gt_bench.utils.format import print_text
from gt_bench.utils.paths import place, suite_folders
from gt_bench.utils.terminal import print_table

JUDGED = (
    "dataset", "model", "metric", "runs", "difference [95 %]", "verdict", "q", "margin (power)", "seeds needed",
    "claim",
)  # fmt: skip

DIFFERENCES = "differences.md"  # in the folder of a suite


def board(suite: str, grid: Grid, root: Path = ROOT) -> list[Row]:
    """Return the rows of the leaderboard of a suite from shipped records; of the suite `tried`, from this folder.

    Args:
        suite: name of the suite.
        grid: the grid.
        root: folder of suites with their records.

    Returns:
        The rows. The status of a stale row lists what has changed since.

    Raises:
        StoreError: a record cannot be used.
        RecipeError: the suite does not exist.
    """
    if suite == TRIED:
        return collect(grid.suite(suite), Path("results"), Store(), grid.run.verdict)[0]
    shipped = shipped_of(grid, suite, root)
    rows = shipped_rows(grid.suite(suite), shipped, grid)
    found = []
    for row in rows:
        if row["cell"] in shipped:
            fresh = freshness(shipped[row["cell"]], grid)
            row = with_state(row, row["state"].with_stale(fresh.stale))
            row["notes"][-1] += f": {fresh.text}"
        found.append(row)
    return found


def show_suite(suite: str, grid: Grid, root: Path = ROOT, write: Path | None = None, notes: bool = False) -> None:
    """Print the leaderboard of a suite.

    Args:
        suite: name of the suite.
        grid: the grid.
        root: folder of suites with their records.
        write: also write its files into this folder.
        notes: also print the notes on rows.

    Raises:
        StoreError: a record cannot be used.
        RecipeError: the suite does not exist.
    """
    rows = board(suite, grid, root)
    if suite == TRIED:
        print_rows(suite, rows, notes)
        print_text("from results/ and store/; nothing was computed")
        return
    shown = [row for row in rows if not row["state"].absent]
    if shown:
        print_rows(suite, shown, notes)
        print_text(tally(shown, grid.run.verdict))
    else:
        print_text(f"{suite} has no shipped records; `gt-bench show {suite}` prints the results that you computed")
    without = [row["cell"] for row in rows if row["state"].absent]
    if said := claim_lines(rows, suite, grid.run.verdict):
        print_text(f"Claims of the paper: {said[-3]} `gt-bench claims {suite}` shows them")
    print_text(f"from {place(root / suite)} alone; nothing was computed")
    if without:
        print_text(
            f"{len(without)} cells have no shipped record: {', '.join(cell.split('/', 1)[1] for cell in without)}"
        )
    if write:
        print_text(f"written: {', '.join(map(str, write_reports(suite, rows, write, grid.run.verdict)))}")


def dataset_rows(dataset: str, grid: Grid, root: Path = ROOT) -> tuple[list[Row], list[str]]:
    """Return the rows of a dataset from all suites, own and shipped, and what could not be read.

    Raises:
        RecipeError: neither the grid nor a paper has the dataset.
    """
    if dataset not in grid.datasets and all(number.dataset != dataset for number in everything()):
        raise RecipeError(
            f"no dataset {dataset!r}{nearest(dataset, grid.datasets)}; `gt-bench list` shows those of the grid, and "
            "`gt-bench try` runs others"
        )
    found = gather(grid, root=root)
    return [row for row in (*found.rows, *found.others) if row["dataset"] == dataset], found.problems


def show_dataset(dataset: str, grid: Grid, root: Path = ROOT, notes: bool = False) -> None:
    """Print the rows of a dataset from all suites, and the published numbers without a run.

    Args:
        dataset: name of the dataset.
        grid: the grid.
        root: folder of suites with their records.
        notes: also print the notes on rows.

    Raises:
        RecipeError: neither the grid nor a paper has the dataset.
    """
    rows, problems = dataset_rows(dataset, grid, root)
    name, difference = "suite / recipe, or paper: method", "difference [95 %]"
    names = (name, "metric", "mean ± std", "runs", "published", difference, "verdict", "from")
    lines = []
    for row in rows:
        texts = dict(zip(SHOWN, cells(row), strict=True))
        status = "" if row["state"].complete else f"{row['status']}, "
        label = " / ".join(row["cell"].split("/")[::2])
        lines.append([label, *(texts[k] for k in names[1:-1]), f"{status}{row['source']}"])
    run = {tuple(row["published_place"]) for row in rows if row["published_place"] and row["mean"] is not None}
    for number in everything():
        if number.dataset == dataset and number.place not in run:
            metric = (
                f"{number.metric} {'↑' if number.direction == 'max' else '↓'}{' %' if number.unit == 'percent' else ''}"
            )
            where = f"{number.table}{'' if number.split == 'test' else f', {number.split} split'}"
            lines.append([f"{number.paper}: {number.method}", metric, "–", "–", number.printed, "–", "–", where])
    print_table(
        names,
        lines,
        wrapped={name, "metric", "verdict", "from"},
        right=("mean ± std", "published"),
        title=dataset,
        files=" (--json)",
        stacks=((name, "metric"), ("mean ± std", "published"), (difference, "verdict"), ("runs", "from")),
        shorter={name: short_names([line[0] for line in lines])},
    )
    remarks = dict.fromkeys(remark for row in rows for remark in remarks_of(row))
    if notes:
        for remark in remarks:
            print_text(f"  {remark}")
    elif remarks:
        print_text(f"{len(remarks)} notes on these rows: --notes prints them")
    absent = [
        cell.cell
        for cell in grid.cells.values()
        if cell.dataset == dataset and cell.cell not in {row["cell"] for row in rows}
    ]
    if absent:
        print_text(f"{len(absent)} cells of the grid have not been run: {', '.join(absent)}")
    for problem in problems:
        print_text(problem)
    print_text("from results/, store/ and shipped records; nothing was computed")


def page(grid: Grid, root: Path = ROOT) -> str:
    """Returns docs/results.md: the tables of each paper with our results, and the differences that were investigated.

    Raises:
        StoreError: a shipped record is damaged.
    """
    rows = every_row(grid, root)
    tables = [paper_table(layout, rows) for layout in layouts()]
    shipped = [one for suite in grid.suites for one in shipped_of(grid, suite, root).values()]
    covered = coverage(grid, rows, {one.cell: seconds_by_device(one.records) for one in shipped})
    lines = of_papers([one for one in covered if one.paper in grid.suites], rows)
    parts = [
        "# Results so far",
        "",
        "Generated from the shipped records by `python -m gt_bench.reports.results_markdown > docs/results.md`.",
        "`gt-bench page` writes all of it with plots and recipes into `reports/index.html`.",
        "`gt-bench table PAPER TABLE` prints one table. `gt-bench store verify` lists the records that",
        "the current code would compute differently.",
        "A line `ours` is our mean and deviation over the runs of one recipe:",
        f"{'; '.join(f'{kind.sign} {kind.says}' for kind in KINDS)} ([what these words mean](verdicts.md)).",
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
        uncommitted.sentence({one.cell: one.records for one in shipped}).partition(f" {uncommitted.CELLS}")[0],
        "",
    ]
    claims = _claims(rows, grid.run.verdict)
    verdicts = [(claim.paper, verdict) for claim, verdict, _ in claims if claim.said != "asked here"]
    short = every_in_short([one for one in covered if one.paper in grid.suites], verdicts, rows)
    titles = {suite: suite for suite in dict.fromkeys(row["cell"].split("/")[0] for row in rows)}
    for paper, title in (titles | paper_titles()).items():
        run = [part for table in tables if table.layout.paper == paper and (part := run_part(table))]
        bare = _unprinted([row for row in rows if row["cell"].split("/")[0] == paper])
        if run or bare or paper in short:
            parts += [f"## {title}", "", *([str(short[paper]), ""] if paper in short else [])]
            for table in run:
                parts += [*to_markdown(table, signs=False).splitlines(), ""]
            parts += [*bare, ""] if bare else []
    labels = {name: load_suite(name).label or name for name in paper_titles()}
    parts += [
        "## Method against method over datasets",
        "",
        *over_datasets.markdown(over_datasets.diagrams(labels, rows), over_datasets.all_runs(rows), labels),
        "",
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
    found = []
    for name, folder in suite_folders().items():
        path = root / name / DIFFERENCES if (root / name).is_dir() else folder / DIFFERENCES
        if path.exists():
            found += [f"### {load_suite(name).label or name}", "", path.read_text(encoding="utf-8")]
    return found


def _papers(lines: Sequence[PaperLine]) -> list[str]:
    """Returns the table of papers: their own numbers by complete verdict."""
    kinds = [kind for kind in KINDS if kind.word != NO_VERDICT]
    head = ["paper", "numbers", "complete", *(kind.word for kind in kinds), "provisional", "worse side", "p"]
    found = [f"| {' | '.join(head)} |", f"| --- |{' ---: |' * (len(head) - 1)}"]
    for line in lines:
        counts = {kind["word"]: kind["count"] for kind in line["kinds"]}
        judged = [counts[kind.word] for kind in kinds]
        values = [
            line["label"], line["numbers"], line["complete"], *judged, line["provisional"], line["worse"], line["p"]
        ]  # fmt: skip
        found.append(f"| {' | '.join(map(str, values))} |")
    totals = {key: sum(line[key] for line in lines) for key in ("numbers", "complete", "provisional")}
    return [
        *found,
        "",
        f"{totals['complete']} of {totals['numbers']} numbers have a complete verdict, with all runs of the recipe; "
        f"{totals['provisional']} more have a provisional one, which no count of verdicts contains.",
    ]


def _several(lines: Sequence[PaperLine], rows: Sequence[Row]) -> list[str]:
    """Returns which of several complete recipes of a number is counted."""
    found = [
        f"{its[0]['dataset']}: " + ", ".join(f"{row['model']} ({kind_of(row).word})" for row in its)
        for line in lines
        for its in several_recipes(line["paper"], rows).values()
    ]
    if not found:
        return []
    said = "Of several complete recipes of a number, that which the paper describes is counted, here the first"
    return [f"{said}: {'; '.join(found)}.", ""]


def _counts(tables: Sequence[PaperTable]) -> list[str]:
    """Returns a line per paper: its numbers, how many were run, and their verdicts."""
    lines = [
        f"| paper | numbers published | run | {' | '.join(kind.word for kind in KINDS[:-1])} | not judged | "
        "provisional |",
        f"| --- |{' ---: |' * (3 + len(KINDS))}",
    ]
    for paper in dict.fromkeys(table.layout.paper for table in tables):
        mine = [table for table in tables if table.layout.paper == paper]
        run = [
            row
            for table in mine
            for rows in table.ours.values()
            for row in rows
            if row["mean"] is not None and not row["chosen_on_test"]
        ]
        kinds = Counter(kind_of(row).word for row in run if not row["provisional"])
        counts = [
            sum(len(table.layout.printed) for table in mine),
            sum(table.run for table in mine),
            *(kinds[kind.word] for kind in KINDS),
            sum(bool(row["provisional"]) for row in run),
        ]
        lines.append(f"| {paper} | {' | '.join(map(str, counts))} |")
    return [*lines, "", "A number counts as run once; if several recipes are compared with it, each has a verdict."]


def _judged(rows: Sequence[Row]) -> list[str]:
    """Returns the rows that have a verdict, with its basis."""
    places = [SHOWN.index(name) for name in JUDGED]
    lines = [f"| {' | '.join(JUDGED)} |", f"|{' --- |' * len(JUDGED)}"]
    for row in rows:
        if row["interval_low"] is not None:
            texts = cells(row)
            lines.append(f"| {' | '.join(texts[place].replace('|', chr(92) + '|') for place in places)} |")
    return [
        *lines,
        "",
        "[What each column means](verdicts.md). The other columns are in the files of "
        "`gt-bench board SUITE --write FOLDER`.",
    ]


def _unprinted(rows: Sequence[Row]) -> list[str]:
    """Returns a line per dataset of the rows without a published value."""
    datasets: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row["mean"] is not None and not row["published_place"]:
            texts = cells(row)
            datasets.setdefault((row["dataset"], texts[2]), []).append(f"{row['model']} {texts[3]}")
    found = [f"- {dataset} ({metric}): {', '.join(texts)}" for (dataset, metric), texts in datasets.items()]
    return ["Run, without a published number:", "", *found] if found else []


def _claims(rows: Sequence[Row], rules: Rules) -> list[tuple[Claim, str, str]]:
    """Returns (claim, verdict, reason) of the claims that published numbers and runs decide."""
    return [
        (claim, *evaluate_claim(claim, rows, rules=rules))
        for claim in load_claims()
        if claim.test and not needs_data(claim)
    ]


def _claims_in_short(claims: Sequence[tuple[Claim, str, str]], total: int) -> list[str]:
    """Returns counts of the verdicts on claims that need no data files, and the claims that fail."""
    failing = [
        f"- {verdict}: {claim.paper}, {claim.place}: {claim.text}: {_shortened(why)}"
        for claim, verdict, why in claims
        if verdict in (FAILS, INCONSISTENT)
    ]
    counted = table_of([claim for claim, *_ in claims], {claim.id: (verdict, why) for claim, verdict, why in claims})[
        -1
    ]
    return [
        f"[All {total} claims](claims.md). Counted here are those that need no data file and have a test: {counted}",
        "",
        *failing,
    ]


def _shortened(why: str, most: int = 160) -> str:
    return why if len(why) <= most else f"{why[:most].rsplit(' ', 1)[0]} ..."


def claim_lines(rows: Sequence[Row], paper: str | None = None, rules: Rules | None = None) -> list[str]:
    """Returns the claims that published values and the runs of `rows` decide, as Markdown; empty if there are none.

    Raises:
        RecipeError: a claims.yaml is not valid.
    """
    claims = [c for c in load_claims() if c.test and not needs_data(c) and paper in (None, c.paper)]
    if not claims:
        return []
    lines = table_of(claims, {claim.id: evaluate_claim(claim, rows, rules=rules) for claim in claims})
    return [
        *lines,
        "",
        "docs/claims.md has all of them: also those that need data, and those without a test (`gt-bench claims`).",
    ]


if __name__ == "__main__":
    sys.stdout.write(page(load_grid()))
