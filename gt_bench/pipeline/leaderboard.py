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
from gt_bench.leaderboard.export import rows_in, tally, write_reports
from gt_bench.leaderboard.verdicts import with_claims
from gt_bench.runtime.exit_status import ends_in_order
from gt_bench.schemas import Record, Result, Row
from gt_bench.store.run_store import Store, StoreError
from gt_bench.utils.errors import UserError
from gt_bench.utils.format import print_text
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
    suite = grid.suite_name(suite)
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
    whole = {result["cell"] for result in found if all(digest in records for digest in result["runs"])}
    stored = [cell.cell for cell in grid.suite(suite) if (results / f"{cell.cell}.json").exists()]
    if unreadable := [name for name in stored if name not in whole]:
        raise StoreError(
            f"{', '.join(unreadable)}: the result or a record is missing or damaged; {reports / suite}.json has the "
            "file and the remedy as the `reason` of the row"
        )


def show(suite: str, rows: Sequence[Row], files: Sequence[Path], rules: Rules) -> None:
    """Print the rows, the count of verdicts and the names of the written files."""
    from gt_bench.leaderboard.printed_rows import print_rows

    print_rows(suite, rows)
    print_text(tally(rows, rules))
    print_text(f"written: {', '.join(map(str, files))}")


def written(suite: str, grid: Grid) -> list[Row]:
    """Return the rows of a suite as last written.

    Raises:
        RecipeError: there is no such suite, or its leaderboard was not written yet.
        StoreError: the file is not a leaderboard.
    """
    grid.suite(suite)
    path = Path("reports", f"{suite}.json")
    if not path.exists():
        raise RecipeError(
            f"{path}: no such file; run `make reproduce SUITE={suite}`, or `python -m stages.leaderboard {suite}` for "
            "the runs that are already stored"
        )
    return rows_in(path)


def show_written(suite: str, grid: Grid) -> None:
    """Print the leaderboard of a suite as last written; raises the errors of `written`."""
    from gt_bench.tracking.uri import tracking_uri
    from gt_bench.utils.redact import without_credentials

    files = [Path("reports", f"{suite}.{form}") for form in ("json", "csv", "md")]
    show(suite, written(suite, grid), files, grid.run.verdict)
    uri = without_credentials(tracking_uri())
    how = f"open {uri}" if uri.startswith("http") else "run `make ui` to see the address of each suite"
    print_text(f"MLflow: {how}")


def write_the_page(grid: Grid, out: Path, results: Path, store: Path, say: bool) -> None:
    """Write the HTML page of all suites; an error is printed as a warning and does not affect the reports."""
    from gt_bench.papers.published import PublishedError
    from gt_bench.reports.html.build import write_page

    try:
        write_page(grid, out, results, store)
        if say:
            print_text(f"HTML page of all suites: {out}")
    except (UserError, PublishedError) as error:
        print_text(f"warning: {out} was not written: {error}; fix this and run `gt-bench page`", file=sys.stderr)


def track(suite: str, results: Sequence[Result], records: dict[str, Record], rows: Sequence[Row], store: Store) -> None:
    """Update MLflow and print how to see it; an error is printed as a warning and does not affect the reports."""
    from gt_bench.tracking.sqlite import TrackingError
    from gt_bench.tracking.sync import complete
    from gt_bench.tracking.uri import tracking_uri
    from gt_bench.utils.redact import without_credentials

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
