"""The leaderboard of a suite from shipped records alone."""

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from stages.params import Grid
from stages.records.shipped import ROOT, Shipped, problems_of, shipped_cells
from stages.records.standing import standing
from stages.store import Store, StoreError

ABSENT = "no shipped record"  # status of a row of the board


def board(suite: str, grid: Grid, root: Path = ROOT, data: Path = Path("data")) -> list[dict[str, Any]]:
    """The leaderboard's rows of a suite from shipped records alone; a stale row says what changed since. Raises StoreError, RecipeError."""
    from stages.leaderboard import collect

    cells = grid.suite(suite)
    shipped = {one.cell: one for one in shipped_cells(grid, [suite], root)}
    wrong = [line for one in shipped.values() for line in problems_of(one, root)]
    if wrong:
        raise StoreError("\n".join(wrong))
    folder = Path(tempfile.mkdtemp(prefix="gt-board-"))
    try:
        for one in shipped.values():
            _unpack(one, folder)
        rows, _, _ = collect(cells, folder / "results", Store(folder / "store"), grid.run.margin_std)
    finally:
        shutil.rmtree(folder)
    for row in rows:
        one = shipped.get(row["cell"])
        if one is None:
            row["status"] = ABSENT
            continue
        where, state = one.records[0]["measured"]["environment"], standing(one, grid, data)
        if state.stale:
            row["status"] += f", stale: {', '.join(state.stale)}"
        row["notes"] = [*row["notes"], f"shipped record of commit {(where.get('commit') or 'unknown')[:12]}: {state.text}"]
    return rows


def _unpack(shipped: Shipped, folder: Path) -> None:
    contents = {folder / "results" / f"{shipped.cell}.json": shipped.result}
    contents |= {Store(folder / "store").folder(r["digest"]) / "record.json": r for r in shipped.records}
    for path, content in contents.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))
