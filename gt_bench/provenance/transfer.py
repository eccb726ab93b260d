"""Export and import of records, and their verification."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from gt_bench.config.grid import Cell, Grid
from gt_bench.config.recipe import load_recipe
from gt_bench.config.schema import RecipeError
from gt_bench.provenance.staleness import code_now, compare_golden_values, freshness, origins_of, searched_values
from gt_bench.schemas import Record, Result
from gt_bench.store import predictions
from gt_bench.store.record_checks import is_trial, stored_problem
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
from gt_bench.utils.format import print_text
from gt_bench.utils.io import write_json
from gt_bench.utils.paths import record_file


class Conflict(StoreError):
    """Two records of the same run differ."""


def export_cell(
    cell: Cell,
    root: Path = ROOT,
    store: Store | None = None,
    results: Path = Path("results"),
    data: Path = Path("data"),
    replace: bool = False,
    dirty: bool = False,
) -> Path | None:
    """Writes suites/SUITE/records/DATASET/ROW.json.gz.

    Args:
        cell: the cell.
        root: folder of suites.
        store: store of runs.
        results: folder of results.
        data: folder that contains packed/ and encodings/.
        replace: whether a limited cell may replace a full one.
        dirty: whether runs of uncommitted code are exported.

    Returns:
        The file, or None if the cell has no run.

    Raises:
        StoreError: a record is missing or invalid, or the export would need `replace` or `dirty`.
    """
    store = store or Store()
    result = read_result(results / f"{cell.cell}.json", cell.cell)
    if result is None or not result["runs"]:
        return None
    records = []
    for digest in result["runs"]:
        record = store.get(digest)
        if record is None:
            raise StoreError(
                f"{store.folder(digest)}/record.json is missing; compute it again by `python -m stages.train "
                f"{cell.cell}`"
            )
        records.append(record)
    path, trials = record_file(cell.cell, root), _trials(cell, records, store)
    if any("modified" in record["deterministic"]["digests"] for record in (*records, *trials)):
        raise StoreError(
            f"{cell.cell} is not exported: its runs used modified code, which computes other golden values under the "
            f"same versions; raise the version (`python -m gt_bench.testing.check_grid {cell.cell}` names it) and "
            "train again, or undo the change"
        )
    exported = cast(Result, {k: v for k, v in result.items() if k != "imported"})
    shipped = Shipped(
        path, exported, records, origins_of(cell, records, data), sorted(trials, key=lambda r: r["digest"])
    )
    wrong = problems_of(shipped, root)
    if wrong:
        raise StoreError("\n".join([f"{cell.cell} is not exported:", *wrong]))
    if not dirty and (changed := commit_of_changed_code(cell, records)):
        raise StoreError(
            f"{cell.cell} is not exported: the code of its runs differs from commit {changed[:12]}; commit that code, "
            "or delete those records and train again, or use --dirty"
        )
    if path.exists() and not replace and result["reduced"] and not (old := read(path)).result["reduced"]:
        raise StoreError(
            f"{path} contains {len(old.records)} runs at full settings, but this cell is reduced "
            f"({', '.join(result['reduced'])}); use --replace to overwrite it"
        )
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


def commit_of_changed_code(cell: Cell, records: list[Record]) -> str | None:
    """Returns the commit that the code of a run differs from, None if the code of every run is committed.

    Code counts as committed if it is in the commit of the run or, committed later, in the current one.
    """
    from gt_bench.data.registry import get_spec
    from gt_bench.runtime import environment

    changed = [r for r in records if (r["measured"]["environment"].get("commit") or "").endswith("-dirty")]
    if not changed:
        return None
    head, task = environment.commit(), get_spec(cell.dataset).task
    if head and not head.endswith("-dirty") and all(r["measured"]["code"] == code_now(r, task) for r in changed):
        return None
    return min(r["measured"]["environment"]["commit"] or "" for r in changed)


def _trials(cell: Cell, records: list[Record], store: Store) -> list[Record]:
    """Returns the runs of the cell's search in the store, with the data and versions of its records."""
    recipe, ran = load_recipe(cell.recipe_path), records[0]["deterministic"]
    if recipe.search is None:
        return []
    found = []
    made_by = ran["digests"]["data"], ran["digests"].get("modified"), ran["versions"]
    for trial in store.records(ran["digests"]["data"]):
        run = trial["deterministic"]
        if not is_trial(trial) or (run["digests"]["data"], run["digests"].get("modified"), run["versions"]) != made_by:
            continue
        try:
            expected = recipe.with_values(searched_values(recipe, run["recipe"])).decisive()
        except (RecipeError, KeyError):
            continue
        if expected | {k: ran["recipe"][k] for k in ("epochs", "phases") if k in ran["recipe"]} == run["recipe"]:
            found.append(trial)
    return found


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
    wrong = [line for one in shipped for line in problems_of(one, root)]
    wrong += [line for one in shipped for line in predictions.shipped_problems(one.path, one.records)]
    if wrong:
        raise StoreError("\n".join(["nothing is imported:", *wrong]))
    new: dict[str, Record] = {}
    conflicts, present = [], set()
    for one in shipped:
        for record in (*one.records, *one.trials):
            digest, held = record["digest"], store.get(record["digest"])
            if held is None:
                new[digest] = record
                continue
            present.add(digest)
            differing = differences(held, record)
            if differing:
                conflicts.append(
                    f"{store.folder(digest)}/record.json and {one.path} (seed {record['deterministic']['seed']}) are "
                    f"records of the same run and differ in {differing}{_processors(held, record)}"
                )
    if conflicts:
        remedy = "nothing is imported; delete the record in the store and import again, or leave that cell out"
        raise Conflict("\n".join([*conflicts, remedy]))
    for digest, record in new.items():
        with store.lock(digest):
            store.put(record)
    for one in shipped:
        predictions.unpack(one.path, one.records, store)
    return len(new), len(present)


