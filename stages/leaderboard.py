"""Stage leaderboard@suite: reports/SUITE.json, .csv and .md from results and records, a table on the terminal, MLflow completed.

    python -m stages.leaderboard SUITE

Equal records give equal files. Nothing that is missing or broken stops it: the row of that cell says what is wrong and what mends it.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from stages.command import ends_in_order
from stages.files import write_bytes
from stages.params import Cell, load_grid
from stages.records.shipped import read_result, record_problems
from stages.report.rules import Rules
from stages.report.table import absent, remarks_of, rows_of, tally, terminal_table, to_csv, to_json, to_markdown, with_claims
from stages.store import Store, StoreError

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
    rows, found, records = collect(grid.suite(suite), results, Store(store), grid.run.verdict)
    files = write_reports(suite, rows, reports, grid.run.verdict)
    if print_:
        show(suite, rows, files, grid.run.verdict)
    if mlflow:
        track(suite, found, records, rows)


def collect(cells: Sequence[Cell], results: Path, store: Store, rules: Rules) -> tuple[list[dict], list[dict], dict[str, dict]]:
    """(rows of all declared cells in their order, the readable results, the readable records by digest)."""
    rows, found, records = [], [], {}
    for cell in cells:
        again = f"`python -m stages.train {cell.cell}`"
        try:
            result = read_result(results / f"{cell.cell}.json", cell.cell)
        except StoreError as error:
            rows.append(absent(cell.cell, "unreadable", str(error)))
            continue
        if result is None:
            rows.append(absent(cell.cell, "not run", None))
            continue
        mine, problems = [], []
        for digest in result["runs"]:
            file = store.folder(digest) / "record.json"
            try:
                record = store.get(digest)
            except (StoreError, OSError) as error:
                problems.append(f"{error}: {again}")
                continue
            if record is None:
                problems.append(f"{file} is missing; {again} makes it again")
            elif wrong := record_problems(record):
                problems.append(f"{file}: {'; '.join(wrong)}; delete the file and run {again}")
            else:
                mine.append(record)
        found.append(result)
        records |= {r["digest"]: r for r in mine}
        rows += rows_of(result, mine, problems, rules)
    return with_claims(rows, rules), found, records


def write_reports(suite: str, rows: Sequence[dict[str, Any]], reports: Path, rules: Rules) -> list[Path]:
    """The three files, each replaced whole. Raises WriteError."""
    contents = {"json": to_json(suite, rows, rules), "csv": to_csv(rows), "md": to_markdown(suite, rows, rules)}
    return [write_bytes(reports / f"{suite}.{kind}", text.encode()) for kind, text in contents.items()]


def show(suite: str, rows: Sequence[dict[str, Any]], files: Sequence[Path], rules: Rules) -> None:
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else 180)
    console.print(terminal_table(suite, rows, console.width))
    for remark in dict.fromkeys(r for row in rows for r in remarks_of(row)):
        print(f"  {remark}")
    print(tally(rows, rules))
    print(f"written: {', '.join(map(str, files))}")


def track(suite: str, results: Sequence[dict], records: dict[str, dict], rows: Sequence[dict[str, Any]]) -> None:
    """Completes MLflow and says how to look at it; a store that cannot be reached costs a warning, never the reports."""
    from stages.addresses import without_credentials
    from stages.mlflow.tracking import TrackingError, complete, tracking_uri

    uri = without_credentials(tracking_uri())
    try:
        complete(suite, results, records, rows=rows)
    except TrackingError as error:
        remedy = f"when it is back, `python -m stages.leaderboard {suite}` completes it from the records"
        print(
            f"warning: MLflow at {uri} was not completed: {without_credentials(str(error))}. The reports are written; {remedy}.",
            file=sys.stderr,
        )
        return
    look = f"open {uri}" if uri.startswith("http") else f"mlflow ui --backend-store-uri {uri}   (then open http://127.0.0.1:5000)"
    print(f"MLflow: {look}", flush=True)


if __name__ == "__main__":
    app()
