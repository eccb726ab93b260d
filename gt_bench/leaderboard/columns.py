"""Rows of leaderboards as text: columns, in the unit of the paper, as Markdown and on a terminal."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gt_bench.leaderboard.rows import spread
from gt_bench.papers.units import difference_text, mean_and_std, number_text
from gt_bench.schemas import Row
from gt_bench.stats.verdict import MOST_SEEDS
from gt_bench.utils.format import markdown_line, markdown_text

if TYPE_CHECKING:
    from rich.table import Table

SHOWN = (
    "dataset", "model", "metric", "mean ± std", "runs", "published", "difference [95 %]", "verdict", "q",
    "margin (power)", "seeds needed", "claim", "status", "parameters", "s/epoch", "peak MiB", "device", "chance",
    "expected", "as expected?",
)  # fmt: skip
THEORY = ("chance", "expected", "as expected?")
PRINT = ("published", "difference [95 %]", "verdict", "q", "margin (power)", "seeds needed", "claim")
# the order in which columns get space on a terminal; the files have all of them
PRIORITY = (
    "dataset", "model", "mean ± std", "chance", "expected", "as expected?", "published", "verdict", "metric",
    "runs", "status", "difference [95 %]", "claim", "seeds needed",
)  # fmt: skip
# always on a terminal: next to each other, or if it is narrow, below each other
STACKS = (
    ("dataset", "model", "metric"),
    ("mean ± std", "published"),
    ("difference [95 %]", "verdict"),
    ("runs", "status"),
    ("chance", "expected", "as expected?"),
)
WRAPPED = {
    "expected", "as expected?", "verdict", "metric", "status", "claim", "margin (power)", "device",
}  # fmt: skip
RIGHT = {"mean ± std", "runs", "published", "parameters", "s/epoch", "peak MiB"}


def cells(row: Row) -> list[str]:
    """Return the texts of a row in the order of `SHOWN`, in the unit of the paper."""
    units = {"percent": " %", "deviations": " / σ²" if row["metric"] == "mse" else " / σ"}  # of the targets
    metric = (
        f"{row['metric']} {'↑' if row['direction'] == 'max' else '↓'}{units.get(row['unit'], '')}"
        if row["metric"]
        else "–"
    )
    percent = row["unit"] == "percent"
    ours = mean_and_std(row["mean"], spread(row), percent)
    ours += " !" if row["chosen_on_test"] else ""
    theirs = mean_and_std(row["published_mean"], row["published_std"], percent)
    if row["published_mean"] is None and row["published_printed"]:
        theirs = row["published_printed"]
    theirs += " !" if row["flags"] else ""
    low, high = row["interval_low"], row["interval_high"]
    interval = None if low is None or high is None else (low, high)
    status = ", ".join(part for part in (row["status"], row["reduced"] and "reduced") if part)
    return [
        row["dataset"], row["model"], metric, ours, f"{row['runs']}/{row['seeds']}" if row["seeds"] else "–", theirs,
        difference_text(row["difference"], interval, percent), _verdict(row),
        "–" if row["q_difference"] is None else f"{row['q_difference']:.2g}", _margin(row), _seeds_needed(row),
        _claim(row), status,
        "–" if row["parameters"] is None else f"{row['parameters']:,}",
        "–" if row["seconds_per_epoch"] is None else f"{row['seconds_per_epoch']:.3g}",
        "–" if row["peak_memory_mib"] is None else f"{row['peak_memory_mib']:,.0f}",
        row["device"] or "–", _number(row["chance"], row), _expected(row), row["as_expected"] or "–",
    ]  # fmt: skip


def shown_columns(rows: Sequence[Row]) -> list[int]:
    """Return the indices in `SHOWN` of the columns that apply to the rows.

    The columns of theory are shown if a row has an expected value, those of published numbers unless only theory
    applies.
    """
    theory = any(row["expected"] for row in rows)
    printed = not theory or any(row["published_printed"] for row in rows)
    names = [name for name in SHOWN if name not in THEORY and (printed or name not in PRINT)]
    if theory:
        after = names.index("runs") + 1
        names[after:after] = THEORY
    return [SHOWN.index(name) for name in names]


def table_lines(rows: Sequence[Row]) -> list[str]:
    """Return the rows as a Markdown table, with their remarks under a heading."""
    places = shown_columns(rows)
    texts = [[markdown_text(text[i]) for i in places] for text in (SHOWN, *map(cells, rows))]
    lines = [markdown_line(texts[0]), markdown_line(["---"] * len(places)), *map(markdown_line, texts[1:]), ""]
    remarks = list(dict.fromkeys(remark for row in rows for remark in remarks_of(row)))
    shown = [f"- {markdown_text(remark)}" for remark in remarks]  # a reason may contain text from another host
    return [*lines, "## Remarks", "", *shown, ""] if shown else lines


def remarks_of(row: Row) -> list[str]:
    """Return what a reader must know about a row besides its numbers, one line each."""
    name = f"{row['dataset']} / {row['model']}"
    remarks = reason_of(row)
    if row["reduced"]:
        remarks.append(f"{name}: reduced, not the published setting: {', '.join(row['reduced'])}")
    remarks += [f"{row['dataset']}: {row['tests']}"] if row["tests"] else []
    remarks += [f"{name}: {_expected(row)} expected: {row['expected_because']}"] if row["expected"] else []
    if row["published_source"]:
        remarks.append(f"{name}: published {row['published_printed']} ({row['published_source']})")
    remarks += [f"{name}: ! how the published number was made: {flag}" for flag in row["flags"]]
    return remarks + [f"{name}: {note}" for note in row["notes"]]


def reason_of(row: Row) -> list[str]:
    """Return why a row is not complete: one line, or none."""
    if not row["reason"]:
        return []
    return [f"{row['dataset']} / {row['model']}: {row['status']}: {' '.join(row['reason'].split())}"]


def terminal_table(
    suite: str, rows: Sequence[Row], width: int = 150, shorter: Mapping[str, Sequence[str]] | None = None
) -> "Table":
    """Return the rows as a table for a terminal.

    Args:
        suite: for the title.
        rows: the rows.
        width: of the terminal, in characters.
        shorter: column -> a shorter text for each row, used where space is missing.
    """
    from gt_bench.utils.column_widths import fitting_table

    columns = shown_columns(rows)
    names, texts = [SHOWN[i] for i in columns], [[cells(row)[i] for i in columns] for row in rows]
    return fitting_table(
        names,
        texts,
        width,
        PRIORITY,
        WRAPPED,
        RIGHT,
        f"Leaderboard: {suite}",
        f" (reports/{suite}.md, --json)",
        stacks=STACKS,
        shorter=shorter,
    )


def _verdict(row: Row) -> str:
    """Return the verdict; of `reproduced` with the gap that the runs exclude."""
    if row["verdict"] != "reproduced" or row["excluded_gap"] is None:
        return row["verdict"]
    unit = " points" if row["unit"] == "percent" else ""
    return f"reproduced (gaps above {_number(row['excluded_gap'], row)}{unit} excluded)"


def _margin(row: Row) -> str:
    if row["margin"] is None:
        return "–"
    return _number(row["margin"], row) + ("" if row["power"] is None else f" ({100 * row['power']:.0f} %)")


def _seeds_needed(row: Row) -> str:
    if row["seeds_needed"] is None:
        # the published number is too uncertain, or our runs scatter too much
        return "–" if row["power"] is None else f"> {MOST_SEEDS}"
    return str(row["seeds_needed"])


def _claim(row: Row) -> str:
    if row["claim"] is None:
        return "–"
    more = f" (+{row['claim_more_seeds']})" if row["claim_more_seeds"] else ""
    return f"{row['claim']}{more}: {row['claim_rival']}" if row["claim_rival"] else row["claim"]


def _expected(row: Row) -> str:
    return f"{row['expected']} {_number(row['expected_limit'], row)}" if row["expected"] else "–"


def _number(value: float | None, row: Row) -> str:
    return number_text(value, row["unit"] == "percent")
