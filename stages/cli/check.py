"""Check and carry: whether everything fits together, and records on their way out of one store into another."""

from pathlib import Path
from typing import Annotated

import typer

from stages.cli.options import RECORDS, Names, Records


def doctor() -> None:
    """Checks params.yaml, every recipe against its model, dataset and printed number, and what is on disk; exits 1 with what is wrong."""
    from stages.doctor import grid_problems
    from stages.params import load_grid
    from stages.records.transfer import stored_problems
    from stages.store import Store

    grid = load_grid()
    damaged, count = stored_problems(Store())
    problems = [*grid_problems(grid), *damaged]
    for problem in problems:
        print(problem)
    print(f"{len(grid.cells)} cells, {count} records, {len(problems)} problems")
    if problems:
        raise typer.Exit(1)


def store_export(
    names: Names = None,
    records: Records = RECORDS,
    replace: Annotated[bool, typer.Option(help="let a reduced cell take the place of a full one")] = False,
    dirty: Annotated[bool, typer.Option("--dirty", help="also runs of code that is in no commit")] = False,
) -> None:
    """Writes the records of cells to records/<suite>/<dataset>/<row>.json.gz."""
    from stages.params import load_grid
    from stages.records.transfer import export_cells

    export_cells(load_grid().chosen(names or []), records, replace, dirty)


def store_import(names: Names = None, records: Records = RECORDS) -> None:
    """Puts shipped records into the store, and results/ where there is none; a record that contradicts the store's own stops it before anything
    is written."""
    from stages.params import load_grid
    from stages.records.transfer import import_cells

    import_cells(names or [], load_grid(), records)


def store_attest(
    names: Names = None,
    runs: Annotated[int, typer.Option(min=1, help="how many runs of each cell are computed again, the cheapest first")] = 1,
    records: Records = RECORDS,
    dirty: Annotated[bool, typer.Option("--dirty", help="also by code that is in no commit")] = False,
    beside: Annotated[
        Path | None, typer.Option(help="store of a checkout of the older code that computed the same runs on this machine: compare with it")
    ] = None,
    older: Annotated[
        Path | None,
        typer.Option(help="checkout of the code that the records are of: where only forms changed that no run took, none is computed"),
    ] = None,
    parts: Annotated[
        int | None, typer.Option(min=1, help="how many parts of a run that has many (pairs of graphs) are computed again; nothing: all")
    ] = None,
) -> None:
    """Computes a few runs of each stale cell again; where every bit agrees, its records are marked as carried over to the present code.

    A cell that was carried over already is computed again where it is named. Exits 1 where a cell stays stale, a mark does not hold, or a file
    is unsound."""
    from stages.params import load_grid
    from stages.records.attest import attest_cells

    if not attest_cells(names or [], load_grid(), runs, records, dirty, beside, older, parts):
        raise typer.Exit(1)


def store_prune() -> None:
    """Removes the temporary files that killed processes left in what the pipeline writes; those of the last hour stay."""
    from stages.leftovers import FOLDERS, sweep

    removed = sweep(*map(Path, FOLDERS), everywhere=True)
    for path in removed:
        print(path)
    print(f"{len(removed)} removed")


def store_verify(names: Names = None, records: Records = RECORDS) -> None:
    """Checks every shipped and every stored record again, and says which shipped cells are stale; exits 1 where a record is unsound."""
    from stages.params import load_grid
    from stages.records.transfer import verify_cells

    if not verify_cells(names or [], load_grid(), records):
        raise typer.Exit(1)
