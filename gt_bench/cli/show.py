"""See what is there: cells, leaderboards, published tables, the page, the attempts at a cell. Nothing is computed."""

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from gt_bench.cli.options import RECORDS, AsJson, CellName, Paper, Records, every_cell
from gt_bench.utils.format import print_text


def list_cells(
    suite: Annotated[str | None, typer.Argument(help="only this suite")] = None, as_json: AsJson = False
) -> None:
    """The cells of the grid with their state, and how many of their seeds the store has."""
    from gt_bench.reports.cell_list import listing, show_listing

    grid = every_cell()
    found, problems = listing(grid.suite(suite) if suite else grid.cells.values(), grid)
    if as_json:
        print(json.dumps({"cells": found, "problems": problems}, indent=1))
    else:
        show_listing(found, problems)
    if problems:
        raise typer.Exit(1)


def show(name: Annotated[str, typer.Argument(metavar="SUITE|CELL")], as_json: AsJson = False) -> None:
    """The leaderboard of a suite as last written; or the recipe of a cell (suite/dataset/row), complete, with the origin of each value."""

    grid = every_cell()
    if grid.means_suite(name):
        name = grid.suite_name(name)
        from gt_bench.pipeline.leaderboard import show_written, written

        if as_json:
            print(json.dumps(written(name, grid), indent=1))
        else:
            show_written(name, grid)
        return
    from gt_bench.config.recipe import load_recipe
    from gt_bench.config.serialize import recipe_text

    recipe = load_recipe(grid.find(name).recipe_path)
    print(
        json.dumps(recipe.model_dump(mode="json", exclude_unset=True), indent=1)
        if as_json
        else recipe_text(recipe).rstrip("\n")
    )


def board(
    suite: Annotated[str | None, typer.Argument(help="a suite; none with --dataset")] = None,
    dataset: Annotated[
        str | None,
        typer.Option(help="all suites' rows of this dataset, own and shipped, and what the papers print of it"),
    ] = None,
    notes: Annotated[bool, typer.Option("--notes", help="also print the notes on rows")] = False,
    write: Annotated[Path | None, typer.Option(help="write SUITE.json, .csv and .md into this folder")] = None,
    records: Records = RECORDS,
    as_json: AsJson = False,
) -> None:
    """The leaderboard of a suite from the shipped records alone, or of a dataset from own and shipped ones: nothing is computed, and a stale row says
    what changed since."""
    from gt_bench.config.schema import RecipeError
    from gt_bench.reports.results_page import board as suite_rows
    from gt_bench.reports.results_page import dataset_rows, show_dataset, show_suite

    if suite is not None and dataset is None:
        grid = every_cell()
        suite = grid.suite_name(suite)
        if as_json:
            print(json.dumps(suite_rows(suite, grid, records), indent=1))
        else:
            show_suite(suite, grid, records, write, notes)
    elif dataset is not None and suite is None and write is None:
        if as_json:
            print(json.dumps(dataset_rows(dataset, every_cell(), records)[0], indent=1))
        else:
            show_dataset(dataset, every_cell(), records, notes)
    else:
        raise RecipeError(
            "say one of them: `gt-bench board SUITE [--write FOLDER]`, or `gt-bench board --dataset DATASET`"
        )


class Form(StrEnum):
    """How `gt-bench table` prints a published table."""

    terminal = "terminal"
    md = "md"
    tex = "tex"
    html = "html"
    csv = "csv"


def table(
    paper: Paper = None,
    name: Annotated[
        str | None, typer.Argument(metavar="TABLE", help="as in `Table 3`, or 3; a list of them where none is named")
    ] = None,
    form: Annotated[Form, typer.Option("--format")] = Form.terminal,
    records: Records = RECORDS,
) -> None:
    """A published table in the paper's own layout: the printed numbers, ours below them with their verdicts."""
    from gt_bench.config.grid import load_grid
    from gt_bench.config.schema import RecipeError
    from gt_bench.leaderboard.collect import gather
    from gt_bench.reports.show_table import show, show_list

    if form is not Form.terminal and name is None:
        raise RecipeError(
            f"--format {form}: of which table? gt-bench table PAPER TABLE --format {form}; `gt-bench table` lists them"
        )
    found = gather(load_grid(), root=records)
    if paper is None or name is None:
        show_list(paper, found.rows)
    else:
        show(paper, name, found.rows, form.value)
    for problem in found.problems:
        print_text(problem, file=sys.stderr)


def page(
    out: Annotated[Path, typer.Option(help="the file to write")] = Path("reports/index.html"),
    records: Records = RECORDS,
) -> None:
    """Writes everything that was printed and run as one page for a browser, from this machine's and the shipped records; nothing is computed."""
    from gt_bench.reports.html.build import write_page

    print_text(f"written: {write_page(every_cell(), out, records=records)}")


def history(cell: CellName) -> None:
    """The attempts at a cell: when, by which commit, which number, and what changed from each to the next."""
    from gt_bench.reports.attempt_history import attempts_at, history_lines

    print_text("\n".join(history_lines(attempts_at(every_cell().find(cell)))))


def ui(
    host: Annotated[str, typer.Option(help="address to serve")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="port to serve")] = 5000,
) -> None:
    """Serves MLflow's pages of all runs until it is interrupted, and prints the address of each suite (docs/mlflow.md)."""
    from gt_bench.tracking.ui import main

    sys.argv[1:] = ["--host", host, "--port", str(port)]
    if status := main():
        raise typer.Exit(status)
