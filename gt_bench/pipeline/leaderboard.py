"""Stage leaderboard@suite: reports/SUITE.json, .csv and .md from results and records, metrics and plots for DVC, the page of all suites, a table
on the terminal, MLflow completed.

    python -m stages.leaderboard SUITE

Equal records give equal files. Nothing that is missing or broken stops it: the row of that cell says what is wrong and what mends it.
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
    """Writes the leaderboard of SUITE and completes its MLflow experiment."""
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


def show(suite: str, rows: Sequence[Row], files: Sequence[Path], rules: Rules) -> None:
    """Prints the rows, the count of verdicts and which files were written."""
    from gt_bench.leaderboard.terminal import print_rows

    print_rows(suite, rows)
    print_text(tally(rows, rules))
    print_text(f"written: {', '.join(map(str, files))}")


def written(suite: str, grid: Grid) -> list[Row]:
    """The rows of a suite as last written. Raises RecipeError, and StoreError for a file that is no leaderboard."""
    grid.suite(suite)
    path = Path("reports", f"{suite}.json")
    if not path.exists():
        raise RecipeError(
            f"{path} is not there yet: run `make reproduce SUITE={suite}`; of what ran already, `python -m stages.leaderboard {suite}` writes it"
        )
    return rows_in(path)


def show_written(suite: str, grid: Grid) -> None:
    """Prints the leaderboard of a suite as last written. Raises as `written`."""
    from gt_bench.tracking.uri import tracking_uri
    from gt_bench.utils.redact import without_credentials

    show(
        suite,
        written(suite, grid),
        [Path("reports", f"{suite}.{form}") for form in ("json", "csv", "md")],
        grid.run.verdict,
    )
    uri = without_credentials(tracking_uri())
    print_text(
        f"MLflow: open {uri}"
        if uri.startswith("http")
        else "MLflow: `make ui` serves it and prints the address of each suite"
    )


def write_the_page(grid: Grid, out: Path, results: Path, store: Path, say: bool) -> None:
    """Writes the page of all suites; what keeps it from being written costs a warning, never the reports."""
    from gt_bench.papers.published import PublishedError
    from gt_bench.reports.html.build import write_page

    try:
        write_page(grid, out, results, store)
        if say:
            print_text(f"all suites, for a browser: {out}")
    except (UserError, PublishedError) as error:
        print_text(
            f"warning: {out} was not written: {error}. `gt-bench page` writes it when that is mended.", file=sys.stderr
        )


def track(suite: str, results: Sequence[Result], records: dict[str, Record], rows: Sequence[Row], store: Store) -> None:
    """Completes MLflow and says how to look at it; a store that cannot be reached costs a warning, never the reports."""
    from gt_bench.tracking.sqlite import TrackingError
    from gt_bench.tracking.sync import complete
    from gt_bench.tracking.uri import tracking_uri
    from gt_bench.utils.redact import without_credentials

    uri = without_credentials(tracking_uri())
    try:
        complete(suite, results, records, rows=rows, store=store)
    except (TrackingError, StoreError) as error:
        remedy = f"when it is back, `python -m stages.leaderboard {suite}` completes it from the records"
        print_text(
            f"warning: MLflow at {uri} was not completed: {without_credentials(str(error))}. The reports are written; {remedy}.",
            file=sys.stderr,
        )
        return
    look = (
        f"open {uri}"
        if uri.startswith("http")
        else "`make ui` (or `python -m gt_bench.tracking.ui`) serves it and prints the address of each suite"
    )
    print_text(f"MLflow: {look}", flush=True)
