"""Rows of leaderboards as text: columns, in the unit of the paper, and as Markdown."""

from collections.abc import Sequence

from gt_bench.leaderboard.row import Cost, Row
from gt_bench.leaderboard.words import claim_of, expected_of, remarks_of, status_of, verdict_of
from gt_bench.papers.units import Unit, arrow, difference_text, mean_and_std, number_text
from gt_bench.stats.welch import MOST_SEEDS
from gt_bench.utils.format import markdown_line, markdown_text

SHOWN = (
    "dataset", "model", "metric", "mean ± std", "runs", "published", "difference [95 %]", "verdict", "q",
    "margin (power)", "seeds needed", "claim", "status", "parameters", "s/epoch", "peak MiB", "device", "chance",
    "expected", "as expected?",
)  # fmt: skip
THEORY = ("chance", "expected", "as expected?")
PRINT = ("published", "difference [95 %]", "verdict", "q", "margin (power)", "seeds needed", "claim")


def cells(row: Row) -> list[str]:
    """Return the texts of a row in the order of `SHOWN`, in the unit of the paper."""
    mine, cost, verdict, published = row.summary, row.cost, row.verdict, row.published
    ours = mean_and_std(mine.mean, mine.spread, row.percent) + (" !" if row.chosen_on_test else "")
    theirs = "–"
    if published:
        theirs = (
            mean_and_std(published.mean, published.std, row.percent)
            if published.mean is not None
            else published.printed
        )
        theirs += " !" if published.flags else ""
    status = status_of(row.state) + (", reduced" if row.reduced else "")
    q = verdict and verdict.q_difference
    agreement = row.outlook and row.outlook.agreement
    return [
        row.dataset, row.model, metric_of(row), ours, f"{mine.runs}/{mine.wanted}" if mine.wanted else "–", theirs,
        difference_text(row.difference, row.interval, row.percent), verdict_of(row),
        "–" if q is None else f"{q:.2g}", _margin(row), _seeds_needed(row), claim_of(row), status,
        *cost_texts(cost), cost.device or "–", number_text(row.outlook.chance if row.outlook else None, row.percent),
        expected_of(row), agreement or "–",
    ]  # fmt: skip


def cost_texts(cost: Cost) -> list[str]:
    """Return parameters, seconds per epoch and peak memory as text."""
    return [
        "–" if cost.parameters is None else f"{cost.parameters:,}",
        "–" if cost.seconds_per_epoch is None else f"{cost.seconds_per_epoch:.3g}",
        "–" if cost.peak_memory_mib is None else f"{cost.peak_memory_mib:,.0f}",
    ]


def metric_of(row: Row) -> str:
    """Return the metric of a row with its direction and its unit."""
    if row.metric is None:
        return "–"
    deviations = " / σ²" if row.metric == "mse" else " / σ"  # of the targets
    unit = {Unit.PERCENT: " %", Unit.DEVIATIONS: deviations}.get(row.unit, "")
    return f"{row.metric} {arrow(row.direction)}{unit}"


def shown_columns(rows: Sequence[Row]) -> list[int]:
    """Return the indices in `SHOWN` of the columns that apply to the rows.

    The columns of theory are shown if a row has an expected value, those of published numbers unless only theory
    applies.
    """
    theory = any(row.outlook and row.outlook.limit for row in rows)
    printed = not theory or any(row.published for row in rows)
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


def _margin(row: Row) -> str:
    if row.verdict is None or row.verdict.margin is None:
        return "–"
    power = row.verdict.power
    return number_text(row.verdict.margin, row.percent) + ("" if power is None else f" ({100 * power:.0f} %)")


def _seeds_needed(row: Row) -> str:
    if row.verdict is None or row.verdict.seeds_needed is None:
        # the published number is too uncertain, or our runs scatter too much
        return "–" if row.verdict is None or row.verdict.power is None else f"> {MOST_SEEDS}"
    return str(row.verdict.seeds_needed)
