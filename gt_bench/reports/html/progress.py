"""Progress of the suites of the grid, and the cost of the rest: by stored forecasts, otherwise counted."""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from gt_bench.config.grid import Grid
from gt_bench.leaderboard.collect import Gathered
from gt_bench.leaderboard.row import Row
from gt_bench.reports.html.content import state_of
from gt_bench.utils.format import duration


class Costs(NamedTuple):
    """Seconds of the missing runs of cells.

    Attributes:
        forecast: by stored forecasts of this machine, by cell.
        counted: by counted operations, {cell: {"cpu" for one thread, "h100": seconds}}.
    """

    forecast: Mapping[str, float | None] = {}
    counted: Mapping[str, Mapping[str, float]] = {}


NO_COSTS = Costs()


def of_suites(grid: Grid, held: Gathered, costs: Costs) -> list[dict[str, object]]:
    """Returns a line per suite: its cells by state, and the cost of the rest.

    On one thread of a CPU: by the forecasts, otherwise counted. On a GPU: counted.
    """
    state = {row.cell: how_far(row) for row in held.rows}
    lines: list[dict[str, object]] = []
    for suite in grid.suites:
        mine = grid.suite(suite)
        states = Counter(state.get(cell.cell, "not run") for cell in mine)
        left = [cell.cell for cell in mine if state.get(cell.cell, "not run") not in ("ok", "stale")]
        forecast = {name: seconds for name in left if (seconds := costs.forecast.get(name)) is not None}
        counted = {name: costs.counted[name] for name in left if name in costs.counted}
        cpu = {name: count["cpu"] for name, count in counted.items() if "cpu" in count} | forecast
        gpu = {name: count["h100"] for name, count in counted.items()}
        how = f", {len(forecast)} by forecast" if forecast else ""
        lines.append(
            {"suite": suite, "rest": _sum_of(cpu, len(left), how), "gpu": _sum_of(gpu, len(left)), "cells": len(mine),
             "done": states["ok"] + states["stale"], "stale": states["stale"],
             "begun": states["incomplete"] + states["reduced"] + states["failed"], "absent": states["not run"]}
        )  # fmt: skip
    return lines


def how_far(row: Row) -> str:
    """Returns `state_of`, except that a stale reduced cell counts as incomplete."""
    state = state_of(row)
    return "reduced" if state == "stale" and row.reduced else state


def _sum_of(costs: Mapping[str, float], left: int, how: str = "") -> str:
    if costs:
        return f"{duration(sum(costs.values()))} for {len(costs)} of {left} cells{how}"
    return "not known" if left else "nothing"
