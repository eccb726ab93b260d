"""Export and import of records, and their verification."""

import json
from collections.abc import Sequence
from pathlib import Path

from gt_bench.config.grid import Cell, Grid
from gt_bench.config.recipe import load_recipe
from gt_bench.config.schema import RecipeError
from gt_bench.data.registry import get_spec
from gt_bench.provenance.staleness import code_now, compare_golden_values, freshness, origins_of, searched_values
from gt_bench.records.cell import CellResult, Imported
from gt_bench.records.run import RunRecord
from gt_bench.runtime import checkout
from gt_bench.store import predictions
from gt_bench.store.record_checks import is_trial, missing_records, stored_problem
from gt_bench.store.run_store import Store, StoreError
from gt_bench.store.shipped_files import (
    ROOT,
    Shipped,
    problems_of,
    read,
    read_result,
    shipped_cells,
    shipped_paths,
    write,
)
from gt_bench.store.uncommitted import DIRTY, commits, is_uncommitted
from gt_bench.utils.format import print_text
from gt_bench.utils.io import write_json
from gt_bench.utils.paths import record_file


class Conflict(StoreError):
    """Two records of the same run differ."""


def export_cell(
    cell: Cell,
    root: Path = ROOT,
    replace: bool = False,
    dirty: bool = False,
) -> Path | None:
    """Writes suites/SUITE/records/DATASET/ROW.json.gz.

    Args:
        cell: the cell.
        root: folder of suites.
        replace: whether a limited cell may replace a full one.
        dirty: whether runs of uncommitted code are exported.

    Returns:
        The file, or None if the cell has no run.

    Raises:
        StoreError: a record is missing or invalid, or the export would need `replace` or `dirty`.
    """
    store, result = Store(), read_result(Path("results", f"{cell.cell}.json"), cell.cell)
    if result is None or not result.runs:
        return None
    records = []
    for digest in result.runs:
        record = store.get(digest)
        if record is None:
            remedy = f"compute it again by `python -m stages.train {cell.cell}`"
            raise StoreError("is missing", file=store.folder(digest) / "record.json", remedy=remedy)
        records.append(record)
    path, trials = record_file(cell.cell, root), _trials(cell, records, store)
    if any(record.run.digests.modified for record in (*records, *trials)):
        raise StoreError(
            "not exported: its runs used modified code, which computes other golden values under the same versions",
            place=cell.cell,
            remedy=f"raise the version (`python -m gt_bench.testing.check_grid {cell.cell}` names it) and train again, "
            "or undo the change",
        )
    exported = CellResult.from_disk({k: v for k, v in result.to_disk().items() if k != "imported"})
    shipped = Shipped(path, exported, records, origins_of(cell, records), sorted(trials, key=lambda r: r.digest))
    wrong = problems_of(shipped, root)
    if wrong:
        raise StoreError("\n".join(["not exported:", *wrong]), place=cell.cell)
    if not dirty and (changed := commit_of_changed_code(cell, records)):
        raise StoreError(
            f"not exported: the code of its runs differs from commit {changed[:12]}",
            place=cell.cell,
            value=changed,
            remedy="commit that code, or delete those records and train again, or use --dirty",
        )
    if path.exists() and not replace and result.reduced and not (old := read(path)).result.reduced:
        problem = f"contains {len(old.records)} runs at full settings, but this cell is reduced "
        reduced = ", ".join(map(str, result.reduced))
        raise StoreError(f"{problem}({reduced})", file=path, remedy="use --replace to overwrite it")
    predictions.ship(path, records, store)
    return write(shipped)


def export_cells(cells: Sequence[Cell], root: Path = ROOT, replace: bool = False, dirty: bool = False) -> None:
    """Exports cells and prints what was written.

    Raises:
        StoreError: as for `export_cell`.
    """
    written, without = 0, []
    for cell in cells:
        path = export_cell(cell, root, replace=replace, dirty=dirty)
        if path is None:
            without.append(cell.cell)
        else:
            written += 1
            print_text(f"{path}: {path.stat().st_size:,} bytes")
            if (outputs := predictions.shipped_file(path)).exists():
                print_text(f"{outputs}: {outputs.stat().st_size:,} bytes")
    some = f": {', '.join(without[:5])}{' ...' if without[5:] else ''}" if without else ""
    remedy = f"; `gt-bench work {without[0]}` computes its runs, or takes them from the store" if without else ""
    print_text(f"{written} cells exported; {len(without)} without a run{some}{remedy}")


