"""Check everything, and move records between stores."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from gt_bench.cli.options import RECORDS, AsJson, Names, Records, every_cell
from gt_bench.utils.format import print_json, print_text


def doctor() -> None:
    """Check params.yaml, all recipes against model, dataset and published number, and the store. Exit 1 on problems."""
    from gt_bench.config.grid import load_grid
    from gt_bench.provenance.transfer import result_problems, stored_problems
    from gt_bench.store.run_store import Store
    from gt_bench.suites.check import grid_problems

    grid = load_grid()
    damaged, count = stored_problems(Store())
    problems = [*grid_problems(grid), *damaged, *result_problems(grid, Store())]
    for problem in problems:
        print_text(problem)
    print_text(f"{len(grid.cells)} cells, {count} records, {len(problems)} problems")
    if problems:
        raise typer.Exit(1)


def check(names: Names = None, records: Records = RECORDS) -> None:
    """Compare the golden values of shipped cells whose code has changed. Exit 1 if one differs.

    The outcome is stored. Commands that only read results use it and compute nothing.
    """
    from gt_bench.config.grid import load_grid
    from gt_bench.provenance.staleness import compare_golden_values
    from gt_bench.store.shipped_files import shipped_cells

    grid = load_grid()
    differences = compare_golden_values(shipped_cells(grid, names or [], records), grid)
    wrong = {cell: text for cell, text in differences.items() if text}
    for cell, text in wrong.items():
        print_text(f"{cell}: {text}")
    print_text(f"golden values of {len(differences)} cells compared, {len(wrong)} differ")
    if wrong:
        raise typer.Exit(1)


def store_export(
    names: Names = None,
    records: Records = RECORDS,
    replace: Annotated[bool, typer.Option(help="let a reduced cell replace a full one")] = False,
    dirty: Annotated[bool, typer.Option("--dirty", help="also runs of uncommitted code")] = False,
) -> None:
    """Write the records of cells to suites/SUITE/records/DATASET/ROW.json.gz."""
    from gt_bench.config.grid import load_grid
    from gt_bench.provenance.transfer import export_cells

    export_cells(load_grid().chosen(names or []), records, replace, dirty)


def store_import(
    names: Names = None,
    records: Records = RECORDS,
) -> None:
    """Copy shipped records to the store, and to results/ where there is none.

    Nothing is written if a record contradicts one of the store.
    """
    from gt_bench.config.grid import load_grid
    from gt_bench.provenance.transfer import import_cells

    import_cells(names or [], load_grid(), records)


def store_prune() -> None:
    """Remove temporary files of killed processes that are older than an hour."""
    from gt_bench.utils.tempfiles import FOLDERS, sweep

    removed = sweep(*map(Path, FOLDERS), everywhere=True)
    for path in removed:
        print_text(path)
    print_text(f"{len(removed)} removed")


def store_verify(names: Names = None, records: Records = RECORDS) -> None:
    """Check all shipped and stored records, and show which shipped cells are stale. Exit 1 if a record is invalid."""
    from gt_bench.config.grid import load_grid
    from gt_bench.provenance.transfer import verify_cells

    if not verify_cells(names or [], load_grid(), records):
        raise typer.Exit(1)


def export(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="folder to write")],
    names: Names = None,
    format_: Annotated[
        Literal["every_eval_ever", "croissant"],
        typer.Option("--format", help="every_eval_ever: all results; croissant: metadata of the datasets"),
    ] = "every_eval_ever",
    records: Records = RECORDS,
) -> None:
    """Write results or metadata of datasets in the format of another project (docs/export.md)."""
    grid = every_cell()
    cells = grid.chosen(names or [])
    if format_ == "croissant":
        from gt_bench.reports.exchange import croissant

        files, problems = croissant.write(dict.fromkeys(cell.dataset for cell in cells), folder)
    else:
        from gt_bench.pipeline.gather import gather
        from gt_bench.reports.exchange import every_eval_ever

        keys, suites = {cell.key: cell for cell in cells}, list(dict.fromkeys(cell.suite for cell in cells))
        held = gather(grid.model_copy(update={"cells": keys, "suites": suites}), root=records)
        files, problems = every_eval_ever.write(held, folder), held.problems
    for problem in problems:
        print_text(problem, file=sys.stderr)
    print_text(f"{len(files)} files written to {folder}{f'; {len(problems)} problems' if problems else ''}")
    if problems:
        raise typer.Exit(1)


def submit(
    files: Annotated[
        list[Path], typer.Argument(metavar="RECORDS", help="files of records, as `gt-bench store export` writes them")
    ],
    by: Annotated[
        str | None, typer.Option(metavar="NAME", help="mark the records as contributed by NAME, if acceptable")
    ] = None,
    mark: Annotated[bool, typer.Option("--mark", help="mark the records as contributed, without a name")] = False,
    as_json: AsJson = False,
) -> None:
    """Check contributed records and print a report for a pull request. Exit 1 unless all files are acceptable.

    Nothing is computed again. See docs/submit.md.
    """
    from gt_bench.config.grid import load_grid
    from gt_bench.provenance import submission

    reports = submission.submit(files, load_grid(), by, mark)
    if as_json:
        print_json([report.as_json() for report in reports])
    else:
        submission.show(reports)
    if not all(report.acceptable for report in reports):
        raise typer.Exit(1)


def verify_submission(
    file: Annotated[Path, typer.Argument(metavar="RECORDS", help="a contributed file of records")],
    runs: Annotated[int, typer.Option(metavar="N", min=1, help="number of seeds, drawn by the digest of the file")] = 1,
    seed: Annotated[list[int] | None, typer.Option(metavar="SEED", help="this seed; may be repeated")] = None,
    mark: Annotated[
        bool, typer.Option("--mark", help="mark the seeds as recomputed in RECORDS, if all are confirmed")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Compute seeds of contributed records again and compare them. Exit 1 unless all of them confirm the records."""
    from gt_bench.config.grid import load_grid
    from gt_bench.provenance import recompute

    outcomes = recompute.verify(file, load_grid(), runs, seed or (), mark)
    if as_json:
        print_json(recompute.as_json(file, outcomes))
    else:
        print_text("\n".join(recompute.lines(file, outcomes)))
    if not all(outcome.is_verified for outcome in outcomes):
        raise typer.Exit(1)
