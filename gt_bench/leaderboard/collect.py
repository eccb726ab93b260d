"""The rows of leaderboards from own and from shipped records, separate or together. Nothing is computed."""

import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from gt_bench.config.grid import Cell, Grid
from gt_bench.config.verdict_settings import Rules
from gt_bench.data.packed import PackedHeader
from gt_bench.leaderboard.remembered import Known, recall, remember
from gt_bench.leaderboard.rows import absent, rows_of, with_state
from gt_bench.leaderboard.verdicts import with_claims, with_false_discovery
from gt_bench.records.state import Ended
from gt_bench.schemas import Record, Result, Row
from gt_bench.store.attempts import records_of
from gt_bench.store.record_checks import record_problems
from gt_bench.store.run_store import Store, StoreError
from gt_bench.store.shipped_files import (
    ROOT,
    Shipped,
    check_folder,
    file_of,
    problems_of,
    read,
    read_result,
    shipped_cells,
)

OWN, SHIPPED = "own", "shipped"


class Version(NamedTuple):
    """The result of a cell with its readable records; `stale`: what the current code would compute differently."""

    source: str
    result: Result
    records: list[Record]
    stale: list[str]


@dataclass(frozen=True)
class Gathered:
    """Results of all cells of a grid.

    `rows`: one version of each cell, the own one if it is complete or the only one, with claims and `source`. `others`:
    rows of the other versions. `versions`: both, by (source, cell). `problems`: of shipped files that cannot be used.
    """

    rows: list[Row] = field(default_factory=list)
    others: list[Row] = field(default_factory=list)
    versions: dict[tuple[str, str], Version] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def gather(grid: Grid, results: Path = Path("results"), store: Path = Path("store"), root: Path = ROOT) -> Gathered:
    """Returns what results/, store/ and the shipped records have of the cells of the grid.

    Damaged files become rows or problems.

    Raises:
        StoreError: `root` is given and does not exist.
    """
    if root != ROOT:
        check_folder(root)
    found, own_store = Gathered(), Store(store)
    shipped = _shipped(grid, root, found.problems)
    for suite in grid.suites:
        taken: list[Row] = []
        for cell in grid.suite(suite):
            rows: dict[str, list[Row]] = {}
            if (results / f"{cell.cell}.json").exists():
                rows[OWN], kept, records = collect([cell], results, own_store, grid.run.verdict)
                for result in kept:
                    found.versions[OWN, cell.cell] = Version(
                        OWN, result, [records[d] for d in result["runs"] if d in records], []
                    )
            if one := shipped.get(cell.cell):
                file, (its_rows, stale) = one
                found.versions[SHIPPED, cell.cell] = Version(SHIPPED, file.result, file.records, stale)
                rows[SHIPPED] = its_rows
                rows[SHIPPED] = [with_state(row, row["state"].with_stale(stale)) for row in its_rows]
            for source, its in rows.items():
                for row in its:
                    row["source"] = source
            source = _taken(rows)
            taken += rows.pop(source, [])
            found.others.extend(row for its in rows.values() for row in its)
        found.rows.extend(with_claims(taken, grid.run.verdict))
    found.rows[:] = with_false_discovery(found.rows)
    return found


def _taken(rows: dict[str, list[Row]]) -> str:
    """Returns the version that counts: the own one if it is complete or the shipped one is not."""
    complete = [source for source in (OWN, SHIPPED) if source in rows and rows[source][0]["state"].complete]
    return (complete or [OWN if OWN in rows else SHIPPED])[0]


def _shipped(grid: Grid, root: Path, problems: list[str]) -> dict[str, tuple[Shipped, Known]]:
    """Returns the shipped files of the cells with what is known of them; errors are added to `problems`."""
    found: dict[str, tuple[Shipped, Known]] = {}
    unknown: list[tuple[Cell, Shipped]] = []
    for suite in grid.suites:
        for cell in grid.suite(suite):
            path = file_of(cell.cell, root)
            if not path.exists():
                continue
            try:
                one = read(path)
            except StoreError as error:
                problems.append(str(error))
                continue
            if (known := recall(path, cell, grid)) is not None:
                found[cell.cell] = one, known
            elif wrong := problems_of(one, root):
                problems.extend(wrong)
            else:
                unknown.append((cell, one))
    if unknown:
        from gt_bench.provenance.staleness import UNCHECKED, freshness

        unchecked = 0
        for cell, one in unknown:
            state = freshness(one, grid)
            known = Known(rows_of(one.result, one.records, (), grid.run.verdict), state.stale)
            found[cell.cell] = one, known
            if UNCHECKED in state.unknown:
                unchecked += 1
            else:
                remember(one.path, cell, grid, known)
        if unchecked:
            print(f"{unchecked} cells: {UNCHECKED}", file=sys.stderr, flush=True)
    return found