def commit_of_changed_code(cell: Cell, records: list[RunRecord]) -> str | None:
    """Returns the commit that the code of a run differs from, None if the code of every run is committed.

    Code counts as committed if it is in the commit of the run or, committed later, in the current one. The code of the
    earlier sessions of a run is known by their commits only.
    """
    changed = [r for r in records if is_uncommitted(r)]
    if not changed:
        return None
    head, task = checkout.commit(), get_spec(cell.dataset).task
    later = all(len(commits(r)) == 1 and r.measured.code == code_now(r, task) for r in changed)
    if head and not head.endswith(DIRTY) and later:
        return None
    return min(commit for r in changed for commit in commits(r) if commit.endswith(DIRTY))


def _trials(cell: Cell, records: list[RunRecord], store: Store) -> list[RunRecord]:
    """Returns the runs of the cell's search in the store, with the data and versions of its records."""
    recipe, ran = load_recipe(cell.recipe_path), records[0].run
    if recipe.search is None:
        return []
    trials = []
    made_by = ran.digests.data, ran.digests.modified, ran.versions
    for trial in store.records(ran.digests.data):
        run = trial.run
        if not is_trial(trial) or (run.digests.data, run.digests.modified, run.versions) != made_by:
            continue
        try:
            expected = recipe.with_values(searched_values(recipe, run.recipe)).decisive()
        except (RecipeError, KeyError):
            continue
        if expected | {k: ran.recipe[k] for k in ("epochs", "phases") if k in ran.recipe} == run.recipe:
            trials.append(trial)
    return trials


def import_records(shipped: Sequence[Shipped], root: Path = ROOT) -> tuple[int, int]:
    """Imports records into the store.

    All records are validated first. If one is invalid or conflicts with the store, nothing is written. A record that
    differs only in measurements counts as present, and the record of the store is not changed.

    Args:
        shipped: files of shipped records.
        root: folder of suites.

    Returns:
        (number of new records, number of records that were already present).

    Raises:
        StoreError: a record is invalid.
        Conflict: a record differs from that of the store.
    """
    store = Store()
    wrong = [line for file in shipped for line in problems_of(file, root)]
    wrong += [line for file in shipped for line in predictions.shipped_problems(file.path, file.records)]
    if wrong:
        raise StoreError("\n".join(["nothing is imported:", *wrong]))
    new: dict[str, RunRecord] = {}
    conflicts, present = [], set()
    for file in shipped:
        for record in (*file.records, *file.trials):
            digest, held = record.digest, store.get(record.digest)
            if held is None:
                new[digest] = record
                continue
            present.add(digest)
            differing = differences(held, record)
            if differing:
                conflicts.append(
                    f"{store.folder(digest)}/record.json and {file.path} (seed {record.run.seed}) are "
                    f"records of the same run and differ in {', '.join(differing)}{_processors(held, record)}"
                )
    if conflicts:
        remedy = "delete the record in the store and import again, or leave that cell out"
        raise Conflict("\n".join(["nothing is imported:", *conflicts]), remedy=remedy)
    for digest, record in new.items():
        with store.lock(digest):
            store.put(record)
    for file in shipped:
        predictions.unpack(file.path, file.records, store)
    return len(new), len(present)


def import_results(shipped: Sequence[Shipped], grid: Grid) -> list[str]:
    """Writes results/CELL.json for imported records, so that leaderboards show them.

    A result with other runs and an invalid file are not changed (`gt-bench list` reports the latter).

    Returns:
        The cells whose results were written.
    """
    written = []
    compare_golden_values(shipped, grid)
    for file in shipped:
        path = Path("results", f"{file.cell}.json")
        try:
            held = read_result(path, file.cell)
        except StoreError:
            continue
        if held is not None and held.runs and held.imported is None:
            continue
        commit = file.records[0].measured.environment.commit
        imported = Imported(commit=commit, stale=freshness(file, grid).stale)
        write_json(path, file.result.model_copy(update={"imported": imported}).to_disk())
        written.append(file.cell)
    return written


def import_cells(names: Sequence[str], grid: Grid, root: Path = ROOT) -> None:
    """Imports the records of cells and suites, and their results, and prints what was done.

    Args:
        names: suites and cells. All if empty.
        grid: the grid.
        root: folder of suites.

    Raises:
        StoreError, Conflict: as for `import_records`.
    """
    shipped = list(shipped_cells(grid, names, root))
    new, present = import_records(shipped, root=root)
    written = import_results(shipped, grid)
    print_text(
        f"{len(shipped)} cells: {new} records imported, {present} already present; {len(written)} results written"
    )
    suites = " ".join(dict.fromkeys(cell.partition("/")[0] for cell in written))
    if suites:
        print_text(f"to write their leaderboards: for s in {suites}; do python -m stages.leaderboard $s; done")


