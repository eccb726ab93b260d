"""Estimated cost of the whole grid on a CPU and on a GPU that is not available, and schedules for several of them.

    python benchmarks/scale.py grid [CELL ...] [--seconds S]      # counts cells that are missing in docs/scale.json
    python benchmarks/scale.py page                               # prints the tables, with schedules
    python benchmarks/scale.py --write                            # writes docs/scale.md from docs/scale.json

For each phase of a cell, one training step and one evaluated batch of the plain definitions run on a few random graphs
of the dataset's size, and all operations are counted (benchmarks/counts.py). The arithmetic of `gt-bench forecast`
(gt_bench/forecasting/estimate.py) extrapolates to a whole run. The rates of a device convert counts into hours. Those
of a CPU are corrected by shipped records. benchmarks/scale_store.py measures the run store and MLflow for the same
file.

Prints: estimated cost of every cell on each device; `grid` prints each cell that it counts.
Takes: seconds for `page`; at most --seconds of processor time for `grid`, which resumes where it stopped.
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.cells import ROOT, number, write_between
from benchmarks.command import parser_of
from benchmarks.scale_counts import KEPT, extent, filled, measure, read
from benchmarks.scale_devices import (
    Calibrated,
    Device,
    calibrated,
    donor_ratios,
    h100,
    priced,
    rates_here,
    shipped_runs,
)
from benchmarks.scale_schedule import jobs_by, simulate
from gt_bench.config.grid import Cell, Grid, load_grid
from gt_bench.config.recipe import load_recipe
from gt_bench.utils.format import duration
from gt_bench.utils.io import write_json

PAGE = ROOT / "docs" / "scale.md"
BEGIN, END = "<!-- benchmarks/scale.py --write -->", "<!-- end -->"
WORKERS = (1, 8, 64)


def runs_of(cell: dict[str, Any]) -> int:
    return cell["seeds"] + cell["search_runs"]


def on_cpu(cell: dict[str, Any]) -> float:
    return cell["cpu"]


def grid_lines(kept: dict[str, Any], grid: Grid) -> list[str]:
    """One row per suite, and one for all suites."""
    device = h100()
    columns = (
        "suite", "cells", "counted", "estimated from another cell", "measured on a CPU", "runs and trials",
        "hours on one CPU thread", "H100 hours, floor", "H100 hours, unfused",
        "longest H100 run",
    )  # fmt: skip
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for suite in [*grid.suites, None]:
        cells = grid.suite(suite) if suite else list(grid.cells.values())
        known = [kept[cell.cell] for cell in cells if "calls" in kept.get(cell.cell, {})]
        estimated = sum("estimated" in one for one in known)
        total = [sum(runs_of(one) * of(one) for one in known) / 3600 for of in (on_cpu, device.floor, device.unfused)]
        longest = duration(max((device.unfused(one) for one in known), default=0.0))
        measured = sum("measured" in one for one in known)
        counts = (len(cells), len(known) - estimated, estimated, measured, sum(map(runs_of, known)))
        lines.append(
            f"| {suite or '**all**'} | {' | '.join(f'{n:,}' for n in counts)} | {' | '.join(map(number, total))} | "
            f"{longest} |"
        )
    return lines


def check_lines(cpu: Calibrated, kept: dict[str, Any], grid: Grid) -> list[str]:
    """Accuracy of the estimates: against recorded runs on a CPU, and of one cell against another."""
    low, middle, high = spread_of(cpu.ratios)
    here, others = cpu.device, donor_ratios(kept, grid, h100())
    less, _, more = spread_of(others)
    factor = f"{number(low)} to {number(high)} times"
    return [
        f"- **CPU.** {len(cpu.ratios)} counted cells have shipped records of whole runs. The estimate is the sum of "
        "products at",
        f"  {number(here.products / 1e9)} GFLOP/s, memory traffic at {number(here.bandwidth / 1e9)} GB/s (both "
        f"measured) and {number(1e6 * here.launch)} us per operation (fitted to these records).",
        f"  It is multiplied by {number(middle)}, the median ratio of recorded to estimated time. The ratios of the "
        f"middle 80 % are {factor}.",
        f"- **Estimated from another cell.** For {len(others)} counted cells this estimate can be checked: it is "
        f"{number(less)} to {number(more)} times the counted H100 hours (middle 80 %).",
        "- **H100.** No correction is applied. Four cells were measured ([gpu.md](gpu.md#measured-on-one-h100)).",
    ]


def spread_of(ratios: Sequence[float]) -> tuple[float, float, float]:
    """The 10th, 50th and 90th percentile."""
    ordered = sorted(ratios)
    low, middle, high = (ordered[round(share * (len(ordered) - 1))] for share in (0.1, 0.5, 0.9))
    return low, middle, high


def cost_lines(kept: dict[str, Any], count: int = 5) -> list[str]:
    device = h100()
    known = sorted(
        ((runs_of(one) * device.unfused(one), name) for name, one in kept.items() if "calls" in one), reverse=True
    )
    whole = sum(total for total, _ in known)
    lines = [
        "| cell | runs | one run on one CPU thread | one run on an H100, unfused | share of the H100 hours |",
        "|---|---|---|---|---|",
    ]
    for total, name in known[:count]:
        one = kept[name]
        share = f"{100 * total / whole:.0f} %"
        lines.append(
            f"| {name} | {runs_of(one)} | {duration(on_cpu(one))} | {duration(device.unfused(one))} | {share} |"
        )
    return lines


def absent_lines(kept: dict[str, Any], grid: Grid) -> list[str]:
    """The cells that are in no sum, with the reason."""
    why: dict[str, list[str]] = {}
    for cell in grid.cells.values():
        if "calls" not in (one := kept.get(cell.cell, {})):
            problem = one.get("problem") or why_absent(cell)
            why.setdefault(re.sub(r"^dataset '\S+': |: \[enforce.*", "", problem)[:120], []).append(cell.cell)
    return [
        f"- {len(names)} cell{'s' if names[1:] else ''} ({', '.join(names[:3])}{' ...' if names[3:] else ''}): "
        f"{problem}"
        for problem, names in why.items()
    ] or ["- none"]


def why_absent(cell: Cell) -> str:
    """Why the cost of a cell cannot be estimated from another cell."""
    if load_recipe(cell.recipe_path).protocol is not None:
        return "trains a model per pair of graphs: the cell must be counted itself, with data/packed/brec"
    return (
        "the number or size of its graphs is unknown without the dataset"
        if extent(cell) is None
        else "no similar cell was counted"
    )


def schedule_lines(kept: dict[str, Any], grid: Grid) -> list[str]:
    columns = ("workers", "jobs", "finished after", "utilization", "longest chain", "bound by")
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for name, seconds in (("H100", h100().unfused), ("CPU core", on_cpu)):
        jobs = jobs_by(seconds, kept, grid)
        for workers in WORKERS:
            found = simulate(jobs, workers)
            lines.append(
                f"| {workers} {name}{'s' if workers > 1 else ''} | {found.jobs:,} | {duration(found.makespan)} | "
                f"{100 * found.utilisation:.0f} % | {duration(found.chain)} | {found.bound} |"
            )
    return lines


def page(kept: dict[str, Any]) -> str:
    from benchmarks.scale_store import store_lines, tracking_lines

    grid = load_grid()
    whole, shipped = filled(kept["cells"], grid), shipped_runs()
    cpu = calibrated(Device(**kept["here"]), whole, shipped)
    cells = whole | priced(whole, shipped, cpu)
    parts = [
        ["## The whole grid", ""],
        grid_lines(cells, grid),
        ["", "Most expensive cells on an H100:", ""],
        cost_lines(cells),
        ["", "Not included in any sum:", ""],
        absent_lines(cells, grid),
        ["", "Accuracy of the estimates:", ""],
        check_lines(cpu, cells, grid),
        ["", "## Simulated schedules", ""],
        schedule_lines(cells, grid),
        ["", "## The run store", ""],
        store_lines(kept.get("store", [])),
        ["", "## MLflow", ""] if kept.get("tracking") else [],
        tracking_lines(kept.get("tracking", [])),
    ]
    return "\n".join(line for part in parts for line in part)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("what", nargs="?", choices=("grid", "page"))
    parser.add_argument("cells", nargs="*", metavar="CELL")
    parser.add_argument(
        "--data", type=Path, default=Path("data"), help="folder with packed/brec, which BREC cells need"
    )
    parser.add_argument("--seconds", type=float, default=3600.0, help="limit of processor time")
    parser.add_argument("--again", action="store_true", help="measure again cells that were measured before")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_intermixed_args()  # options before cells, too
    if given.what == "grid":
        measure(given.cells, given.data, given.seconds, given.again)
        kept = read()
        if "here" not in kept:
            write_json(KEPT, kept | {"here": vars(rates_here())})
    elif given.what == "page" or not given.write:
        print(page(read()))
    if given.write:
        kept = read()
        whole, shipped = filled(kept["cells"], load_grid()), shipped_runs()
        cpu = calibrated(Device(**kept["here"]), whole, shipped)
        write_json(KEPT, kept | {"cells": kept["cells"] | priced(whole, shipped, cpu)})
        write_between(PAGE, BEGIN, END, page(kept))


if __name__ == "__main__":
    from gt_bench.runtime.threads import settle_environment

    settle_environment()
    main()
