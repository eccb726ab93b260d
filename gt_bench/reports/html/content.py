"""Rows of leaderboards as plain data for the page: the table of all results, published tables, names, verdicts."""

import math
from collections.abc import Sequence

from gt_bench.config.grid import Cell
from gt_bench.config.recipe import Recipe, load_recipe
from gt_bench.config.schema import RecipeError
from gt_bench.leaderboard.collect import OWN, SHIPPED, Gathered
from gt_bench.leaderboard.columns import SHOWN, cells
from gt_bench.papers.coverage import seconds_by_device
from gt_bench.papers.table_layout import Column, layouts
from gt_bench.papers.units import mean_and_std
from gt_bench.records.state import Ended
from gt_bench.reports.paper_table import (
    BY_WORD,
    Kind,
    PaperTable,
    caption,
    heading,
    kind_of,
    legend,
    name_of,
    our_number,
    paper_table,
    sign_of,
)
from gt_bench.schemas import Record, Row
from gt_bench.utils.redact import printable

DIGITS = 5


def board(rows: Sequence[Row], absent: Sequence[Cell]) -> list[dict[str, object]]:
    """Returns lines of the table of all results: rows with a verdict, other rows, and cells without rows."""
    lines: list[dict[str, object]] = []
    for row in sorted(rows, key=lambda row: judgement(row).word == "none"):
        kind = judgement(row)
        lines.append(
            {"id": id_of(row), "suite": row["cell"].split("/")[0], "kind": kind.word, "sign": kind.sign,
             "texts": texts_of(row),
             "order": {"mean ± std": row["mean"], "published": row["published_mean"],
                       "difference [95 %]": row["difference"], "s/epoch": row["seconds_per_epoch"],
                       "peak MiB": row["peak_memory_mib"]},
             "state": state_of(row), "source": f"{row['source']}, contributed" if row["contributed"] else row["source"]}
        )  # fmt: skip
    for cell in absent:
        texts = dict.fromkeys(SHOWN, "–") | {"dataset": cell.dataset, "model": cell.model}
        line: dict[str, object] = {
            "id": f"none:{cell.cell}",
            "suite": cell.suite,
            "texts": texts,
            "state": "not run",
            "source": "–",
        }
        lines.append(line | {"kind": "none", "sign": "", "order": {}})
    return lines


def tuned(rows: Sequence[Row]) -> list[dict[str, str]]:
    """Returns the rows with default, tuned and ensembled results: test metric and budget of each as texts."""
    found = []
    for row in rows:
        one = row.get("ensemble")
        if not one or row["mean"] is None:
            continue
        trials = f"{one['trials']} trials, " if "trials" in one else ""
        results = {
            "default": (one["default_mean"], one["default_std"], f"{one['default_hours']:.3g} h"),
            "tuned": (row["mean"], row["std"], f"{trials}{one['tuned_hours']:.3g} h"),
            "ensembled": (one["mean"], one["std"], f"{trials}{one['hours']:.3g} h"),
        }
        line = {"id": id_of(row), "dataset": row["dataset"], "model": row["model"], "metric": texts_of(row)["metric"]}
        for name, (mean, std, budget) in results.items():
            shown = mean_and_std(mean, std if row["runs"] > 1 else None, row["unit"] == "percent")
            line |= {name: shown, f"{name}_budget": budget}
        found.append(line)
    return found


def judgement(row: Row) -> Kind:
    """Returns the kind of the verdict. Without a published number: whether the runs agree with theory."""
    if row["published_place"] or not row["as_expected"]:
        return kind_of(row)
    return BY_WORD[{"as expected": "reproduced", "not as expected": "worse"}.get(row["as_expected"], "undecided")]


def texts_of(row: Row) -> dict[str, str]:
    """Returns the texts of a row by column. A limit of theory replaces a missing published value."""
    texts = dict(zip(SHOWN, cells(row), strict=True))
    if not row["published_place"] and row["expected"]:
        texts |= {"published": f"theory: {texts['expected']}", "verdict": row["as_expected"] or texts["verdict"]}
    return texts


def state_of(row: Row) -> str:
    """Returns the state of a row, by which the page filters."""
    state = row["state"]
    if state.stale:
        return "stale"
    if state.complete:
        return "reduced" if row["reduced"] else "ok"
    if state.absent:
        return "not run"
    return "incomplete" if state.partial or state.ended == Ended.UNFINISHED else "failed"


def id_of(row: Row) -> str:
    """Returns the id of a row in the data of the page. Own and imported rows of a cell have different ids."""
    return f"{row['source']}:{row['cell']}"


def tables(rows: Sequence[Row]) -> list[PaperTable]:
    """Returns all published tables with our rows."""
    return [paper_table(layout, rows) for layout in layouts()]


def shipped(held: Gathered) -> list[Row]:
    """Returns the rows of shipped records, including those that the page replaces by own ones."""
    return [row for row in (*held.rows, *held.others) if row["source"] == SHIPPED]


def records(held: Gathered) -> dict[str, list[Record]]:
    """Returns the records of each cell, for the version that `held.rows` shows."""
    shown = {(row["source"] or OWN, row["cell"]) for row in held.rows}
    return {cell: one.records for (source, cell), one in held.versions.items() if (source, cell) in shown}


def seconds(held: Gathered) -> dict[str, dict[str, float]]:
    """Returns the total seconds of the runs of each cell by device, for the version that `held.rows` shows."""
    return {cell: seconds_by_device(its) for cell, its in records(held).items()}


def readable(cell: Cell) -> Recipe | RecipeError:
    """Returns the recipe of a cell, or its error."""
    try:
        return load_recipe(cell.recipe_path)
    except RecipeError as error:
        return error


def short(value: object, digits: int = DIGITS) -> object:
    """Returns a number with few digits, None if it is not finite, which JSON does not have."""
    if isinstance(value, float):
        return float(f"{value:.{digits}g}") if math.isfinite(value) else None
    return value


def table_content(table: PaperTable) -> dict[str, object]:
    """Returns a published table as content of a template: heads, lines, legend and notes."""
    return {
        "layout": table.layout,
        "caption": caption(table.layout),
        "short": caption(table.layout).removeprefix(f"{table.layout.paper}, "),
        "count": f"{table.run} of {len(table.layout.printed)} numbers have a run of ours",
        "heads": [heading(column, table.layout) for column in table.layout.columns],
        "lines": [
            {"method": method, "cells": [_cell(table, method, column) for column in table.layout.columns]}
            for method in table.layout.methods
        ],
        "legend": legend(table)[0],
        "notes": [printable(note) for note in table.notes],
        "remarks": [line for line in legend(table)[1:] if line.startswith("(!)")],
    }


def _cell(table: PaperTable, method: str, column: Column) -> dict[str, object]:
    """Returns a cell of the table. `order`: the value by which the column sorts, the published mean."""
    printed = table.layout.printed.get((method, column))
    ours = [
        {
            "cell": id_of(row) if "source" in row else row["cell"],
            "text": our_number(row, printed) if printed else "",
            "sign": sign_of(row),
            "kind": kind_of(row).word if row["mean"] is not None else "none",
            "name": name_of(row),
            "title": f"{name_of(row)}: {row['verdict']}",
        }
        for row in table.ours.get((method, column), ())
    ]
    return {
        "printed": printed and printed.printed,
        "order": printed and printed.mean,
        "mark": table.marks.get((method, column)),
        "ours": ours,
    }
