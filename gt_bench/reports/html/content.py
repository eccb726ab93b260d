"""Rows of leaderboards as plain data for the page: the table of all results, published tables, names, verdicts."""

import math
from collections.abc import Sequence

from gt_bench.config.grid import Cell
from gt_bench.leaderboard.collect import OWN, Gathered
from gt_bench.leaderboard.columns import SHOWN, cells
from gt_bench.leaderboard.expectations import Agreement
from gt_bench.leaderboard.row import Row
from gt_bench.leaderboard.words import verdict_of
from gt_bench.papers.table_layout import Column
from gt_bench.papers.units import mean_and_std
from gt_bench.records.run import RunRecord
from gt_bench.records.state import CellStatus
from gt_bench.reports.paper_table import (
    BY_WORD,
    NOT_JUDGED,
    Kind,
    PaperTable,
    caption,
    heading,
    kind_of,
    legend,
    name_of,
    our_number,
    sign_of,
    warnings,
)
from gt_bench.stats.verdict import VerdictWord
from gt_bench.utils.redact import printable

DIGITS = 5
# sign of an agreement with theory
SAME_SIGN = {
    Agreement.AS_EXPECTED: VerdictWord.REPRODUCED,
    Agreement.NOT_AS_EXPECTED: VerdictWord.WORSE,
    Agreement.UNDECIDED: VerdictWord.UNDECIDED,
}


def board(rows: Sequence[Row], absent: Sequence[Cell]) -> list[dict[str, object]]:
    """Returns lines of the table of all results: rows with a verdict, other rows, and cells without rows."""
    lines: list[dict[str, object]] = []
    for row in sorted(rows, key=lambda row: judgement(row).word == NOT_JUDGED):
        kind = judgement(row)
        lines.append(
            {"id": id_of(row), "suite": row.suite, "kind": kind.word, "sign": kind.sign,
             "texts": texts_of(row),
             "order": {"mean ± std": row.summary.mean, "published": row.published and row.published.mean,
                       "difference [95 %]": row.difference, "s/epoch": row.cost.seconds_per_epoch,
                       "peak MiB": row.cost.peak_memory_mib},
             "state": state_of(row), "source": f"{row.source}, contributed" if row.contributed else row.source}
        )  # fmt: skip
    for cell in absent:
        texts = dict.fromkeys(SHOWN, "–") | {"dataset": cell.dataset, "model": cell.model}
        lines.append(
            {"id": f"none:{cell.cell}", "suite": cell.suite, "kind": NOT_JUDGED, "sign": "", "texts": texts,
             "order": {}, "state": "not run", "source": "–"}
        )  # fmt: skip
    return lines


def tuned(rows: Sequence[Row]) -> list[dict[str, str]]:
    """Returns the rows with default, tuned and ensembled results: test metric and budget of each as texts."""
    lines = []
    for row in rows:
        mine, ensemble = row.summary, row.search and row.search.ensemble
        if not ensemble or mine.mean is None:
            continue
        trials = "" if ensemble.trials is None else f"{ensemble.trials} trials, "
        results = {
            "default": (ensemble.default_mean, ensemble.default_std, f"{ensemble.default_hours:.3g} h"),
            "tuned": (mine.mean, mine.std, f"{trials}{ensemble.tuned_hours:.3g} h"),
            "ensembled": (ensemble.mean, ensemble.std, f"{trials}{ensemble.hours:.3g} h"),
        }
        line = {"id": id_of(row), "dataset": row.dataset, "model": row.model, "metric": texts_of(row)["metric"]}
        for name, (mean, std, budget) in results.items():
            shown = mean_and_std(mean, std if mine.runs > 1 else None, row.percent)
            line |= {name: shown, f"{name}_budget": budget}
        lines.append(line)
    return lines


def judgement(row: Row) -> Kind:
    """Returns the kind of the verdict. Without a published number: whether the runs agree with theory."""
    if row.published or not row.outlook or not row.outlook.agreement:
        return kind_of(row)
    return BY_WORD[SAME_SIGN[row.outlook.agreement]]


def texts_of(row: Row) -> dict[str, str]:
    """Returns the texts of a row by column. A limit of theory replaces a missing published value."""
    texts = dict(zip(SHOWN, cells(row), strict=True))
    if not row.published and row.outlook and row.outlook.limit:
        verdict = row.outlook.agreement or texts["verdict"]
        texts |= {"published": f"theory: {texts['expected']}", "verdict": verdict}
    return texts


def state_of(row: Row) -> str:
    """Returns the state of a row, by which the page filters."""
    state = row.state
    if state.stale:
        return "stale"
    if state.complete:
        return "reduced" if row.reduced else "ok"
    if state.absent:
        return "not run"
    return "incomplete" if state.partial or state.ended == CellStatus.UNFINISHED else "failed"


def id_of(row: Row) -> str:
    """Returns the id of a row in the data of the page. Own and imported rows of a cell have different ids."""
    return f"{row.source}:{row.cell}"


def records(held: Gathered) -> dict[str, list[RunRecord]]:
    """Returns the records of each cell, for the version that `held.rows` shows."""
    shown = {(row.source or OWN, row.cell) for row in held.rows}
    return {cell: version.records for (source, cell), version in held.versions.items() if (source, cell) in shown}


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
        "remarks": warnings(table),
    }


def _cell(table: PaperTable, method: str, column: Column) -> dict[str, object]:
    """Returns a cell of the table. `order`: the value by which the column sorts, the published mean."""
    printed = table.layout.printed.get((method, column))
    ours = [
        {
            "cell": id_of(row) if row.source else row.cell,
            "text": our_number(row, printed) if printed else "",
            "sign": sign_of(row),
            "kind": kind_of(row).word,
            "name": name_of(row),
            "title": f"{name_of(row)}: {verdict_of(row)}",
        }
        for row in table.ours.get((method, column), ())
    ]
    return {
        "printed": printed and printed.printed,
        "order": printed and printed.mean,
        "mark": table.marks.get((method, column)),
        "ours": ours,
    }
