"""Forecasts as a table, with totals, for the terminal and as Markdown."""

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gt_bench.utils.format import duration, file_size, markdown_line, print_text

if TYPE_CHECKING:
    from gt_bench.forecasting.estimate import Forecast


def totals(forecasts: Sequence["Forecast"]) -> dict[str, float]:
    """Return total seconds with encodings, largest memory in MiB, and bytes on disk (shared files counted once)."""
    disk: dict[str, int] = {}
    for forecast in forecasts:
        for name, size in (forecast.disk or {}).items():
            disk[name] = max(size, disk.get(name, 0))
    return {
        "seconds": sum(forecast.total_seconds + forecast.encode_seconds for forecast in forecasts),
        "memory_mib": max((forecast.memory_mib or 0.0 for forecast in forecasts), default=0.0),
        "bytes": sum(disk.values()),
    }


def median_error(forecasts: Sequence["Forecast"]) -> float | None:
    """Return the median relative error of forecasts whose cells have records from this device; None without any."""
    errors = [forecast.error for forecast in forecasts if forecast.error is not None]
    return statistics.median(errors) if errors else None


COLUMNS = ("cell", "measured on", "seeds", "one seed", "search", "in all", "memory", "disk", "one seed took", "off by")


def row(forecast: "Forecast") -> list[str]:
    """Return the texts of `COLUMNS`."""
    if forecast.problem or forecast.seconds is None:
        return [forecast.cell, "no forecast: " + " ".join((forecast.problem or "").split()), *[""] * (len(COLUMNS) - 2)]
    took = forecast.actual_seconds
    search = duration(forecast.search_seconds) if forecast.search_seconds else "–"
    return [
        forecast.cell, forecast.basis or "", str(forecast.seeds), duration(forecast.seconds), search,
        duration(forecast.total_seconds),
        f"{forecast.memory_mib:,.0f} MiB", file_size(sum((forecast.disk or {}).values())),
        "–" if took is None else duration(took), f"{100 * (forecast.seconds / took - 1):+.0f}%" if took else "–",
    ]  # fmt: skip


def summary(forecasts: Sequence["Forecast"]) -> str:
    """Return a line with total time, memory and disk space, and a line with the error of forecasts of known cells."""
    whole, middle = totals(forecasts), median_error(forecasts)
    count = sum(forecast.problem is None for forecast in forecasts)
    lines = [
        f"{count} of {len(forecasts)} cells: {duration(whole['seconds'])} one after the other, at most "
        f"{whole['memory_mib']:,.0f} MiB at once, {file_size(whole['bytes'])} on disk (shared files counted once)"
    ]
    if middle is not None:
        known = sum(forecast.error is not None for forecast in forecasts)
        lines.append(f"median error over {known} cells with records from this device: {100 * middle:.0f}%")
    return "\n".join(lines)


def show(forecasts: Sequence["Forecast"]) -> None:
    """Print the rows, and the summary of several."""
    from gt_bench.utils.terminal import print_table

    priority = ("cell", "in all", "memory", "measured on")
    print_table(
        COLUMNS,
        [row(forecast) for forecast in forecasts],
        *priority,
        wrapped=("measured on",),
        title="Forecast on this device",
    )
    if len(forecasts) > 1:
        print_text(summary(forecasts))


def markdown(forecasts: Sequence["Forecast"]) -> str:
    """Return the rows as a Markdown table, and the summary below it."""
    rows = [COLUMNS, ["---"] * len(COLUMNS), *(row(forecast) for forecast in forecasts)]
    return "\n".join(map(markdown_line, rows)) + "\n\n" + summary(forecasts).replace("\n", "  \n") + "\n"
