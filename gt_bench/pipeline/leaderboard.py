"""Stage leaderboard@suite: write the reports of a suite from its results and records.

    python -m stages.leaderboard SUITE

It writes reports/SUITE.json, .csv and .md, metrics and plots for DVC, and the HTML page of all suites. It prints a
table and updates MLflow. Equal records give equal files. Missing or damaged records cost no other row: the row of
their cell shows what is wrong and how to fix it, and the stage ends with exit status 1.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from gt_bench.config.grid import Grid, load_grid
from gt_bench.config.schema import RecipeError
from gt_bench.config.verdict_settings import Rules
from gt_bench.leaderboard.collect import collect
from gt_bench.leaderboard.dvc_metrics import write_leaderboard
from gt_bench.leaderboard.export import tally, write_reports
from gt_bench.leaderboard.row import Row
from gt_bench.leaderboard.verdicts import with_claims
from gt_bench.records.cell import CellResult
from gt_bench.records.run import RunRecord
from gt_bench.runtime.exit_status import ends_in_order
from gt_bench.store.run_store import Store, StoreError
from gt_bench.tracking.sqlite import TrackingError
from gt_bench.tracking.sync import complete
from gt_bench.tracking.uri import tracking_uri
from gt_bench.utils.errors import UserError
from gt_bench.utils.format import print_text
from gt_bench.utils.redact import without_credentials
from gt_bench.utils.tempfiles import sweep

app = typer.Typer(add_completion=False)


@app.command()
@ends_in_order
def leaderboard(
    suite: Annotated[str, typer.Argument(help="a suite of params.yaml")],
    params: Path = Path("params.yaml"),
    results: Path = Path("results"),
    store: Path = Path("store"),
    reports: Path = Path("reports"),
    mlflow: bool = True,
    print_: Annotated[bool, typer.Option("--print/--no-print")] = True,
) -> None:
    """Write the leaderboard of SUITE and update its MLflow experiment."""
    grid = load_grid(params)
    sweep(reports, reports / "published")
    rows, found, records = collect(grid.suite(suite), results, Store(store), grid.run.verdict)
    rows = with_claims(rows, grid.run.verdict)
    files = write_reports(suite, rows, reports, grid.run.verdict)
    write_leaderboard(suite, rows, reports)
    if print_:
        show(suite, rows, files, grid.run.verdict)
    write_the_page(grid, reports / "index.html", results, store, print_)
    if mlflow:
        track(suite, found, records, rows, Store(store))
    whole = {result.cell for result in found if all(digest in records for digest in result.runs)}
    stored = [cell.cell for cell in grid.suite(suite) if (results / f"{cell.cell}.json").exists()]
    if unreadable := [name for name in stored if name not in whole]:
        remedy = f"{reports / suite}.json has the file and the remedy as the `reason` of the row"
        raise StoreError("the result or a record is missing or damaged", place=", ".join(unreadable), remedy=remedy)


def show(suite: str, rows: Sequence[Row], files: Sequence[Path], rules: Rules) -> None:
    """Print the rows, the count of verdicts and the names of the written files."""
    from gt_bench.leaderboard.printed_rows import print_rows

    print_rows(suite, rows)
    print_text(tally(rows, rules))
    print_text(f"written: {', '.join(map(str, files))}")


def own_rows(suite: str, grid: Grid) -> list[Row]:
    """Return the rows of a suite from results/ and store/.

    Raises:
        RecipeError: there is no such suite, or none of its cells has a result.
    """
    rows, found, _ = collect(grid.suite(suite), Path("results"), Store(), grid.run.verdict)
    if not found:
        remedy = f"run `make reproduce SUITE={suite}`, or `gt-bench train CELL`"
        raise RecipeError("no results", file=f"results/{suite}", value=suite, remedy=remedy)
    return with_claims(rows, grid.run.verdict)


def show_own(suite: str, grid: Grid) -> None:
    """Print the leaderboard of a suite from results/ and store/; raises the errors of `own_rows`."""
    files = [Path("reports", f"{suite}.{form}") for form in ("json", "csv", "md")]
    show(suite, own_rows(suite, grid), files, grid.run.verdict)
    uri = without_credentials(tracking_uri())
    ui = f"open {uri}" if uri.startswith("http") else "gt-bench ui"
    print_text(f"next: gt-bench board {suite} --notes, gt-bench page for plots, {ui} for MLflow")


def write_the_page(grid: Grid, out: Path, results: Path, store: Path, say: bool) -> None:
    """Write the HTML page of all suites; an error is printed as a warning and does not affect the reports."""
    from gt_bench.pipeline.page import write_page

    try:
        write_page(grid, out, results, store)
        if say:
            print_text(f"HTML page of all suites: {out}")
    except UserError as error:
        print_text(f"warning: {out} was not written: {error}; fix this and run `gt-bench page`", file=sys.stderr)


def track(
    suite: str, results: Sequence[CellResult], records: dict[str, RunRecord], rows: Sequence[Row], store: Store
) -> None:
    """Update MLflow and print how to see it; an error is printed as a warning and does not affect the reports."""
    uri = without_credentials(tracking_uri())
    try:
        complete(suite, results, records, rows=rows, store=store)
    except (TrackingError, StoreError) as error:
        print_text(
            f"warning: MLflow at {uri} was not updated: {without_credentials(str(error))}. The reports are written; "
            f"run `python -m stages.leaderboard {suite}` later to update it from the records.",
            file=sys.stderr,
        )
        return
    command = "run `make ui` (or `python -m gt_bench.tracking.ui`) to see the address of each suite"
    print_text(f"MLflow: {f'open {uri}' if uri.startswith('http') else command}", flush=True)
