"""What the page shows, as plain data: the grid, rows for tables and plots, and the details of each cell. Nothing is computed but verdicts' sums."""

import csv
import json
import math
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from stages.addresses import shareable
from stages.bases import origin_of
from stages.contents import Ran, Row, Settings
from stages.params import Cell, Grid
from stages.recipe import Recipe, load_recipe
from stages.records.gathered import OWN, SHIPPED, Gathered, Version
from stages.report.coverage import seconds_by_device
from stages.report.layout import layouts
from stages.report.paper_table import BY_WORD, Kind, PaperTable, kind_of, paper_table
from stages.report.table import SHOWN, cells, remarks_of
from stages.schema import RecipeError
from stages.texts import hours

POINTS = 60  # of a learning curve on the page; records have all epochs
DIGITS = 5
MOST_RUNS = 100  # of a cell that are listed one by one


def rows_for_plots(rows: Sequence[Row], details: Mapping[str, Mapping[str, object]]) -> list[dict[str, object]]:
    """A leaderboard's rows with what plots read of them; numbers in raw units."""
    keep = (
        "dataset",
        "model",
        "metric",
        "direction",
        "unit",
        "mean",
        "std",
        "runs",
        "seeds",
        "verdict",
        "difference",
        "device",
        "parameters",
        "published_mean",
        "published_printed",
        "interval_low",
        "interval_high",
        "margin",
        "seconds_per_epoch",
        "peak_memory_mib",
        "source",
    )
    return [
        {"id": id_of(row), "suite": row["cell"].split("/")[0], "kind": kind_of(row).word, "sign": kind_of(row).sign}
        | {key: short(row.get(key)) for key in keep}
        | {"provisional": bool(row["provisional"]), "curves": bool(details[id_of(row)].get("curves"))}
        for row in rows
        if row["mean"] is not None
    ]


def id_of(row: Row) -> str:
    """What a row is called in the page's data: ours and imported ones of a cell differ."""
    return f"{row['source']}:{row['cell']}"


def board(rows: Sequence[Row], absent: Sequence[Cell]) -> list[dict[str, object]]:
    """Lines of the table of all results: every row, and every cell of the grid that has none."""
    lines: list[dict[str, object]] = []
    for row in rows:
        kind = judgement(row)
        lines.append(
            {"id": id_of(row), "suite": row["cell"].split("/")[0], "kind": kind.word, "sign": kind.sign, "texts": texts_of(row),
             "order": {"mean ± std": row["mean"], "published": row["published_mean"], "difference [95 %]": row["difference"],
                       "s/epoch": row["seconds_per_epoch"], "peak MiB": row["peak_memory_mib"]},
             "state": _state(row), "source": row["source"]}
        )  # fmt: skip
    for cell in absent:
        texts = dict.fromkeys(SHOWN, "–") | {"dataset": cell.dataset, "model": cell.model}
        line: dict[str, object] = {"id": f"none:{cell.cell}", "suite": cell.suite, "texts": texts, "state": "not run", "source": "–"}
        lines.append(line | {"kind": "none", "sign": "", "order": {}})
    return lines


def judgement(row: Row) -> Kind:
    """What the verdict comes to; where theory sets a limit and no paper prints a number, whether the runs agree with theory."""
    if row["published_place"] or not row["as_expected"]:
        return kind_of(row)
    return BY_WORD[{"as expected": "reproduced", "not as expected": "worse"}.get(row["as_expected"], "undecided")]


def texts_of(row: Row) -> dict[str, str]:
    """What people read of a row by the names of the columns, a limit of theory in the place of a printed number that there is not."""
    texts = dict(zip(SHOWN, cells(row), strict=True))
    if not row["published_place"] and row["expected"]:
        texts |= {"published": f"theory: {texts['expected']}", "verdict": row["as_expected"] or texts["verdict"]}
    return texts


def _state(row: Row) -> str:
    """One of few words, to filter by."""
    status = str(row["status"])
    if "stale" in status:
        return "stale"
    if status.partition(",")[0] == "ok":
        return "reduced" if row["reduced"] else "ok"
    return "not run" if status.startswith("not run") else "incomplete" if status.startswith("ok") or status == "unfinished" else "failed"


def progress(grid: Grid, held: Gathered, store: Path, data: Path, paper: Path = Path("docs/scale.json")) -> list[dict[str, object]]:
    """A line per suite: its cells by how far they are, and what the rest costs on one thread of a CPU, by the forecasts that store/ has or else on
    paper, and on a GPU on paper."""
    state = {row["cell"]: _state(row) for row in held.rows}
    costs, on_paper = _costs(grid, held, store, data), _on_paper(paper)
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
        numbers = {"cells": len(mine), "done": done, "stale": states["stale"], "begun": begun, "absent": states["not run"]}
        how = f", {len(forecast)} by forecast" if forecast else ""
        lines.append({"suite": suite, "rest": _sum_of(cpu, len(left), how), "gpu": _sum_of(gpu, len(left)), **numbers})
    return lines


