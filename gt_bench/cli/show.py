"""See what is there: cells, leaderboards, published tables, the page, attempts at a cell. Nothing is computed."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from gt_bench.cli.options import RECORDS, AsJson, CellName, Paper, Records, Trust, every_cell
from gt_bench.utils.format import print_json, print_text


def list_cells(
    suite: Annotated[str | None, typer.Argument(metavar="SUITE", help="only this suite")] = None,
    as_json: AsJson = False,
) -> None:
    """List the cells of the grid: state, and how many of their seeds are in the store."""
    from gt_bench.reports.cell_list import listing, show_listing

    grid = every_cell()
    found, problems = listing(grid.suite(suite) if suite else grid.cells.values(), grid)
    if as_json:
        print_json({"cells": found, "problems": problems})
    else:
        show_listing(found, problems)
    if problems:
        raise typer.Exit(1)


def show(name: Annotated[str, typer.Argument(metavar="SUITE|CELL")], as_json: AsJson = False) -> None:
    """Show the leaderboard of a suite as last written, or the recipe of a cell with the origin of each value."""
    grid = every_cell()
    if grid.means_suite(name):
        name = grid.suite_name(name)
        from gt_bench.pipeline.leaderboard import show_written, written

        if as_json:
            print_json(written(name, grid))
        else:
            show_written(name, grid)
        return
    from gt_bench.config.recipe import load_recipe
    from gt_bench.config.serialize import recipe_text

    recipe = load_recipe(grid.find(name).recipe_path)
    if as_json:
        print_json(recipe.model_dump(mode="json", exclude_unset=True))
    else:
        print(recipe_text(recipe).rstrip("\n"))


def board(
    suite: Annotated[str | None, typer.Argument(metavar="SUITE", help="a suite; none with --dataset")] = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            metavar="DATASET", help="rows of this dataset from all suites, own and shipped, and published numbers"
        ),
    ] = None,
    notes: Annotated[bool, typer.Option("--notes", help="also print the notes on rows")] = False,
    write: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="write SUITE.json, .csv and .md to this folder")
    ] = None,
    records: Records = RECORDS,
    as_json: AsJson = False,
) -> None:
    """Show the leaderboard of a suite from shipped records, or of a dataset from own and shipped ones.

    A stale row lists what has changed since. Trains nothing.
    """
    from gt_bench.config.schema import RecipeError
    from gt_bench.reports.results_markdown import board as suite_rows
    from gt_bench.reports.results_markdown import dataset_rows, show_dataset, show_suite

    if suite is not None and dataset is None:
        grid = every_cell()
        suite = grid.suite_name(suite)
        if as_json:
            print_json(suite_rows(suite, grid, records))
        else:
            show_suite(suite, grid, records, write, notes)
    elif dataset is not None and suite is None and write is None:
        if as_json:
            print_json(dataset_rows(dataset, every_cell(), records)[0])
        else:
            show_dataset(dataset, every_cell(), records, notes)
    else:
        raise RecipeError("expected `gt-bench board SUITE [--write FOLDER]` or `gt-bench board --dataset DATASET`")


def table(
    paper: Paper = None,
    name: Annotated[
        str | None, typer.Argument(metavar="TABLE", help="as in `Table 3`, or 3; default: list the tables")
    ] = None,
    form: Annotated[Literal["terminal", "md", "tex", "html", "csv"], typer.Option("--format")] = "terminal",
    records: Records = RECORDS,
    as_json: AsJson = False,
) -> None:
    """Show a published table in the layout of the paper, with our results and verdicts below the published numbers."""
    from gt_bench.config.grid import load_grid
    from gt_bench.config.schema import RecipeError
    from gt_bench.leaderboard.collect import gather
    from gt_bench.reports.show_table import show, show_list

    if form != "terminal" and name is None:
        raise RecipeError(
            f"--format {form}: of which table? gt-bench table SUITE TABLE --format {form}; `gt-bench table` lists them"
        )
    found = gather(load_grid(), root=records)
    if paper is None or name is None:
        show_list(paper, found.rows, as_json)
    else:
        show(paper, name, found.rows, "json" if as_json else form)
    for problem in found.problems:
        print_text(problem, file=sys.stderr)


def page(
    out: Annotated[Path, typer.Option(metavar="FILE", help="the file to write")] = Path("reports/index.html"),
    records: Records = RECORDS,
    trust: Trust = False,
) -> None:
    """Write all published numbers and results as one HTML page, from own and shipped records. Trains nothing.

    Functions in plots/ add custom plots (docs/custom_plots.md). Exit 1 if one of them fails; the page is written.
    """
    from gt_bench.claims.checks.registry import trust_suites
    from gt_bench.reports.html.build import write_page

    if trust:
        trust_suites()
    failed: list[str] = []
    print_text(f"written: {write_page(every_cell(), out, records=records, warn=failed.append)}")
    for line in failed:
        print_text(line, file=sys.stderr)
    if failed:
        raise typer.Exit(1)


def history(cell: CellName, as_json: AsJson = False) -> None:
    """Show the attempts at a cell: when, commit, result, and what changed from each to the next."""
    from gt_bench.reports import attempt_history

    found = attempt_history.attempts_at(every_cell().find(cell))
    if as_json:
        print_json([attempt_history.as_json(one) for one in found])
    else:
        print_text("\n".join(attempt_history.history_lines(found)))


def ui(
    host: Annotated[str, typer.Option(metavar="HOST", help="address to serve")] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="PORT", help="port to serve")] = 5000,
) -> None:
    """Serve the MLflow pages of all runs until interrupted, and print the address of each suite (docs/mlflow.md)."""
    from gt_bench.tracking.ui import main

    sys.argv[1:] = ["--host", host, "--port", str(port)]
    if status := main():
        raise typer.Exit(status)
