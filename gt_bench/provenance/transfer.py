"""Out of one store and into another: export, import, and checking both again."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from gt_bench.config.grid import Cell, Grid
from gt_bench.config.recipe import load_recipe
from gt_bench.config.schema import RecipeError
from gt_bench.provenance.staleness import code_now, compare_golden_values, origins_of, searched_values, standing
from gt_bench.schemas import Record, Result
from gt_bench.store import predictions
from gt_bench.store.archive import (
    ROOT,
    Shipped,
    is_trial,
    problems_of,
    read,
    read_result,
    record_problems,
    shipped_cells,
    shipped_paths,
    write,
)
from gt_bench.store.run_store import Store, StoreError
from gt_bench.utils.format import print_text
from gt_bench.utils.io import write_json
from gt_bench.utils.paths import record_file


class Conflict(StoreError):
    """Two records claim the same run and differ."""


def export_cell(
    cell: Cell,
    root: Path = ROOT,
    store: Store | None = None,
    results: Path = Path("results"),
    data: Path = Path("data"),
    replace: bool = False,
    dirty: bool = False,
) -> Path | None:
    """Writes suites/SUITE/records/DATASET/ROW.json.gz; None where the cell has no run. Raises StoreError where a record is missing or not sound, where a reduced
    cell would take the place of a full one (unless `replace`), and where a run's code is in no commit (unless `dirty`)."""
    store = store or Store()
    result = read_result(results / f"{cell.cell}.json", cell.cell)
    if result is None or not result["runs"]:
        return None
    records = []
    for digest in result["runs"]:
        record = store.get(digest)
        if record is None:
            raise StoreError(
                f"{store.folder(digest)}/record.json is missing; `python -m stages.train {cell.cell}` makes it again"
            )
        records.append(record)
    path, trials = record_file(cell.cell, root), _trials(cell, records, store)
    if any("modified" in record["deterministic"]["digests"] for record in (*records, *trials)):
        raise StoreError(
            f"{cell.cell} is not exported: its runs are of modified code, which computes other golden values under the same versions: raise "
            f"the version (`python -m gt_bench.testing.check_grid {cell.cell}` names it) and train again, or undo the change"
        )
    kept = cast(Result, {k: v for k, v in result.items() if k != "imported"})
    shipped = Shipped(path, kept, records, origins_of(cell, records, data), sorted(trials, key=lambda r: r["digest"]))
    wrong = problems_of(shipped, root)
    if wrong:
        raise StoreError("\n".join([f"{cell.cell} is not exported:", *wrong]))
    if not dirty and (changed := _in_no_commit(cell, records)):
        raise StoreError(
            f"{cell.cell} is not exported: its runs were made by code that differs from commit {changed[:12]}; commit that code, or delete "
            "those records and train again, or say --dirty"
        )
    if path.exists() and not replace and result["reduced"] and not (old := read(path)).result["reduced"]:
        raise StoreError(
            f"{path} holds {len(old.records)} runs at full settings, and this cell is reduced ({', '.join(result['reduced'])}): --replace puts it in its place"
        )
    predictions.ship(path, records, store)
    return write(shipped)


def export_cells(cells: Sequence[Cell], root: Path = ROOT, replace: bool = False, dirty: bool = False) -> None:
    """`export_cell` of each, and says what was written. Raises StoreError."""
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
    some = f"{': ' + ', '.join(without[:5]) if without else ''}{' ...' if without[5:] else ''}"
    print_text(f"{written} cells exported; {len(without)} without a run{some}")


def _in_no_commit(cell: Cell, records: list[Record]) -> str | None:
    """The commit that the code of some run differs from; None where each run's code is in a commit: in its own, or, committed since, in the
    present one."""
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
    """The store's runs of the search that this cell's recipe asks for, on the data and with the versions of its records, by digest."""
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
            asked = recipe.with_values(searched_values(recipe, run["recipe"])).decisive()
        except (RecipeError, KeyError):
            continue
        if asked | {k: ran["recipe"][k] for k in ("epochs", "phases") if k in ran["recipe"]} == run["recipe"]:
            found.append(trial)
    return found


