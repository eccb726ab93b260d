"""A published table as content of a template."""

from gt_bench.papers.table_layout import Column
from gt_bench.reports.paper_table import PaperTable, caption, heading, kind_of, legend, name_of, our_number, sign_of
from gt_bench.utils.redact import printable


def table_content(table: PaperTable) -> dict[str, object]:
    """Returns heads, lines, legend and notes."""
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
            "cell": f"{row['source']}:{row['cell']}" if "source" in row else row["cell"],
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