def collect(
    cells: Sequence[Cell], results: Path, store: Store, rules: Rules
) -> tuple[list[Row], list[Result], dict[str, Record]]:
    """Returns rows of all cells in their order, without claims; readable results; and readable records by digest."""
    rows, found = [], []
    records: dict[str, Record] = {}
    for cell in cells:
        again = f"`python -m stages.train {cell.cell}`"
        try:
            result = read_result(results / f"{cell.cell}.json", cell.cell)
        except StoreError as error:
            rows.append(absent(cell.cell, Ended.UNREADABLE, str(error)))
            continue
        if result is None:
            rows.append(absent(cell.cell, Ended.NOT_RUN, None))
            continue
        mine, problems = [], []
        for digest in result["runs"]:
            file = store.folder(digest) / "record.json"
            try:
                record = store.get(digest)
            except (StoreError, OSError) as error:
                problems.append(f"{error}: {again}")
                continue
            if record is None:
                problems.append(f"{file} is missing; {again} makes it again")
            elif wrong := record_problems(record):
                problems.append(f"{file}: {'; '.join(wrong)}; delete the file and run {again}")
            else:
                mine.append(record)
        found.append(result)
        records |= {r["digest"]: r for r in mine}
        own = rows_of(result, mine, problems, rules)
        now = user_data_digest(cell.dataset)
        if now and any(record["deterministic"]["digests"]["data"] != now for record in mine):
            own = [with_state(row, row["state"].with_stale(["data"])) for row in own]
            for row in own:
                row["notes"].append("! the data have changed since these runs: train the cell again")
        rows += own
    return rows, found, records


def versions_of(
    cell: Cell, root: Path, problems: list[str], sources: Sequence[str] = (OWN, SHIPPED)
) -> Iterator[Version]:
    """Yields the versions of a cell that exist, without a judgement. What cannot be read is added to `problems`."""
    store = Store()
    for source in sources:
        try:
            if source == OWN:
                if result := read_result(Path("results", f"{cell.cell}.json"), cell.cell):
                    yield Version(OWN, result, records_of(result, store), [])
            elif (path := file_of(cell.cell, root)).exists():
                shipped = read(path)
                if wrong := problems_of(shipped, root):
                    problems.extend(wrong)
                else:
                    yield Version(SHIPPED, shipped.result, shipped.records, [])
        except StoreError as error:
            problems.append(str(error))


def tested_values(records: Iterable[Record]) -> dict[tuple[int, int], float]:
    """Returns {(seed, split): test metric} of the runs that ended well and whose metric is defined."""
    runs = [record["deterministic"] for record in records]
    return {
        (run["seed"], run["split"]): run["test"]
        for run in runs
        if run["status"] == "ok" and run["test"] is not None and math.isfinite(run["test"])
    }


def user_data_digest(dataset: str) -> str | None:
    """Returns the digest of a user-supplied dataset as it is packed now; None for others, or if it is not packed."""
    try:
        header = PackedHeader.model_validate_json(Path("data/packed", dataset, "header.json").read_bytes())
    except (OSError, ValueError):
        return None
    return header.digest if "content" in header.provenance.get("arguments", {}) else None


def shipped_of(grid: Grid, suite: str, root: Path = ROOT) -> dict[str, Shipped]:
    """Returns the shipped files of a suite by cell.

    Raises:
        StoreError: a file is damaged or belongs to another cell.
    """
    found = list(shipped_cells(grid, [suite], root))
    wrong = [line for one in found for line in problems_of(one, root)]
    if wrong:
        raise StoreError("\n".join(wrong))
    return {one.cell: one for one in found}


def shipped_rows(cells: Sequence[Cell], shipped: dict[str, Shipped], grid: Grid) -> list[Row]:
    """Returns the rows of `cells`. A shipped row has the commit of its record as its last note."""
    rows: list[Row] = []
    for cell in cells:
        if cell.cell in shipped:
            one = shipped[cell.cell]
            rows += rows_of(one.result, one.records, (), grid.run.verdict)
        else:
            rows.append(absent(cell.cell, Ended.NOT_RUN, None))
    rows = with_claims(rows, grid.run.verdict)
    for row in rows:
        if row["cell"] in shipped:
            first, *_ = shipped[row["cell"]].records
            commit = first["measured"]["environment"].get("commit") or "unknown"
            row["notes"] = [*row["notes"], f"shipped record of commit {commit[:12]}"]
    return rows


def every_row(grid: Grid, root: Path = ROOT) -> list[Row]:
    """Returns the rows of all shipped cells, suite by suite, with false-discovery rates over all of them.

    Raises:
        StoreError: A shipped file is unsound.
        RecipeError: A recipe cannot be read.
    """
    found: list[Row] = []
    for suite in grid.suites:
        if shipped := shipped_of(grid, suite, root):
            found += shipped_rows([cell for cell in grid.suite(suite) if cell.cell in shipped], shipped, grid)
    return with_false_discovery(found)
