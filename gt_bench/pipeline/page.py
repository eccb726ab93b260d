"""The HTML page of all results, with what the missing runs cost."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from gt_bench.config.cell_recipe import recipes_of
from gt_bench.config.grid import Grid
from gt_bench.config.schema import RecipeError
from gt_bench.forecasting.cache import FILE, costs_of
from gt_bench.forecasting.counted import COUNTS, counts
from gt_bench.leaderboard.collect import Gathered
from gt_bench.pipeline.gather import gather
from gt_bench.reports.html import custom_plots, plot_data
from gt_bench.reports.html.build import page_html
from gt_bench.reports.html.progress import Costs, how_far
from gt_bench.store.shipped_files import ROOT
from gt_bench.utils.format import print_text
from gt_bench.utils.io import write_bytes


class Written(NamedTuple):
    """A written page: its file, and the datasets with own results, the latest first."""

    path: Path
    own: list[str]


def write_page(
    grid: Grid,
    out: Path = Path("reports/index.html"),
    results: Path = Path("results"),
    store: Path = Path("store"),
    records: Path = ROOT,
    warn: Callable[[str], None] = lambda line: print_text(f"warning: {line}", file=sys.stderr),
) -> Written:
    """Writes the page of results/, store/ and the shipped records, with the custom plots of this folder.

    Args:
        grid: the grid.
        out: the file.
        results: folder of results.
        store: folder of the store.
        records: folder of shipped records.
        warn: called with a line for each custom plot that failed. The page shows it in its place.

    Raises:
        WriteError: the file cannot be written.
    """
    held = gather(grid, results, store, records)
    custom = custom_plots.load([*held.rows, *held.others])
    costs = costs_left(grid, held, store, Path("data"))
    path = write_bytes(out, page_html(grid, held, costs, records, custom).encode())
    for plot in custom:
        if plot.error:
            warn(f"custom plot {plot.error}")
    return Written(path, list(dict.fromkeys(dataset for dataset, _ in plot_data.own(held))))


def costs_left(grid: Grid, held: Gathered, store: Path, data: Path, paper: Path = COUNTS) -> Costs:
    """Returns what the missing runs of all cells cost. Nothing is measured.

    Args:
        grid: the grid.
        held: the results.
        store: folder of the store, with forecasts.
        data: folder of packed data and encodings.
        paper: file with counted operations.
    """
    runs = {row.cell: row.summary.runs for row in held.rows}
    return Costs(_costs(grid, held, store, data), _on_paper(paper, runs))


def _on_paper(path: Path, done: Mapping[str, int]) -> dict[str, dict[str, float]]:
    """Returns counted seconds of the runs and trials of each cell, without its `done` runs, by docs/scale.json.

    On an H100 ("h100") and on one thread of a CPU ("cpu"). Empty if the file is missing. A cell with runs has finished
    its search.
    """
    found = {}
    for name, one in counts(path).items():
        if "h100" in one:
            left = max(0, one["seeds"] - done[name]) if done.get(name) else one["seeds"] + one["search_runs"]
            found[name] = {"h100": one["h100"]["unfused"] * left}
            found[name] |= {"cpu": one["cpu"] * left} if "cpu" in one else {}
    return found


def _costs(grid: Grid, held: Gathered, store: Path, data: Path) -> dict[str, float | None]:
    """Returns seconds of the missing runs of each cell, if a forecast is stored. Nothing is measured."""
    if not (store / FILE).exists():
        return {}
    state = {row.cell: (how_far(row), row.summary.runs) for row in held.rows}
    left = {cell.cell: cell for cell in grid.cells.values() if state.get(cell.cell, ("", 0))[0] not in ("ok", "stale")}
    recipes = {name: one for name, one in recipes_of(left.values()).items() if not isinstance(one, RecipeError)}
    found = costs_of([(left[name], grid) for name in recipes], store, data, measure=False)
    return {
        name: None
        if cost.seconds is None
        else cost.search_seconds + cost.seconds * max(0, len(recipe.seeds) - state.get(name, ("", 0))[1])
        for (name, recipe), cost in zip(recipes.items(), found, strict=True)
    }
