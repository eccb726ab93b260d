"""Estimated cost of the whole grid on a CPU and on a GPU that is not available, and how it spreads over several of them.

    python benchmarks/scale.py grid [CELL ...] [--seconds S]      # counts cells that docs/scale.json lacks
    python benchmarks/scale.py page                               # prints what they come to; the sweep is simulated over 1, 8 and 64
    python benchmarks/scale.py --write                            # docs/scale.md, from docs/scale.json

What a run computes and moves is counted as `gt-bench forecast` counts its seconds (gt_bench/forecasting/estimate.py): a step and an evaluated batch of each phase
are taken by the definitions in plain torch, on a few random graphs of the dataset's size, with every operation counted (benchmarks/counts.py); the forecast's
own arithmetic makes a whole run of them. The rates of a device turn counts into hours. A CPU's rates are corrected by what shipped records took.

What is measured of store and tracking is in benchmarks/scale_store.py, and goes into the same file.

Prints: what counts of every cell come to on each device; `grid` says each cell that it counts.
Takes: seconds for `page`; at most --seconds of processor time for `grid`, which goes on where it was.
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
from benchmarks.scale_devices import Calibrated, Device, calibrated, donor_ratios, h100, rates_here
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


def grid_lines(kept: dict[str, Any], grid: Grid, cpu: Calibrated) -> list[str]:
    """A line per suite, and all of them."""
    device = h100()
    columns = (
        "suite", "cells", "counted", "by another", "runs and trials", "hours of one CPU thread", "H100 hours, floor", "H100 hours, unfused",
        "longest run there",
    )  # fmt: skip
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for suite in [*grid.suites, None]:
        cells = grid.suite(suite) if suite else list(grid.cells.values())
        known = [kept[cell.cell] for cell in cells if "calls" in kept.get(cell.cell, {})]
        estimated = sum("estimated" in one for one in known)
        total = [
            sum(runs_of(one) * of(one) for one in known) / 3600 for of in (cpu.seconds, device.floor, device.unfused)
        ]
        longest = duration(max((device.unfused(one) for one in known), default=0.0))
        counts = (len(cells), len(known) - estimated, estimated, sum(map(runs_of, known)))
        lines.append(
            f"| {suite or '**all**'} | {' | '.join(f'{n:,}' for n in counts)} | {' | '.join(map(number, total))} | {longest} |"
        )
    return lines


def check_lines(cpu: Calibrated, kept: dict[str, Any], grid: Grid) -> list[str]:
    """How far counts are from seconds where both are known, of runs on a CPU; and how far one cell's are from another's."""
    low, middle, high = spread_of(cpu.ratios)
    here, others = cpu.device, donor_ratios(kept, grid, h100())
    less, _, more = spread_of(others)
    factor = f"{number(low)} to {number(high)} times"
    return [
        f"- **CPU.** {len(cpu.ratios)} counted cells have shipped records of whole runs. Products at {number(here.products / 1e9)} GFLOP/s, traffic at {number(here.bandwidth / 1e9)} GB/s (both measured)",
        f"  and {number(1e6 * here.launch)} us an operation (chosen so that these records spread least), one after the other, give their seconds up to a factor: {number(middle)} for the middle",
        f"  cell, by which all CPU hours are multiplied, and {factor} for four cells of five. Records count by the clock, often beside other work.",
        f"- **One cell by another.** {len(others)} counted cells have another of their model: by that one they would have had {number(less)} to {number(more)} times their H100 hours, four of five.",
        f"- **H100.** Nobody has held its counts against a clock, and no factor is in its hours. Were they off as the CPU's are, a cell would take {factor} its unfused hours.",
    ]


def spread_of(ratios: Sequence[float]) -> tuple[float, float, float]:
    """(the lowest but a tenth, the middle, the highest but a tenth)."""
    ordered = sorted(ratios)
    low, middle, high = (ordered[round(share * (len(ordered) - 1))] for share in (0.1, 0.5, 0.9))
    return low, middle, high


def cost_lines(kept: dict[str, Any], cpu: Calibrated, count: int = 10) -> list[str]:
    device = h100()
    known = sorted(
        ((runs_of(one) * device.unfused(one), name) for name, one in kept.items() if "calls" in one), reverse=True
    )
    whole = sum(total for total, _ in known)
    lines = [
        "| cell | runs | a run on one CPU thread | a run on an H100, unfused | of the grid's H100 hours |",
        "|---|---|---|---|---|",
    ]
    for total, name in known[:count]:
        one = kept[name]
        share = f"{100 * total / whole:.0f} %"
        lines.append(
            f"| {name} | {runs_of(one)} | {duration(cpu.seconds(one))} | {duration(device.unfused(one))} | {share} |"
        )
    return lines


def absent_lines(kept: dict[str, Any], grid: Grid) -> list[str]:
    """What is in no sum, and why."""
    why: dict[str, list[str]] = {}
    for cell in grid.cells.values():
        if "calls" not in (one := kept.get(cell.cell, {})):
            problem = one.get("problem") or why_absent(cell)
            why.setdefault(re.sub(r"^dataset '\S+': |: \[enforce.*", "", problem)[:120], []).append(cell.cell)
    return [
        f"- {len(names)} cells ({', '.join(names[:3])}{' ...' if names[3:] else ''}): {problem}"
        for problem, names in why.items()
    ] or ["- none"]


def why_absent(cell: Cell) -> str:
    """Why no other cell could count for it."""
    if load_recipe(cell.recipe_path).protocol is not None:
        return "a model is trained for each pair of graphs, which only a count of the cell itself tells, with data/packed/brec"
    return (
        "how many graphs it has, or how large, is known with its data alone"
        if extent(cell) is None
        else "nothing like it was counted"
    )


def schedule_lines(kept: dict[str, Any], grid: Grid, cpu: Calibrated) -> list[str]:
    columns = ("workers", "jobs", "done after", "utilisation", "longest chain", "bound by", "ends with")
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for name, seconds in (("H100", h100().unfused), ("CPU core", cpu.seconds)):
        jobs = jobs_by(seconds, kept, grid)
        for workers in WORKERS:
            found = simulate(jobs, workers)
            lines.append(
                f"| {workers} {name}{'s' if workers > 1 else ''} | {found.jobs:,} | {duration(found.makespan)} | {100 * found.utilisation:.0f} % | "
                f"{duration(found.chain)} | {found.bound} | {found.longest} |"
            )
    return lines


def page(kept: dict[str, Any]) -> str:
    from benchmarks.scale_store import store_lines, tracking_lines

    grid = load_grid()
    cells = filled(kept["cells"], grid)
    cpu = calibrated(Device(**kept["here"]), cells)
    parts = [
        ["## The whole grid", ""],
        grid_lines(cells, grid, cpu),
        ["", "What costs most there:", ""],
        cost_lines(cells, cpu),
        ["", "In no sum:", ""],
        absent_lines(cells, grid),
        ["", "How far counts are from seconds:", ""],
        check_lines(cpu, cells, grid),
        ["", "## A schedule", ""],
        schedule_lines(cells, grid, cpu),
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
        "--data", type=Path, default=Path("data"), help="with packed/brec, without which its cells have no count"
    )
    parser.add_argument("--seconds", type=float, default=3600.0, help="of the processor that it may take")
    parser.add_argument("--again", action="store_true", help="measure cells anew that are kept")
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
        device, whole = h100(), filled(kept["cells"], load_grid())
        cpu = calibrated(Device(**kept["here"]), whole)
        priced = {
            name: one | {"h100": {"floor": device.floor(one), "unfused": device.unfused(one)}, "cpu": cpu.seconds(one)}
            for name, one in whole.items()
            if "calls" in one
        }
        write_json(KEPT, kept | {"cells": kept["cells"] | priced})
        write_between(PAGE, BEGIN, END, page(kept))


if __name__ == "__main__":
    from gt_bench.runtime.threads import settle_environment

    settle_environment()
    main()
