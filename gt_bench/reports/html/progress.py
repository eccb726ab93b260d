"""Progress of the suites of the grid, and the cost of the rest: by stored forecasts, otherwise counted."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from gt_bench.config.grid import Grid
from gt_bench.config.schema import RecipeError
from gt_bench.leaderboard.collect import Gathered
from gt_bench.reports.html.content import readable, state_of
from gt_bench.schemas import Row
from gt_bench.utils.format import duration


def of_suites(
    grid: Grid, held: Gathered, store: Path, data: Path, paper: Path = Path("docs/scale.json")
) -> list[dict[str, object]]:
    """Returns a line per suite: its cells by state, and the cost of the rest.

    On one thread of a CPU: by the forecasts in store/, otherwise counted. On a GPU: counted.
    """
    state = {row["cell"]: _how_far(row) for row in held.rows}
    runs = {row["cell"]: row["runs"] for row in held.rows}
    costs, on_paper = _costs(grid, held, store, data), _on_paper(paper, runs)
    lines: list[dict[str, object]] = []
    for suite in grid.suites:
        mine = grid.suite(suite)
        states = Counter(state.get(cell.cell, "not run") for cell in mine)
        done = states["ok"] + states["stale"]
        left = [cell.cell for cell in mine if state.get(cell.cell, "not run") not in ("ok", "stale")]
        forecast = {name: seconds for name in left if (seconds := costs.get(name)) is not None}
        counted = {name: on_paper[name] for name in left if name in on_paper}
        cpu = {name: one["cpu"] for name, one in counted.items() if "cpu" in one} | forecast
        gpu = {name: one["h100"] for name, one in counted.items()}
        begun = states["incomplete"] + states["reduced"] + states["failed"]
        numbers = {
            "cells": len(mine),
            "done": done,
            "stale": states["stale"],
            "begun": begun,
            "absent": states["not run"],
        }
        how = f", {len(forecast)} by forecast" if forecast else ""
        lines.append({"suite": suite, "rest": _sum_of(cpu, len(left), how), "gpu": _sum_of(gpu, len(left)), **numbers})
    return lines


def _how_far(row: Row) -> str:
    """Returns `state_of`, except that a stale reduced cell counts as incomplete."""
    state = state_of(row)
    return "reduced" if state == "stale" and row["reduced"] else state


def _sum_of(costs: Mapping[str, float], left: int, how: str = "") -> str:
    return (
        f"{duration(sum(costs.values()))} for {len(costs)} of {left} cells{how}"
        if costs
        else "not known"
        if left
        else "nothing"
    )


def _on_paper(path: Path, done: Mapping[str, int]) -> dict[str, dict[str, float]]:
    """Returns counted seconds of the runs and trials of each cell, without its `done` runs, by docs/scale.json.

    On an H100 ("h100") and on one thread of a CPU ("cpu"). Empty if the file is missing. A cell with runs has finished
    its search.
    """
    from gt_bench.forecasting.counted import counts

    found = {}
    for name, one in counts(path).items():
        if "h100" in one:
            left = max(0, one["seeds"] - done[name]) if done.get(name) else one["seeds"] + one["search_runs"]
            found[name] = {"h100": one["h100"]["unfused"] * left}
            found[name] |= {"cpu": one["cpu"] * left} if "cpu" in one else {}
    return found


def _costs(grid: Grid, held: Gathered, store: Path, data: Path) -> dict[str, float | None]:
    """Returns seconds of the missing runs of each cell, if a forecast is stored. Nothing is measured."""
    if not (store / "forecasts.json").exists():
        return {}
    from gt_bench.forecasting.cache import costs_of

    state = {row["cell"]: (_how_far(row), row["runs"]) for row in held.rows}
    left = {cell.cell: cell for cell in grid.cells.values() if state.get(cell.cell, ("", 0))[0] not in ("ok", "stale")}
    recipes = {name: recipe for name, cell in left.items() if not isinstance(recipe := readable(cell), RecipeError)}
    found = costs_of([(left[name], grid) for name in recipes], store, data, measure=False)
    return {
        name: None
        if cost.seconds is None
        else cost.search_seconds + cost.seconds * max(0, len(recipe.seeds) - state.get(name, ("", 0))[1])
        for (name, recipe), cost in zip(recipes.items(), found, strict=True)
    }
