"""reports/index.html: all published and own results on one page that needs no network.

The page is one file: tables in HTML (sorted and filtered by DataTables), plots by Plotly, both built in
(vendor/README.md has their versions and licences), and the details of cells as JSON. A policy in its head forbids every
request and every script but these, by their digests, so that no text from a record can run.
"""

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, cast

from gt_bench.claims.evaluate import Claim, ClaimVerdict, Evaluation, evaluate_claim, load_claims, needs_data
from gt_bench.config.cell_recipe import recipes_of
from gt_bench.config.grid import Grid
from gt_bench.config.schema import RecipeError
from gt_bench.config.verdict_settings import Rules
from gt_bench.leaderboard.collect import SHIPPED, Gathered
from gt_bench.leaderboard.coverage import added, coverage, seconds_by_device, spent
from gt_bench.leaderboard.export import explanation, tally
from gt_bench.leaderboard.row import Row
from gt_bench.papers.results_file import label_of, paper_titles
from gt_bench.papers.table_layout import layouts
from gt_bench.reports import over_datasets, suite_comparison
from gt_bench.reports.html import cell_details, content, custom_plots, overview, plot_data, progress
from gt_bench.reports.html.critical_diagram import draw
from gt_bench.reports.html.custom_plots import CustomPlot
from gt_bench.reports.html.progress import NO_COSTS, Costs
from gt_bench.reports.paper_summary import PaperSummary, every_in_short
from gt_bench.reports.paper_table import KINDS, PaperTable, paper_table
from gt_bench.store import uncommitted
from gt_bench.store.shipped_files import ROOT
from gt_bench.utils.errors import UserError

if TYPE_CHECKING:  # only a page that is written needs them
    from jinja2 import Environment
    from markupsafe import Markup

HERE = Path(__file__).parent
PLOTLY = "vendor/plotly-basic.min.js"
SCRIPTS = ("vendor/dataTables.min.js", PLOTLY, "templates/page.js")


def page_html(
    grid: Grid,
    held: Gathered,
    costs: Costs = NO_COSTS,
    records: Path = ROOT,
    custom: Sequence[CustomPlot] = (),
) -> str:
    """Returns the page as one document that contains its scripts, styles and data."""
    present = {row.cell for row in held.rows}
    absent = [cell for cell in grid.cells.values() if cell.cell not in present]
    tables = [paper_table(layout, held.rows) for layout in layouts()]
    recipes = recipes_of(grid.cells.values())
    claims = _claims(held.rows, grid.run.verdict)
    runs = content.records(held)
    seconds = {cell: seconds_by_device(its) for cell, its in runs.items()}
    covered = coverage(grid, held.rows, seconds, recipes)
    problems = list(held.problems)
    verdicts = [(claim.paper, judged.verdict) for claim, judged in claims if claim.said != "asked here"]
    shipped = [row for row in (*held.rows, *held.others) if row.source == SHIPPED]
    try:
        short = every_in_short(covered, verdicts, shipped)
    except RecipeError as error:  # a record that it speaks of cannot be used
        short = {}
        problems.append(str(error))
    every_cell = cell_details.of_cells(grid, held, recipes)
    problems += [problem for details in every_cell.values() for problem in cast(list[str], details.get("problems", []))]
    shown = {
        "rows": plot_data.rows_for_plots(held.rows, every_cell, overview.rows_of_numbers(covered, held.rows)),
        "scaling": plot_data.scaling(held.rows, {key: version.records for key, version in held.versions.items()}),
        "growth": plot_data.growth(),
        "hot": plot_data.hot_scaling(Path("benchmarks/results/hot_scaling.csv")),
        "custom": [plot.figure for plot in custom],
        "own": plot_data.own(held),
    }
    lines = overview.of_papers(covered, held.rows)
    scripts = [(HERE / name).read_text(encoding="utf-8") for name in SCRIPTS]
    if any(plot.needs_full_plotly for plot in custom):
        scripts[SCRIPTS.index(PLOTLY)] = custom_plots.full_plotly()
    return (
        environment()
        .get_template("page.html.jinja")
        .render(
            progress=progress.of_suites(grid, held, costs),
            board=content.board(held.rows, absent),
            tuned=content.tuned(held.rows),
            overview=lines,
            judged=overview.total(lines),
            papers=[_paper(name, title, short.get(name), tables) for name, title in paper_titles().items()],
            **_methods(held.rows),
            compare_rule=suite_comparison.RULE,
            compare_columns=suite_comparison.COLUMNS,
            compared=suite_comparison.comparisons(
                grid, {row.cell: held.versions[str(row.source), row.cell] for row in held.rows}, records
            ),
            claims=claims,
            custom=custom,
            own=shown["own"],
            spent=spent(added(paper.seconds for paper in covered)),
            tally=tally(held.rows, grid.run.verdict),
            uncommitted=uncommitted.sentence(runs),
            explanation=[_emphasised(line) for line in explanation(grid.run.verdict).replace("\n  ", " ").splitlines()],
            problems=problems,
            kinds=KINDS,
            data=safe_json(shown),
            cells=safe_json(every_cell),
            scripts=scripts,
            policy="default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; script-src "
            f"{' '.join(map(_source, scripts))}",
            style=(HERE / "templates" / "page.css").read_text(encoding="utf-8"),
        )
    )


