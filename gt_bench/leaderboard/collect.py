"""The rows of leaderboards from own and from shipped records, separate or together. Nothing is computed."""

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Self

from gt_bench.config.grid import Cell, Grid
from gt_bench.config.verdict_settings import Rules
from gt_bench.data.packed import PackedHeader
from gt_bench.leaderboard.references import References, references_of
from gt_bench.leaderboard.remembered import Known, recall, remember
from gt_bench.leaderboard.row import Note, NoteKind, Row
from gt_bench.leaderboard.rows import absent, row_of, rows_of
from gt_bench.leaderboard.verdicts import with_claims, with_false_discovery
from gt_bench.records.cell import CellResult
from gt_bench.records.freshness import Freshness, Unknown
from gt_bench.records.run import RunRecord
from gt_bench.records.state import CellStatus, Stale, StalePart
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
FreshnessOf = Callable[[Shipped, Grid], Freshness]


@dataclass(frozen=True)
class Version:
    """The result of a cell with its readable records. Shipped ones are read when used: most commands print rows alone.

    `stale`: what the current code would compute differently.
    """

    source: str
    read: Callable[[], tuple[CellResult, list[RunRecord]]]
    stale: list[Stale] = field(default_factory=list)

    @classmethod
    def of(cls, source: str, result: CellResult, records: list[RunRecord]) -> Self:
        """Returns the version with this content."""
        return cls(source, lambda: (result, records))

    @cached_property
    def _content(self) -> tuple[CellResult, list[RunRecord]]:
        return self.read()

    @property
    def result(self) -> CellResult:
        """The result of the cell."""
        return self._content[0]

    @property
    def records(self) -> list[RunRecord]:
        """Its readable records."""
        return self._content[1]


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


def gather(
    grid: Grid,
    freshness: FreshnessOf,
    results: Path = Path("results"),
    store: Path = Path("store"),
    root: Path = ROOT,
) -> Gathered:
    """Returns what results/, store/ and the shipped records have of the cells of the grid.

    Damaged files become rows or problems. `gt_bench.pipeline.gather` gives it the freshness of shipped records.

    Raises:
        StoreError: `root` is given and does not exist.
    """
    if root != ROOT:
        check_folder(root)
    gathered, own_store = Gathered(), Store(store)
    shipped = _shipped(grid, root, freshness, gathered.problems)
    for suite in grid.suites:
        taken: list[Row] = []
        for cell in grid.suite(suite):
            rows: dict[str, list[Row]] = {}
            if (results / f"{cell.cell}.json").exists():
                rows[OWN], kept, records = collect([cell], results, own_store, grid.run.verdict)
                for result in kept:
                    mine = [records[digest] for digest in result.runs if digest in records]
                    gathered.versions[OWN, cell.cell] = Version.of(OWN, result, mine)
            if known := shipped.get(cell.cell):
                stale = known.stale or []
                content = partial(_content_of, file_of(cell.cell, root))
                gathered.versions[SHIPPED, cell.cell] = Version(SHIPPED, content, stale)
                rows[SHIPPED] = [replace(row, state=row.state.with_stale(stale)) for row in known.rows]
            rows = {source: [replace(row, source=source) for row in its] for source, its in rows.items()}
            # the own version counts if it is complete, or if the shipped one is not
            complete = [source for source in (OWN, SHIPPED) if source in rows and rows[source][0].state.complete]
            source = (complete or [OWN if OWN in rows else SHIPPED])[0]
            taken += rows.pop(source, [])
            gathered.others.extend(row for its in rows.values() for row in its)
        gathered.rows.extend(with_claims(taken, grid.run.verdict))
    gathered.rows[:] = with_false_discovery(gathered.rows)
    return gathered


def _content_of(path: Path) -> tuple[CellResult, list[RunRecord]]:
    shipped = read(path)
    return shipped.result, shipped.records


def _shipped(grid: Grid, root: Path, freshness: FreshnessOf, problems: list[str]) -> dict[str, Known]:
    """Returns what is known of the shipped files of the cells; errors are added to `problems`."""
    known_of: dict[str, Known] = {}
    unchecked = 0
    for suite in grid.suites:
        for cell in grid.suite(suite):
            path = file_of(cell.cell, root)
            if not path.exists():
                continue
            known = recall(path, cell, grid)
            if known is None or known.stale is None:
                try:
                    shipped = read(path)
                except StoreError as error:
                    problems.append(str(error))
                    continue
                if known is None and (wrong := problems_of(shipped, root)):
                    problems.extend(wrong)
                    continue
                state = freshness(shipped, grid)
                its = known.rows if known else judged(shipped.result, shipped.records, grid.run.verdict)
                known = Known(its, state.stale, Unknown.CODE in state.unknown)
                remember(path, cell, grid, known)
            unchecked += known.unchecked
            known_of[cell.cell] = known
    if unchecked:
        print(f"{unchecked} cells: {Unknown.CODE}", file=sys.stderr, flush=True)
    return known_of


