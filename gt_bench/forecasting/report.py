"""Forecasts as rows, totals and Markdown."""

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gt_bench.utils.format import bytes_text, hours, markdown_line, print_text

if TYPE_CHECKING:
    from gt_bench.forecasting.estimate import Forecast


def totals(forecasts: Sequence["Forecast"]) -> dict[str, float]:
    """Seconds in all (encodings counted once per dataset and cell), largest memory in MiB, bytes on disk (shared files counted once)."""
    disk: dict[str, int] = {}
    for one in forecasts:
        for name, size in (one.disk or {}).items():
            disk[name] = max(size, disk.get(name, 0))
    return {
        "seconds": sum(one.total_seconds + one.encode_seconds for one in forecasts),
        "memory_mib": max((one.memory_mib or 0.0 for one in forecasts), default=0.0),
        "bytes": sum(disk.values()),
    }


def median_error(forecasts: Sequence["Forecast"]) -> float | None:
    """Of forecasts whose cells were run here, as a share of the actual seconds; None where there is none."""
    errors = [one.error for one in forecasts if one.error is not None]
    return statistics.median(errors) if errors else None


COLUMNS = ("cell", "measured on", "seeds", "one seed", "search", "in all", "memory", "disk", "one seed took", "off by")


def row(one: "Forecast") -> list[str]:
    """The texts of `COLUMNS`."""
    if one.problem or one.seconds is None:
        return [one.cell, "no forecast: " + " ".join((one.problem or "").split()), *[""] * (len(COLUMNS) - 2)]
    took = one.actual_seconds
    return [
        one.cell, one.basis or "", str(one.seeds), hours(one.seconds), hours(one.search_seconds) if one.search_seconds else "–",
        hours(one.total_seconds), f"{one.memory_mib:,.0f} MiB", bytes_text(sum((one.disk or {}).values())),
        "–" if took is None else hours(took), f"{100 * (one.seconds / took - 1):+.0f}%" if took else "–",
    ]  # fmt: skip


def summary(forecasts: Sequence["Forecast"]) -> str:
    """Hours, memory and disk of all, in a line; a second one says how good forecasts of known cells are."""
    whole, middle = totals(forecasts), median_error(forecasts)
    count = sum(one.problem is None for one in forecasts)
    lines = [
        f"{count} of {len(forecasts)} cells: {hours(whole['seconds'])} one after the other, at most {whole['memory_mib']:,.0f} MiB at once, "
        f"{bytes_text(whole['bytes'])} on disk (shared files once)"
    ]
    if middle is not None:
        known = sum(one.error is not None for one in forecasts)
        lines.append(f"median error over {known} cells that were run here: {100 * middle:.0f}%")
    return "\n".join(lines)


def show(forecasts: Sequence["Forecast"]) -> None:
    """The rows and the summary on the terminal."""
    from gt_bench.leaderboard.terminal import print_table

    priority = ("cell", "in all", "memory", "measured on")
    print_table(
        COLUMNS, [row(one) for one in forecasts], *priority, wrapped=("measured on",), title="Forecast on this device"
    )
    print_text(summary(forecasts))


def markdown(forecasts: Sequence["Forecast"]) -> str:
    """The rows as a table, and the summary below it."""
    rows = [COLUMNS, ["---"] * len(COLUMNS), *(row(one) for one in forecasts)]
    return "\n".join(map(markdown_line, rows)) + "\n\n" + summary(forecasts).replace("\n", "  \n") + "\n"
