"""The leaderboard of a suite from shipped records alone, and all of them as docs/results.md.

python -m stages.records.board > docs/results.md
"""

import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stages.params import Cell, Grid, load_grid
from stages.records.shipped import ROOT, Shipped, problems_of, shipped_cells
from stages.records.staleness import standing
from stages.report.claims import judged, load_claims, table_of, takes_data
from stages.report.table import explanation, table_lines, tally
from stages.store import Store, StoreError

ABSENT = "no shipped record"  # status of a row of the board


def board(suite: str, grid: Grid, root: Path = ROOT, data: Path = Path("data")) -> list[dict[str, Any]]:
    """The leaderboard's rows of a suite from shipped records alone; a stale row says what changed since. Raises StoreError, RecipeError."""
    shipped = _shipped(grid, suite, root)
    rows = _rows(grid.suite(suite), shipped, grid)
    for row in rows:
        if row["cell"] not in shipped:
            row["status"] = ABSENT
            continue
        state = standing(shipped[row["cell"]], grid, data)
        if state.stale:
            row["status"] += f", stale: {', '.join(state.stale)}"
        row["notes"][-1] += f": {state.text}"
    return rows


def page(grid: Grid, root: Path = ROOT) -> str:
    """Every shipped cell beside what its paper prints, and what was found out where the two differ, as Markdown. Raises StoreError."""
    parts = [
        "# Results that this repository ships",
        "",
        "Made from the records in `records/` by `python -m stages.records.board > docs/results.md`; `gt-bench store verify` says which of them the",
        "present tree would compute differently. A cell that is not here has not been run yet: `dvc repro` runs it.",
        "",
    ]
    everything: list[dict[str, Any]] = []
    for suite in grid.suites:
        shipped = _shipped(grid, suite, root)
        if shipped:
            rows = _rows([cell for cell in grid.suite(suite) if cell.cell in shipped], shipped, grid)
            parts += [f"## {suite}", "", *table_lines(rows, "###"), tally(rows, grid.run.verdict), ""]
            everything += rows
    parts += ["## What the papers say", "", *claim_lines(everything), ""]
    parts += ["## Looked into", "", (root / "looked_into.md").read_text()]
    return "\n".join([*parts, "## How to read it", "", explanation(grid.run.verdict)]) + "\n"


def claim_lines(rows: Sequence[dict[str, Any]], paper: str | None = None) -> list[str]:
    """The claims of published/claims.yaml that printed numbers and the runs of `rows` decide, as Markdown; none of a paper that has
    none. Raises RecipeError."""
    claims = [c for c in load_claims() if c.test and not takes_data(c) and paper in (None, c.paper)]
    if not claims:
        return []
    lines = table_of(claims, {claim.id: judged(claim, rows) for claim in claims})
    return [*lines, "", "docs/claims.md has all of them: those that take data too, and those that nothing tests yet (`gt-bench claims`)."]


def every_row(grid: Grid, root: Path = ROOT) -> list[dict[str, Any]]:
    """The leaderboard's rows of every shipped cell, suite by suite. Raises StoreError, RecipeError."""
    found: list[dict[str, Any]] = []
    for suite in grid.suites:
        if shipped := _shipped(grid, suite, root):
            found += _rows([cell for cell in grid.suite(suite) if cell.cell in shipped], shipped, grid)
    return found


def _shipped(grid: Grid, suite: str, root: Path) -> dict[str, Shipped]:
    """The files of a suite by the cell that they are of. Raises StoreError where one is unsound or the file of another cell."""
    found = list(shipped_cells(grid, [suite], root))
    wrong = [line for one in found for line in problems_of(one, root)]
    if wrong:
        raise StoreError("\n".join(wrong))
    return {one.cell: one for one in found}


def _rows(cells: Sequence[Cell], shipped: dict[str, Shipped], grid: Grid) -> list[dict[str, Any]]:
    """The leaderboard's rows of `cells`, each of a shipped one with the commit of its record as the last note."""
    from stages.leaderboard import collect

    folder = Path(tempfile.mkdtemp(prefix="gt-board-"))
    try:
        for one in shipped.values():
            _unpack(one, folder)
        rows, _, _ = collect(cells, folder / "results", Store(folder / "store"), grid.run.verdict)
    finally:
        shutil.rmtree(folder)
    for row in rows:
        if row["cell"] in shipped:
            commit = shipped[row["cell"]].records[0]["measured"]["environment"].get("commit") or "unknown"
            row["notes"] = [*row["notes"], f"shipped record of commit {commit[:12]}"]
    return rows


def _unpack(shipped: Shipped, folder: Path) -> None:
    shipped = shipped.now()
    contents = {folder / "results" / f"{shipped.cell}.json": shipped.result}
    contents |= {Store(folder / "store").folder(r["digest"]) / "record.json": r for r in shipped.records}
    for path, content in contents.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))


if __name__ == "__main__":
    sys.stdout.write(page(load_grid()))