def _processors(*records: RunRecord) -> str:
    """Returns the processors of two records as text, if they differ: their last digits may differ."""
    cpus = [record.measured.environment.cpu for record in records]
    return f" (computed on {cpus[0]} and on {cpus[1]})" if None not in cpus and len(set(cpus)) > 1 else ""


def differences(one: RunRecord, other: RunRecord) -> list[str]:
    """Returns the keys of the deterministic part in which two records differ. NaN equals NaN."""
    a, b = one.run.to_disk(), other.run.to_disk()
    return [k for k in sorted({*a, *b}) if json.dumps(a.get(k), sort_keys=True) != json.dumps(b.get(k), sort_keys=True)]


def kind_differences(one: RunRecord, other: RunRecord) -> list[str]:
    """Returns what decides the last digits and is not known to be equal in two records: machine, libraries, forms."""
    keys = ("cpu", "cpu_capability", "device", "torch", "numpy", "scipy", "blas")
    a, b = one.measured.to_disk(), other.measured.to_disk()
    differing = [
        key
        for key in keys
        if a["environment"].get(key) is None or a["environment"].get(key) != b["environment"].get(key)
    ]
    differing += [key for key in ("device", "threads", "forms") if a.get(key) is None or a.get(key) != b.get(key)]
    return list(dict.fromkeys(differing))


def file_problems(shipped: Sequence[Shipped], root: Path = ROOT) -> dict[Path, list[str]]:
    """Returns what is wrong with each shipped file, one line each."""
    wrong: dict[Path, list[str]] = {}
    seen: dict[str, tuple[Path, RunRecord]] = {}
    for file in shipped:
        problems = problems_of(file, root)
        wrong[file.path] = problems + predictions.shipped_problems(file.path, file.records)
        for record in (*file.records, *file.trials) if not problems else ():
            # two cells may share a run, but not disagree on it
            other = seen.setdefault(record.digest, (file.path, record))
            if differing := differences(other[1], record):
                wrong[file.path].append(
                    f"{file.path} and {other[0]} contain different records of one run (they differ in "
                    f"{', '.join(differing)}); compute one of them again"
                )
    return wrong


def verify_cells(names: Sequence[str], grid: Grid, root: Path = ROOT) -> bool:
    """Verifies cells and suites, and prints problems and stale cells.

    Args:
        names: suites and cells. All if empty.
        grid: the grid.
        root: folder of suites.

    Returns:
        Whether there is no problem.
    """
    shipped, problems, stale = [], [], 0
    for path in shipped_paths(grid, names, root):
        try:
            shipped.append(read(path))
        except StoreError as error:
            problems.append(str(error))
    by_file = file_problems(shipped, root)
    problems += [line for lines in by_file.values() for line in lines] + stored_problems(Store())[0]
    for problem in problems:
        print_text(problem)
    sound = [file for file in shipped if not by_file[file.path]]
    compare_golden_values(sound, grid)
    for file in sound:
        state = freshness(file, grid)
        stale += bool(state.stale)
        reduced = f"; reduced: {', '.join(map(str, file.result.reduced))}" if file.result.reduced else ""
        trials = f" and {len(file.trials)} of its search" if file.trials else ""
        devices = " and ".join(sorted({record.measured.device for record in file.records}))
        print_text(f"{file.cell}: {len(file.records)} runs{trials} on {devices}; {state.text}{reduced}")
    print_text(f"{len(shipped)} shipped cells, {stale} stale, {len(problems)} problems")
    return not problems


def result_problems(grid: Grid, store: Store) -> list[str]:
    """Returns what is wrong with the results of the cells of the grid, one line each."""
    wrong = []
    for cell in grid.cells.values():
        path = Path("results", f"{cell.cell}.json")
        try:
            result = read_result(path, cell.cell)
        except StoreError as error:
            wrong.append(str(error))
            continue
        wrong += missing_records(result, path, store) if result else []
    return wrong


def stored_problems(store: Store) -> tuple[list[str], int]:
    """Returns (problems of records in the store, one line each; number of readable records)."""
    wrong, count = [], 0
    for digest in store.digests():
        wrong += stored_problem(store, digest)
        count += (store.folder(digest) / "record.json").exists()
    return wrong, count
