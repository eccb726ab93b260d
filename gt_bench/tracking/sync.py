"""Update MLflow from the records, whatever was tracked before.

There is one experiment per suite, one run per cell and a nested run per seed. Trials of searches are in the experiment
SUITE-search. `complete` is idempotent.
"""

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gt_bench.leaderboard.row import Row
from gt_bench.records.cell import CellNames, CellResult
from gt_bench.records.run import RunRecord
from gt_bench.store.attempts import records_of, superseded
from gt_bench.store.run_store import Store
from gt_bench.store.shipped_files import read_result
from gt_bench.tracking.mirror import Mirror, tracking_errors
from gt_bench.tracking.payload import tracked_search
from gt_bench.tracking.sqlite import TrackingError, suite_lock
from gt_bench.tracking.uri import tracking_uri, warn

if TYPE_CHECKING:
    from gt_bench.config.grid import Cell


def complete(
    suite: str,
    results: Iterable[CellResult],
    records: Mapping[str, RunRecord],
    tuned: Path = Path("tuned"),
    rows: Sequence[Row] = (),
    store: Store | None = None,
    only: bool = False,
) -> None:
    """Make the experiment of a suite contain exactly these results and records.

    Missing runs are added, incomplete or different ones are completed or replaced, and runs of no result are removed,
    except runs of cells that are training now. The trials of searches go to the experiment SUITE-search.

    Args:
        suite: name of the suite.
        results: of its cells.
        records: by digest; runs of results without a record here are left out.
        tuned: folder of the search stage.
        rows: of the leaderboard, whose verdicts become tags; the first row of a cell counts.
        store: with the weights of best seeds and earlier attempts, which are shown as superseded.
        only: do not change other cells of the suite.

    Raises:
        TrackingError: the tracking store cannot be used; the message names the URI.
        StoreError: an earlier attempt cannot be read.
    """
    uri = tracking_uri()
    results = list(results)
    earlier = {result.cell: superseded(result, store) if store else [] for result in results}
    with tracking_errors(uri), suite_lock(uri, suite):
        mirror = Mirror(uri, suite)
        for result in results:
            mine = [records[d] for d in result.runs if d in records]
            row = next((row for row in rows if row.cell == result.cell), None)
            mirror.put_cell(result, mine, row, earlier[result.cell], store)
        if not only:
            mirror.drop_other_cells({r.cell for r in results})
        mirror.put_views()
        searches = {r.cell: (r, trials) for r in results if r.search and (trials := _trials(r.cell, tuned))}
        if searches:
            mirror = Mirror(uri, f"{suite}-search")
            for cell, trials in searches.values():
                _put_search(mirror, cell, trials, tuned)
            if not only:
                mirror.drop_other_cells(set(searches))
            mirror.put_views()


def track_cells(cells: Iterable["Cell"]) -> None:
    """Track cells that `gt-bench train` trained; the leaderboard adds their verdicts later.

    If the tracking store cannot be used, this prints a warning.
    """
    store, uri = Store(), tracking_uri()
    by_suite: dict[str, list[CellResult]] = {}
    for cell in cells:
        if result := read_result(Path("results", f"{cell.cell}.json"), cell.cell):
            by_suite.setdefault(cell.suite, []).append(result)
    for suite, found in by_suite.items():
        try:
            records = {r.digest: r for result in found for r in records_of(result, store)}
            complete(suite, found, records, store=store, only=True)
        except TrackingError as error:
            warn(uri, suite, str(error), "The records are stored")


def track_search(cell: "Cell") -> None:
    """Track the trials of a cell's search in the experiment SUITE-search; print a warning if that is not possible."""
    uri, tuned = tracking_uri(), Path("tuned")
    named = CellNames(cell=cell.cell, suite=cell.suite, dataset=cell.dataset, model=cell.model)
    try:
        rows = _trials(cell.cell, tuned)
        if rows:
            with tracking_errors(uri), suite_lock(uri, cell.suite):
                mirror = Mirror(uri, f"{cell.suite}-search")
                _put_search(mirror, named, rows, tuned)
                mirror.put_views()
    except TrackingError as error:
        warn(uri, cell.suite, str(error), "The search is complete")


def _put_search(mirror: Mirror, cell: CellNames, rows: Sequence[Mapping[str, str]], tuned: Path) -> None:
    whole, *trials = tracked_search(cell, rows, tuned)
    parent = mirror.put(whole, mirror.find("search", cell.cell))
    kept = {
        parent,
        *(mirror.put(trial, mirror.find("trial", cell.cell, trial.tags["gt.digest"]), parent) for trial in trials),
    }
    for run in [r for r in mirror.runs.of(cell.cell) if r.info.run_id not in kept]:
        mirror.delete(run.info.run_id)


def _trials(cell: str, tuned: Path) -> list[dict[str, str]]:
    path = tuned / f"{cell}.csv"
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