def _methods(rows: Sequence[Row]) -> dict[str, object]:
    """Returns the section of methods over datasets: a diagram per paper, and the ranking of all runs."""
    labels = {name: label_of(name) for name in paper_titles()}
    diagrams, overall = over_datasets.diagrams(labels, rows), over_datasets.all_runs(rows)
    return {
        "rank_rule": over_datasets.RULE,
        "methods": [
            {"label": labels[diagram.paper], "found": diagram, "drawing": draw(diagram),
             "said": over_datasets.sentences(diagram)}
            for diagram in diagrams
        ],
        "without_ranks": over_datasets.absent(diagrams, labels),
        "overall": overall
        and {"said": over_datasets.said_of_all(overall), "lines": over_datasets.lines_of_all(overall)},
    }  # fmt: skip


def _paper(name: str, title: str, short: PaperSummary | None, tables: Sequence[PaperTable]) -> dict[str, object]:
    """Returns a paper with its published tables: those with runs, and those without."""
    mine = [table for table in tables if table.layout.paper == name]
    label = label_of(name)
    return {
        "name": name,
        "label": label,
        "heading": title if title.startswith(label) else f"{label}: {title}",
        "short": short,
        "run_tables": [content.table_content(table) for table in mine if table.run],
        "other_tables": [content.table_content(table) for table in mine if not table.run],
        "numbers": sum(len(table.layout.printed) for table in mine),
        "run": sum(table.run for table in mine),
    }


def safe_json(value: object) -> str:
    """Returns JSON for a script element, without characters that open or close an element.

    Raises ValueError for NaN.
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _emphasised(line: str) -> "Markup":
    """Returns an item of a Markdown list as HTML: text between asterisks is emphasised, all else is plain."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"\*([^*]+)\*", r"<em>\1</em>", str(escape(line.removeprefix("- ")))))


def _code(text: str) -> "Markup":
    """Returns a text as HTML: what is between backticks is code, all else is plain."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _source(script: str) -> str:
    """Returns the hash of a script for the content security policy. Browsers read newlines as line feeds."""
    digest = base64.b64encode(hashlib.sha256(script.replace("\r\n", "\n").encode()).digest())
    return f"'sha256-{digest.decode()}'"


def _claims(rows: Sequence[Row], rules: Rules) -> list[tuple[Claim, Evaluation]]:
    """Returns the claims that published numbers, runs and stored findings decide, with their verdicts."""
    claims = []
    for claim in load_claims():
        if not needs_data(claim):
            try:
                evaluation = evaluate_claim(claim, rows, rules=rules)
            except UserError as error:  # its finding is not available
                evaluation = Evaluation(ClaimVerdict.UNDECIDED, str(error))
            claims.append((claim, evaluation))
    return claims


@cache
def environment() -> "Environment":
    """Returns the environment of the templates, which escapes every value."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(HERE / "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    made.filters["code"] = _code
    return made


def table_html(table: PaperTable) -> str:
    """Returns a published table as HTML."""
    macros = vars(environment().get_template("table.html.jinja").module)
    return macros["paper_table"](content.table_content(table)).strip() + "\n"