def _sum_of(costs: Mapping[str, float], left: int, how: str = "") -> str:
    return f"{hours(sum(costs.values()))} for {len(costs)} of {left} cells{how}" if costs else "not known" if left else "nothing"


def seconds(held: Gathered) -> dict[str, dict[str, float]]:
    """What the runs of each cell took on each device, one after the other, in the version of it that `held.rows` shows."""
    shown = {(row["source"] or OWN, row["cell"]) for row in held.rows}
    return {cell: seconds_by_device(one.records) for (source, cell), one in held.versions.items() if (source, cell) in shown}


def shipped(held: Gathered) -> list[Row]:
    """Rows of shipped records, including those that the page replaces by this machine's own."""
    return [row for row in (*held.rows, *held.others) if row["source"] == SHIPPED]


def _on_paper(path: Path) -> dict[str, dict[str, float]]:
    """Seconds of a cell's runs and trials on an H100 ("h100") and a thread of a CPU ("cpu") by docs/scale.json, which counts them; empty where the
    file is not there."""
    try:
        cells = json.loads(path.read_text())["cells"]
        runs = {name: one["seeds"] + one["search_runs"] for name, one in cells.items() if "h100" in one}
        return {
            name: {"h100": cells[name]["h100"]["unfused"] * n} | ({"cpu": cells[name]["cpu"] * n} if "cpu" in cells[name] else {})
            for name, n in runs.items()
        }
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _costs(grid: Grid, held: Gathered, store: Path, data: Path) -> dict[str, float | None]:
    """Seconds of the runs that a cell lacks, where a forecast is kept; nothing is measured."""
    if not (store / "forecasts.json").exists():
        return {}
    from stages.sweep.costs import costs_of

    state = {row["cell"]: (_state(row), row["runs"]) for row in held.rows}
    left = {cell.cell: cell for cell in grid.cells.values() if state.get(cell.cell, ("", 0))[0] not in ("ok", "stale")}
    recipes = {name: recipe for name, cell in left.items() if not isinstance(recipe := _readable(cell), RecipeError)}
    found = costs_of([(left[name], grid) for name in recipes], store, data, measure=False)
    return {
        name: None if cost.seconds is None else cost.search_seconds + cost.seconds * max(0, len(recipe.seeds) - state.get(name, ("", 0))[1])
        for (name, recipe), cost in zip(recipes.items(), found, strict=True)
    }


def tables(rows: Sequence[Row]) -> list[PaperTable]:
    """Every printed table with our rows in it."""
    return [paper_table(layout, rows) for layout in layouts()]


def details(grid: Grid, held: Gathered) -> dict[str, dict[str, object]]:
    """Everything about each version of a cell, and of a cell without a run its recipe, or what is wrong with it, and the command that makes it."""
    known = {cell.cell: cell for cell in grid.cells.values()}
    rows: dict[str, list[Row]] = {}
    for row in (*held.rows, *held.others):
        rows.setdefault(id_of(row), []).append(row)
    found = {name: _without_version(its, known[its[0]["cell"]]) for name, its in rows.items()}
    for (source, of), version in held.versions.items():
        name = f"{source}:{of}"
        found[name] = found[name] | _version(version, known[of])
    for cell in known.values():
        if not any((source, cell.cell) in held.versions for source in ("own", "shipped")) and f"{OWN}:{cell.cell}" not in found:
            recipe = _readable(cell)
            problems = [shareable(str(recipe))] if isinstance(recipe, RecipeError) else []
            found[f"none:{cell.cell}"] = {
                "cell": cell.cell,
                "lines": [],
                "remarks": ["not run", *problems],
                "problems": problems,
                "recipe": _recipe_of(recipe),
                "command": command(cell),
            }
    return found


def _without_version(rows: Sequence[Row], cell: Cell) -> dict[str, object]:
    lines = []
    for row in rows:
        texts = texts_of(row)
        lines.append([texts[k] for k in ("metric", "mean ± std", "runs", "published", "difference [95 %]", "verdict", "claim")])
    remarks = dict.fromkeys(remark.partition(": ")[2] for row in rows for remark in remarks_of(row))
    return {
        "cell": cell.cell,
        "lines": lines,
        "remarks": [shareable(r) for r in remarks],
        "recipe": _recipe_of(_readable(cell)),
        "command": command(cell),
    }


def command(cell: Cell) -> str:
    """What runs the cell."""
    return f"dvc repro {'finetune' if cell.after else 'train'}@{cell.key}"


def _readable(cell: Cell) -> Recipe | RecipeError:
    try:
        return load_recipe(cell.recipe_path)
    except RecipeError as error:
        return error


def _recipe_of(recipe: Recipe | RecipeError) -> list[list[str]]:
    return [] if isinstance(recipe, RecipeError) else _recipe(recipe.model_dump(mode="json", exclude_unset=True))


