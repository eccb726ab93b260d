"""Changes of results and verdicts since the last report, for cells that have new runs, complete or not.

store/learnt.json has the last report.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from gt_bench.config.grid import Cell, Grid
from gt_bench.config.limits import SEEDS, Cut, seeds_in
from gt_bench.config.recipe import load_recipe
from gt_bench.experiment.status import unfinished
from gt_bench.leaderboard.columns import cells
from gt_bench.leaderboard.rows import rows_of
from gt_bench.schemas import Row
from gt_bench.store.attempts import records_of
from gt_bench.store.record_checks import record_problems
from gt_bench.store.run_store import Store
from gt_bench.utils.errors import UserError
from gt_bench.utils.io import write_json

FILE = "learnt.json"


def changed_results(wanted: Sequence[tuple[Cell, Grid]], store: Store) -> list[str]:
    """Return a line for each number of these cells whose runs or verdict changed since the last call.

    Args:
        wanted: cells, each with a grid that has its limits.
        store: with the records and the last report.
    """
    path, lines = store.root / FILE, []
    reported = _read(path)
    for cell, grid in wanted:
        try:
            rows = _rows(cell, grid, store)
        except UserError as error:
            lines.append(f"{cell.cell}: {error}")
            continue
        for row in rows:
            metric, ours, runs, theirs, difference, verdict = cells(row)[2:8]
            now = {"ours": ours, "runs": runs, "verdict": verdict}
            place = f"{cell.cell} {metric}"
            if reported.get(place) != now and row["values"]:
                last = reported.get(place)
                before = f" (before: {last['verdict']}, {last['ours']})" if last else ""
                lines.append(
                    f"{cell.cell}: {metric} {ours} of {runs} runs, published {theirs}, difference {difference}: "
                    f"{verdict}{before}"
                )
            reported[place] = now
    if lines:
        write_json(path, reported)
    return lines


def _rows(cell: Cell, grid: Grid, store: Store) -> list[Row]:
    """Return the leaderboard rows of the stored runs; if runs are missing, as for a cell with fewer seeds."""
    result = unfinished(cell, grid, "", store)
    records = [record for record in records_of(result, store) if not record_problems(record)]
    seeds, full = [record["deterministic"]["seed"] for record in records], len(load_recipe(cell.recipe_path).seeds)
    cuts = [line for line in result["reduced"] if not seeds_in(line)]
    if len(seeds) < full:
        cuts.append(str(Cut(len(seeds), full, SEEDS)))
    result |= {
        "status": "ok",
        "reason": None,
        "runs": [record["digest"] for record in records],
        "seeds": seeds,
        "reduced": cuts,
    }
    return rows_of(result, records, rules=grid.run.verdict) if records else []


def _read(path: Path) -> dict[str, dict[str, str]]:
    try:
        reported = json.loads(path.read_text(encoding="utf-8"))
        return {place: one for place, one in reported.items() if {"ours", "verdict"} <= one.keys()}
    except (OSError, ValueError, AttributeError):  # missing or damaged: everything is reported again
        return {}
