"""Check everything, and move records between stores."""

from pathlib import Path
from typing import Annotated

import typer

from gt_bench.cli.options import RECORDS, Names, Records
from gt_bench.utils.format import print_text


def doctor() -> None:
    """Check params.yaml, all recipes against model, dataset and published number, and the store. Exit 1 on problems."""
    from gt_bench.config.grid import load_grid
    from gt_bench.provenance.transfer import stored_problems
    from gt_bench.store.run_store import Store
    from gt_bench.suites.check import grid_problems

    grid = load_grid()
    damaged, count = stored_problems(Store())
    problems = [*grid_problems(grid), *damaged]
    for problem in problems:
        print_text(problem)
    print_text(f"{len(grid.cells)} cells, {count} records, {len(problems)} problems")
    if problems:
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
    records: Annotated[
        Path,
        typer.Option(
            metavar="FOLDER",
            help="folder of suites with shipped records, or the archive of a GPU session (docs/gpu.md)",
        ),
    ] = RECORDS,
) -> None:
    """Copy shipped records to the store, and to results/ where there is none.

    Nothing is written if a record contradicts one of the store.
    """
    from gt_bench.config.grid import load_grid
    from gt_bench.provenance.sessions import import_session
    from gt_bench.provenance.transfer import import_cells

    if records.is_file():
        import_session(records, names or [], load_grid())
    else:
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