def judged(
    result: CellResult, records: Sequence[RunRecord], rules: Rules | None = None, problems: Sequence[str] = ()
) -> list[Row]:
    """Returns the rows of a cell, compared with what its recipe names (`rows_of`)."""
    return rows_of(result, records, _references(result), rules, problems)


def summarise(result: CellResult, records: Sequence[RunRecord]) -> Row:
    """Returns the first row of a cell without a verdict (`row_of`)."""
    return row_of(result, records, _references(result))


def _references(result: CellResult) -> References:
    return references_of(result.cell, result.published, result.metric)


def collect(
    cells: Sequence[Cell], results: Path, store: Store, rules: Rules
) -> tuple[list[Row], list[CellResult], dict[str, RunRecord]]:
    """Returns rows of all cells in their order, without claims; readable results; and readable records by digest."""
    rows, kept = [], []
    records: dict[str, RunRecord] = {}
    for cell in cells:
        again = f"`python -m stages.train {cell.cell}`"
        try:
            result = read_result(results / f"{cell.cell}.json", cell.cell)
        except StoreError as error:
            rows.append(absent(cell.cell, CellStatus.UNREADABLE, str(error), references_of(cell.cell)))
            continue
        if result is None:
            rows.append(absent(cell.cell, CellStatus.NOT_RUN, None, references_of(cell.cell)))
            continue
        mine, problems = [], []
        for digest in result.runs:
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
        kept.append(result)
        records |= {r.digest: r for r in mine}
        own = judged(result, mine, rules, problems)
        now = user_data_digest(cell.dataset)
        if now and any(record.run.digests.data != now for record in mine):
            changed, stale = Note(NoteKind.DATA_CHANGED), [Stale(part=StalePart.DATA)]
            own = [replace(row, state=row.state.with_stale(stale), notes=(*row.notes, changed)) for row in own]
        rows += own
    return rows, kept, records


def versions_of(
    cell: Cell, root: Path, problems: list[str], sources: Sequence[str] = (OWN, SHIPPED)
) -> Iterator[Version]:
    """Yields the versions of a cell that exist, without a judgement. What cannot be read is added to `problems`."""
    store = Store()
    for source in sources:
        try:
            if source == OWN:
                if result := read_result(Path("results", f"{cell.cell}.json"), cell.cell):
                    yield Version.of(OWN, result, records_of(result, store))
            elif (path := file_of(cell.cell, root)).exists():
                shipped = read(path)
                if wrong := problems_of(shipped, root):
                    problems.extend(wrong)
                else:
                    yield Version.of(SHIPPED, shipped.result, shipped.records)
        except StoreError as error:
            problems.append(str(error))


def tested_values(records: Iterable[RunRecord]) -> dict[tuple[int, int], float]:
    """Returns {(seed, split): test metric} of the runs that ended well and whose metric is defined."""
    runs = [record.run for record in records]
    return {
        (run.seed, run.split): run.test
        for run in runs
        if run.status == "ok" and run.test is not None and math.isfinite(run.test)
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
    files = list(shipped_cells(grid, [suite], root))
    wrong = [line for shipped in files for line in problems_of(shipped, root)]
    if wrong:
        raise StoreError("\n".join(wrong))
    return {shipped.cell: shipped for shipped in files}


def shipped_rows(cells: Sequence[Cell], shipped: Mapping[str, Shipped], grid: Grid) -> list[Row]:
    """Returns the rows of `cells`. A shipped row has a note with the commit of its record."""
    rows: list[Row] = []
    for cell in cells:
        if cell.cell in shipped:
            file = shipped[cell.cell]
            commit = file.records[0].measured.environment.commit or "unknown"
            note = Note(NoteKind.SHIPPED, (commit[:12],))
            its = judged(file.result, file.records, grid.run.verdict)
            rows += [replace(row, notes=(*row.notes, note)) for row in its]
        else:
            rows.append(absent(cell.cell, CellStatus.NOT_RUN, None, references_of(cell.cell)))
    return with_claims(rows, grid.run.verdict)


def every_row(grid: Grid, root: Path = ROOT) -> list[Row]:
    """Returns the rows of all shipped cells, suite by suite, with false-discovery rates over all of them.

    Raises:
        StoreError: A shipped file is unsound.
        RecipeError: A recipe cannot be read.
    """
    rows: list[Row] = []
    for suite in grid.suites:
        if shipped := shipped_of(grid, suite, root):
            rows += shipped_rows([cell for cell in grid.suite(suite) if cell.cell in shipped], shipped, grid)
    return with_false_discovery(rows)