def import_results(shipped: Sequence[Shipped], grid: Grid) -> list[str]:
    """Writes results/CELL.json for imported records, so that leaderboards show them.

    A result with other runs and an invalid file are not changed (`gt-bench list` reports the latter).

    Returns:
        The cells whose results were written.
    """
    written = []
    compare_golden_values(shipped, grid)
    for one in shipped:
        path = Path("results", f"{one.cell}.json")
        try:
            held = read_result(path, one.cell)
        except StoreError:
            continue
        if held is not None and held["runs"] and "imported" not in held:
            continue
        commit = one.records[0]["measured"]["environment"].get("commit")
        write_json(path, one.result | {"imported": {"commit": commit, "stale": freshness(one, grid).stale}})
        written.append(one.cell)
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


def _processors(*records: Record) -> str:
    """Returns the processors of two records as text, if they differ: their last digits may differ."""
    cpus = [record["measured"]["environment"].get("cpu") for record in records]
    return f" (computed on {cpus[0]} and on {cpus[1]})" if None not in cpus and len(set(cpus)) > 1 else ""


def differences(one: Record, other: Record) -> str:
    """Returns the keys of the deterministic part in which two records differ, as text. NaN equals NaN."""
    a, b = one["deterministic"], other["deterministic"]
    return ", ".join(
        k for k in sorted({*a, *b}) if json.dumps(a.get(k), sort_keys=True) != json.dumps(b.get(k), sort_keys=True)
    )


def kind_differences(one: Record, other: Record) -> list[str]:
    """Returns what decides the last digits and is not known to be equal in two records: machine, libraries, forms."""
    keys = ("cpu", "cpu_capability", "device", "torch", "numpy", "scipy", "blas")
    a, b = one["measured"], other["measured"]
    found = [
        key
        for key in keys
        if a["environment"].get(key) is None or a["environment"].get(key) != b["environment"].get(key)
    ]
    found += [key for key in ("device", "threads", "forms") if a.get(key) is None or a.get(key) != b.get(key)]
    return list(dict.fromkeys(found))


def verify(shipped: Sequence[Shipped], store: Store | None = None, root: Path = ROOT) -> list[str]:
    """Verifies shipped files and all records of the store.

    Returns:
        A line per problem.
    """
    wrong: list[str] = []
    seen: dict[str, tuple[Path, Record]] = {}
    for one in shipped:
        found = problems_of(one, root)
        wrong += found + predictions.shipped_problems(one.path, one.records)
        for record in (*one.records, *one.trials) if not found else ():
            # two cells may share a run, but not disagree on it
            other = seen.setdefault(record["digest"], (one.path, record))
            if differing := differences(other[1], record):
                wrong.append(
                    f"{one.path} and {other[0]} contain different records of one run (they differ in {differing})"
                )
    return wrong + stored_problems(store or Store())[0]


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
    problems += verify(shipped, root=root)
    for problem in problems:
        print_text(problem)
    sound = [
        one for one in shipped if not any(problem.startswith((f"{one.path}:", f"{one.path} ")) for problem in problems)
    ]
    compare_golden_values(sound, grid)
    for one in sound:
        state = freshness(one, grid)
        stale += bool(state.stale)
        reduced = f"; reduced: {', '.join(one.result['reduced'])}" if one.result["reduced"] else ""
        trials = f" and {len(one.trials)} of its search" if one.trials else ""
        devices = " and ".join(sorted({record["measured"]["device"] for record in one.records}))
        print_text(f"{one.cell}: {len(one.records)} runs{trials} on {devices}; {state.text}{reduced}")
    print_text(f"{len(shipped)} shipped cells, {stale} stale, {len(problems)} problems")
    return not problems


def stored_problems(store: Store) -> tuple[list[str], int]:
    """Returns (problems of records in the store, one line each; number of readable records)."""
    wrong, count = [], 0
    for digest in store.digests():
        wrong += stored_problem(store, digest)
        count += (store.folder(digest) / "record.json").exists()
    return wrong, count