def import_records(shipped: Sequence[Shipped], root: Path = ROOT) -> tuple[int, int]:
    """Puts records into the store; returns (new, there already). All are checked first: where one is unsound or contradicts the store,
    nothing is written. A record that differs only in what was measured is there already, and the store's own stays.

    Raises StoreError, Conflict.
    """
    store = Store()
    wrong = [line for one in shipped for line in problems_of(one, root)]
    wrong += [line for one in shipped for line in predictions.shipped_problems(one.path, one.records)]
    if wrong:
        raise StoreError("\n".join(["nothing is imported:", *wrong]))
    new: dict[str, Record] = {}
    conflicts, there = [], set()
    for one in shipped:
        for record in (*one.records, *one.trials):
            digest, held = record["digest"], store.get(record["digest"])
            if held is None:
                new[digest] = record
                continue
            there.add(digest)
            differing = differences(held, record)
            if differing:
                conflicts.append(
                    f"{store.folder(digest)}/record.json and {one.path} (seed {record['deterministic']['seed']}) are of the same run and differ in {differing}{_processors(held, record)}"
                )
    if conflicts:
        remedy = "Nothing is imported. Keep one: delete the store's record (then import again) or leave that cell out."
        raise Conflict("\n".join([*conflicts, remedy]))
    for digest, record in new.items():
        with store.lock(digest):
            store.put(record)
    for one in shipped:
        predictions.unpack(one.path, one.records, store)
    return len(new), len(there)


def import_results(shipped: Sequence[Shipped], grid: Grid) -> list[str]:
    """Writes results/<cell>.json for imported records, so that a leaderboard shows them at once; returns the cells. A result with runs of its
    own stays as it is, and so does a file that is no result (`gt-bench list` names it)."""
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
        write_json(path, one.result | {"imported": {"commit": commit, "stale": standing(one, grid).stale}})
        written.append(one.cell)
    return written


def import_cells(names: Sequence[str], grid: Grid, root: Path = ROOT) -> None:
    """The records of the named cells and suites, all for no name, into the store, and results where there is none; says what it did. Raises as
    `import_records`."""
    shipped = list(shipped_cells(grid, names, root))
    new, there = import_records(shipped, root=root)
    written = import_results(shipped, grid)
    print_text(f"{len(shipped)} cells: {new} records imported, {there} there already; {len(written)} results written")
    suites = " ".join(dict.fromkeys(cell.partition("/")[0] for cell in written))
    if suites:
        print_text(
            f"leaderboards of them, without computing: for s in {suites}; do python -m stages.leaderboard $s; done"
        )


def _processors(*records: Record) -> str:
    """Where two records were computed, if on processors of two kinds: their last bits differ."""
    cpus = [record["measured"]["environment"].get("cpu") for record in records]
    return f" (computed on {cpus[0]} and on {cpus[1]})" if None not in cpus and len(set(cpus)) > 1 else ""


def differences(one: Record, other: Record) -> str:
    """Keys of the deterministic part in which two records differ, as text; empty where they agree (NaN equals NaN)."""
    a, b = one["deterministic"], other["deterministic"]
    return ", ".join(
        k for k in sorted({*a, *b}) if json.dumps(a.get(k), sort_keys=True) != json.dumps(b.get(k), sort_keys=True)
    )


def verify(shipped: Sequence[Shipped], store: Store | None = None, root: Path = ROOT) -> list[str]:
    """Checks every shipped file and every record of the store again; one line for each thing that is wrong."""
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
                    f"{one.path} and {other[0]} hold different records of one run (they differ in {differing})"
                )
    return wrong + stored_problems(store or Store())[0]


def verify_cells(names: Sequence[str], grid: Grid, root: Path = ROOT) -> bool:
    """`verify` of the named cells and suites, all for no name, and which of them are stale, printed; whether all is sound."""
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
        state = standing(one, grid)
        stale += bool(state.stale)
        reduced = f"; reduced: {', '.join(one.result['reduced'])}" if one.result["reduced"] else ""
        trials = f" and {len(one.trials)} of its search" if one.trials else ""
        devices = " and ".join(sorted({record["measured"]["device"] for record in one.records}))
        print_text(f"{one.cell}: {len(one.records)} runs{trials} on {devices}; {state.text}{reduced}")
    print_text(f"{len(shipped)} shipped cells, {stale} stale, {len(problems)} problems")
    return not problems


def stored_problems(store: Store) -> tuple[list[str], int]:
    """(what is wrong with records of the store, one line each; how many records can be read)."""
    wrong, count = [], 0
    for digest in store.digests():
        wrong += stored_problem(store, digest)
        count += (store.folder(digest) / "record.json").exists()
    return wrong, count


def stored_problem(store: Store, digest: str) -> list[str]:
    """What is wrong with the record of a run, one line each; nothing where there is none."""
    try:
        record = store.get(digest)
    except StoreError as error:
        return [str(error)]
    if record is None:
        return []
    wrong = [f"{store.folder(digest)}/record.json: {line}" for line in record_problems(record)]
    outputs = predictions.problem_of(record, store)
    return [*wrong, outputs] if outputs else wrong
