"""Details of each cell, as plain data: rows, recipe with origins, runs, digests, machine, learning curves, command."""

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence

from gt_bench.config.grid import Cell, Grid
from gt_bench.config.origins import origin_of
from gt_bench.config.recipe import Recipe
from gt_bench.config.schema import RecipeError
from gt_bench.leaderboard.collect import OWN, SHIPPED, Gathered, Version
from gt_bench.leaderboard.row import Row
from gt_bench.leaderboard.words import said_of
from gt_bench.records.run import RunResult, points
from gt_bench.reports.html.content import id_of, short, texts_of
from gt_bench.utils.json_types import Settings
from gt_bench.utils.nested import flat
from gt_bench.utils.redact import commit_id, shareable

POINTS = 60  # of a learning curve on the page; records have all epochs
LINE = ("metric", "mean ± std", "runs", "published", "difference [95 %]", "verdict", "claim")
MOST_RUNS = 100  # of a cell that are listed one by one


def of_cells(grid: Grid, held: Gathered, recipes: Mapping[str, Recipe | RecipeError]) -> dict[str, dict[str, object]]:
    """Returns the details of each version of a cell.

    For a cell without a run: its recipe, or what is wrong with it, and the command that runs it.

    Args:
        grid: the grid.
        held: the results.
        recipes: {cell: its recipe, or what is wrong with it}.
    """
    known = {cell.cell: cell for cell in grid.cells.values()}
    rows: dict[str, list[Row]] = {}
    for row in (*held.rows, *held.others):
        rows.setdefault(id_of(row), []).append(row)
    details = {name: _without_version(its, known[its[0].cell], recipes[its[0].cell]) for name, its in rows.items()}
    for (source, of), version in held.versions.items():
        name = f"{source}:{of}"
        details[name] = details[name] | _version(version, known[of], recipes[of])
    for cell in known.values():
        if not any(f"{source}:{cell.cell}" in details for source in (OWN, SHIPPED)):
            recipe = recipes[cell.cell]
            problems = [shareable(str(recipe))] if isinstance(recipe, RecipeError) else []
            details[f"none:{cell.cell}"] = {
                "cell": cell.cell,
                "lines": [],
                "remarks": ["not run", *problems],
                "problems": problems,
                "recipe": _recipe_of(recipe),
                "command": command(cell),
            }
    return details


def _without_version(rows: Sequence[Row], cell: Cell, recipe: Recipe | RecipeError) -> dict[str, object]:
    lines = []
    for row in rows:
        texts = texts_of(row)
        lines.append([texts[name] for name in LINE])
    tests = [row.outlook.tests for row in rows if row.outlook]
    remarks = dict.fromkeys([*tests, *(text for row in rows for text in said_of(row))])
    return {
        "cell": cell.cell,
        "lines": lines,
        "remarks": [shareable(r) for r in remarks],
        "recipe": _recipe_of(recipe),
        "command": command(cell),
    }


def command(cell: Cell) -> str:
    """Returns the command that runs the cell."""
    return f"dvc repro {'finetune' if cell.after else 'train'}@{cell.key}"


def _recipe_of(recipe: Recipe | RecipeError) -> list[list[str]]:
    return [] if isinstance(recipe, RecipeError) else _recipe(recipe.model_dump(mode="json", exclude_unset=True))


def _recipe(recipe: Settings) -> list[list[str]]:
    """Returns [key, value, origin] of every value."""
    origins = recipe.get("origin") or {}
    return [
        [key, value if isinstance(value, str) else json.dumps(value), origin_of(key, origins) or ""]
        for key, value in flat({k: v for k, v in recipe.items() if k != "origin"})
    ]


def _version(version: Version, cell: Cell, recipe: Recipe | RecipeError) -> dict[str, object]:
    """Returns numbers, digests, machines, times and learning curves of the runs."""
    runs = [record.run for record in version.records]
    measured = [record.measured for record in version.records]
    commits = _distinct(m.environment.commit for m in measured)
    known = commit_id(commits[0]) if len(commits) == 1 else None
    first = f"git checkout {known} && " if known else ""
    digests, machines = [run.digests.to_disk() for run in runs], [m.environment.to_disk() for m in measured]
    environment = {
        k: ", ".join(_distinct(machine.get(k) for machine in machines)) for first in machines[:1] for k in first
    }
    return {
        "recipe": _recipe(version.result.recipe) if runs else _recipe_of(recipe),
        "metric": version.result.metric, "direction": version.result.direction,
        "runs": [
            [r.seed, r.split, r.status, short(r.val), short(r.test), r.best_epoch,
             short(m.seconds, 3), record.digest[:16]]
            for r, m, record in zip(runs, measured, version.records, strict=True)
        ][:MOST_RUNS],
        "digests": {k: _distinct(d.get(k) for d in digests) for k in digests[0]} if runs else {},
        "commits": commits,
        "environment": {k: shareable(v) for k, v in environment.items()},
        "devices": _distinct(m.device for m in measured),
        "threads": _distinct(str(m.threads) for m in measured),
        "when": [min(m.started for m in measured), max(m.finished for m in measured)] if measured else [],
        "command": f"{first}{command(cell)}",
        "curves": learning_curves(runs),
    }  # fmt: skip


def _distinct(values: Iterable[object]) -> list[str]:
    return list(dict.fromkeys(str(v) for v in values if v is not None))


def learning_curves(runs: Sequence[RunResult]) -> dict[str, dict[str, Sequence[object]]]:
    """Returns the curves of validation and training loss. None without validation: BREC's runs have a pair per step."""
    shown = {key: curve for key in ("val", "train_loss") if (curve := curves(runs, key))}
    return shown if "val" in shown else {}


def curves(runs: Sequence[RunResult], key: str) -> dict[str, Sequence[object]] | None:
    """Returns median, lowest and highest value over the runs by epoch, at no more than POINTS epochs.

    None if nothing was measured. A run counts until its last epoch.
    """
    by_epoch: dict[int, list[float]] = {}
    for run in runs:
        for epoch, value in points(run.epochs, key):
            if math.isfinite(value):
                by_epoch.setdefault(epoch, []).append(value)
    if len(by_epoch) < 2:
        return None
    epochs = sorted(by_epoch)
    step = max(1, math.ceil(len(epochs) / POINTS))
    kept = sorted({*epochs[::step], epochs[-1]})
    return {
        "epoch": kept,
        "median": [short(statistics.median(by_epoch[e])) for e in kept],
        "low": [short(min(by_epoch[e])) for e in kept],
        "high": [short(max(by_epoch[e])) for e in kept],
    }
