"""See what is there: cells, results, the page, attempts at a cell. Nothing is computed."""

import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from gt_bench.cli.options import RECORDS, AsJson, CellName, Names, Records, Trust, every_cell
from gt_bench.utils.format import print_json, print_text


def list_cells(
    names: Names = None,
    as_json: AsJson = False,
) -> None:
    """List the cells of the grid: state, and how many of their seeds are in the store of this folder.

    Records of `shipped` cells are not in the store; `gt-bench board` shows them.
    """
    from gt_bench.pipeline.cell_list import listing, show_listing

    grid = every_cell()
    cells, problems = listing(grid.chosen(names or []), grid)
    if as_json:
        print_json({"cells": cells, "problems": problems})
    else:
        show_listing(cells, problems)
    if problems:
        raise typer.Exit(1)


def board(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="SUITE|DATASET|CELL", help="of which results are shown; default: a list of tables"),
    ] = None,
    table: Annotated[
        str | None,
        typer.Option(
            metavar="TABLE", help="a published table of SUITE in its layout, with our results: `Table 3`, or 3"
        ),
    ] = None,
    form: Annotated[
        Literal["terminal", "md", "tex", "html", "csv"], typer.Option("--format", help="of --table")
    ] = "terminal",
    recipe: Annotated[
        bool, typer.Option("--recipe", help="the recipe of CELL, with the origin of each value, instead of results")
    ] = False,
    notes: Annotated[
        bool, typer.Option("--notes", help="also print notes on rows, and cells without a result")
    ] = False,
    write: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="write SUITE.json, .csv and .md to this folder")
    ] = None,
    records: Records = RECORDS,
    as_json: AsJson = False,
) -> None:
    """Show results of suites, datasets and cells, own and shipped, next to published numbers. Nothing is computed.

    The status of a stale row lists what has changed since its runs. Exit 1 if a result or a record cannot be read.
    """
    from gt_bench.config.option_text import OptionError

    if (table or recipe or write) and len(names or ()) != 1:
        option, of = ("--table", "suite") if table else ("--recipe", "cell") if recipe else ("--write", "suite")
        raise OptionError(f"expected one {of}: gt-bench board {of.upper()} {option}", place=option)
    if form != "terminal" and not table:
        problem, remedy = "of which table?", "add --table TABLE; `gt-bench board` lists them"
        raise OptionError(problem, place="--format", value=form, remedy=remedy)
    grid = every_cell()
    if recipe and names:
        from gt_bench.config.recipe import load_recipe
        from gt_bench.config.serialize import recipe_text

        loaded = load_recipe(grid.find(names[0]).recipe_path)
        if as_json:
            print_json(loaded.model_dump(mode="json", exclude_unset=True))
        else:
            print(recipe_text(loaded).rstrip("\n"))
    elif not names or table:
        from gt_bench.pipeline.gather import gather
        from gt_bench.reports.show_table import show as show_table
        from gt_bench.reports.show_table import show_list

        gathered = gather(grid, root=records)
        if names and table:
            show_table(names[0], table, gathered.rows, "json" if as_json else form)
        else:
            show_list(gathered.rows, as_json)
        for problem in gathered.problems:
            print_text(problem, file=sys.stderr)
    else:
        from gt_bench.leaderboard.export import to_columns
        from gt_bench.pipeline.gather import gather
        from gt_bench.reports.board import board as board_of
        from gt_bench.reports.board import show
        from gt_bench.reports.board import write as write_files

        boards = [board_of(name, grid, partial(gather, root=records)) for name in names]
        if as_json:
            print_json([to_columns(row) for paper in boards for row in (*paper.rows, *paper.others)])
        for i, paper in enumerate(boards if not as_json else ()):
            print("\n" if i else "", end="")
            show(paper, grid, notes)
        if write:
            paths = write_files(boards[0], write, grid)
            print_text(f"written: {', '.join(map(str, paths))}", file=sys.stderr if as_json else None)
        if not all(paper.readable for paper in boards):
            raise typer.Exit(1)


def page(
    out: Annotated[Path, typer.Option(metavar="FILE", help="the file to write")] = Path("reports/index.html"),
    records: Records = RECORDS,
    trust: Trust = False,
) -> None:
    """Write all published numbers and results as one HTML page, from own and shipped records. Trains nothing.

    Functions in plots/ add custom plots (docs/custom_plots.md). Exit 1 if one of them fails; the page is written.
    """
    from gt_bench.claims.checks.registry import trust_suites
    from gt_bench.pipeline.page import write_page

    if trust:
        trust_suites()
    failed: list[str] = []
    written = write_page(every_cell(), out, records=records, warn=failed.append)
    print_text(f"written: {written.path}")
    if written.own:
        print_text(f"your results on {', '.join(written.own)}: {written.path}#own")
    for line in failed:
        print_text(line, file=sys.stderr)
    if failed:
        raise typer.Exit(1)


def history(cell: CellName, as_json: AsJson = False) -> None:
    """Show the attempts at a cell: when, commit, result, and what changed from each to the next."""
    from gt_bench.reports import attempt_history

    attempts = attempt_history.attempts_at(every_cell().find(cell))
    if as_json:
        print_json([attempt_history.as_json(attempt) for attempt in attempts])
    else:
        print_text("\n".join(attempt_history.history_lines(attempts)))


def ui(
    host: Annotated[str, typer.Option(metavar="HOST", help="address to serve")] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="PORT", help="port to serve")] = 5000,
) -> None:
    """Serve the MLflow pages of all runs until interrupted, and print the address of each suite (docs/mlflow.md)."""
    from gt_bench.tracking.ui import main

    sys.argv[1:] = ["--host", host, "--port", str(port)]
    if status := main():
        raise typer.Exit(status)
