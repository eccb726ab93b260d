"""Check and carry: whether everything fits together, and records on their way out of one store into another."""

from pathlib import Path
from typing import Annotated

import typer

from gt_bench.cli.options import RECORDS, Names, Records
from gt_bench.utils.format import print_text


def doctor() -> None:
    """Checks params.yaml, every recipe against its model, dataset and printed number, and what is on disk; exits 1 with what is wrong."""
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
    replace: Annotated[bool, typer.Option(help="let a reduced cell take the place of a full one")] = False,
    dirty: Annotated[bool, typer.Option("--dirty", help="also runs of code that is in no commit")] = False,
) -> None:
    """Writes the records of cells to suites/SUITE/records/DATASET/ROW.json.gz."""
    from gt_bench.config.grid import load_grid
    from gt_bench.provenance.transfer import export_cells

    export_cells(load_grid().chosen(names or []), records, replace, dirty)


def store_import(names: Names = None, records: Records = RECORDS) -> None:
    """Puts shipped records into the store, and results/ where there is none; a record that contradicts the store's own stops it before anything
    is written."""
    from gt_bench.config.grid import load_grid
    from gt_bench.provenance.transfer import import_cells

    import_cells(names or [], load_grid(), records)


def store_prune() -> None:
    """Removes the temporary files that killed processes left in what the pipeline writes; those of the last hour stay."""
    from gt_bench.utils.tempfiles import FOLDERS, sweep

    removed = sweep(*map(Path, FOLDERS), everywhere=True)
    for path in removed:
        print_text(path)
    print_text(f"{len(removed)} removed")


def store_verify(names: Names = None, records: Records = RECORDS) -> None:
    """Checks every shipped and every stored record again, and says which shipped cells are stale; exits 1 where a record is unsound."""
    from gt_bench.config.grid import load_grid
    from gt_bench.provenance.transfer import verify_cells

    if not verify_cells(names or [], load_grid(), records):
        raise typer.Exit(1)