def _recipe(recipe: Settings) -> list[list[str]]:
    """[key, value, origin] of every value."""
    origins = recipe.get("origin") or {}
    flat = _flat({k: v for k, v in recipe.items() if k != "origin"})
    return [[key, value, origin_of(key, origins) or ""] for key, value in flat]


def _flat(content: Mapping[str, object], before: str = "") -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for key, value in content.items():
        if isinstance(value, Mapping) and value:
            found += _flat(value, f"{before}{key}.")
        else:
            found.append((f"{before}{key}", value if isinstance(value, str) else json.dumps(value)))
    return found


def _version(version: Version, cell: Cell) -> dict[str, object]:
    """Of the runs: numbers, digests, where and when they were made, and their learning curves."""
    runs = [record["deterministic"] for record in version.records]
    measured = [record["measured"] for record in version.records]
    commits = _distinct(m["environment"].get("commit") for m in measured)
    first = f"git checkout {commits[0].removesuffix('-dirty')} && " if len(commits) == 1 else ""
    environment = {k: ", ".join(_distinct(m["environment"].get(k) for m in measured)) for m in measured[:1] for k in m["environment"]}
    recipe = _recipe(version.result["recipe"]) if runs else _recipe_of(_readable(cell))
    return {
        "recipe": recipe,
        "metric": version.result.get("metric"), "direction": version.result.get("direction"),
        "runs": [
            [r["seed"], r["split"], r["status"], short(r["val"]), short(r["test"]), r["best_epoch"], short(m["seconds"], 3), record["digest"][:16]]
            for r, m, record in zip(runs, measured, version.records, strict=True)
        ][:MOST_RUNS],
        "digests": {k: _distinct(r["digests"].get(k) for r in runs) for k in (runs[0]["digests"] if runs else ())},
        "commits": commits,
        "environment": {k: shareable(v) for k, v in environment.items()},
        "devices": _distinct(m["device"] for m in measured),
        "threads": _distinct(str(m.get("threads")) for m in measured),
        "when": [min(m["started"] for m in measured), max(m["finished"] for m in measured)] if measured else [],
        "command": f"{first}{command(cell)}",
        "curves": {key: curve for key in ("val", "train_loss") if (curve := curves(runs, key))},
    }  # fmt: skip


def _distinct(values: Iterable[object]) -> list[str]:
    return list(dict.fromkeys(str(v) for v in values if v is not None))


def curves(runs: Sequence[Ran], key: str) -> dict[str, Sequence[object]] | None:
    """Median, lowest and highest value over the runs by epoch, at no more than POINTS epochs; None where nothing was measured. A run counts as
    long as it goes on."""
    by_epoch: dict[int, list[float]] = {}
    for run in runs:
        for epoch, value in zip(run["epochs"].get("epoch") or (), run["epochs"].get(key) or (), strict=False):
            if value is not None and math.isfinite(value):
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


def scaling(rows: Sequence[Row]) -> list[dict[str, object]]:
    """Seconds and memory of a model on datasets that differ in a number alone, which is their size."""
    found = []
    for row in rows:
        family = re.fullmatch(r"(.+)-(\d+)", row["dataset"])
        if family and row["seconds_per_epoch"] is not None and row["source"] is not None:
            found.append({"id": id_of(row), "family": family[1], "size": int(family[2]), "model": row["model"], "device": row["device"],
                          "seconds": short(row["seconds_per_epoch"]), "memory": short(row["peak_memory_mib"])})  # fmt: skip
    sizes = {key: len({r["size"] for r in found if (r["family"], r["model"]) == key}) for key in {(r["family"], r["model"]) for r in found}}
    return sorted((r for r in found if sizes[r["family"], r["model"]] > 1), key=lambda r: (r["family"], r["model"], r["size"]))


def growth(folder: Path) -> dict[str, object]:
    """Operations of the models by size of graph, as published/findings/growth.json keeps them; empty where it is not there or not sealed."""
    from stages.findings import sealed

    try:
        content = json.loads((folder / "growth.json").read_text())
        return {name: case["value"] for name, case in content["cases"].items()} if content["sha256"] == sealed(content["cases"]) else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def hot_scaling(path: Path) -> list[dict[str, object]]:
    """The rows of benchmarks/hot_scaling.py's file, as far as they succeeded; none where it was not measured here."""
    try:
        with path.open(newline="") as file:
            return [
                {
                    "model": row["model"],
                    "edges": int(row["edges"]),
                    "seconds": float(row["forward_seconds"]),
                    "memory": float(row["peak_mib"]),
                }
                for row in csv.DictReader(file)
                if row["status"] == "ok"
            ]
    except (OSError, ValueError, KeyError):
        return []


def short(value: object, digits: int = DIGITS) -> object:
    """A number as JSON can hold it: few digits, and None for what is not finite."""
    if isinstance(value, float):
        return float(f"{value:.{digits}g}") if math.isfinite(value) else None
    return value
