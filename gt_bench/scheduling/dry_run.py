"""`gt-bench sweep --dry-run`: what a sweep would submit."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace

from gt_bench.config.grid import Cell, Grid
from gt_bench.config.schema import RecipeError
from gt_bench.forecasting.counted import counted_costs
from gt_bench.scheduling.planner import Job, jobs_of, longest_first, plan
from gt_bench.scheduling.slurm_resources import need_of
from gt_bench.scheduling.slurm_sweep import SHARED
from gt_bench.utils.format import duration


def dry_run(cells: Sequence[Cell], grid: Grid, say: Callable[[str], None], measure: bool = False) -> list[list[str]]:
    """Return what a sweep would submit, without submitting or preparing anything.

    Args:
        cells: what to compute.
        grid: the grid.
        say: called for each line of output.
        measure: time steps of cells without a forecast, which takes seconds per cell; otherwise their time is counted
            (docs/scale.json) and their memory is unknown.

    Returns:
        Rows of need, jobs, runs and trials, time of one process, cells.
    """
    planned = plan(cells, grid, say=say, measure=measure)
    if not measure:
        counted = counted_costs(grid)
        missing = [
            run if run.cost.seconds is not None else replace(run, cost=counted.get(run.cell.cell, run.cost))
            for run in planned.missing
        ]
        planned = replace(planned, missing=longest_first(missing))
    groups: dict[str, list[Job]] = {}
    for job in jobs_of(planned, shared=SHARED):
        cell = None if job.kind == "data" else grid.find(job.name)
        try:
            need = "here, beforehand" if cell is None else str(need_of(job, cell, grid))
        except RecipeError as error:
            need = str(error) if measure else "no forecast: --measure, or resources in params.yaml"
        groups.setdefault(need, []).append(job)
    for problem in planned.problems:
        say(f"skipped: {problem}")
    rows = []
    for need, jobs in groups.items():
        names = list(dict.fromkeys(job.name for job in jobs))
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if names[3:] else "")
        runs = sum(len(job.seeds) + job.trials for job in jobs)
        seconds = [job.seconds for job in jobs if job.seconds is not None]
        total = duration(sum(seconds)) if seconds else "?"
        rows.append([need, str(len(jobs)), str(runs), total, shown])
    return rows


def show_dry_run(cells: Sequence[Cell], grid: Grid, measure: bool = False) -> None:
    """Print `dry_run` as a table, and how its times were obtained."""
    from gt_bench.utils.terminal import print_table

    rows = dry_run(cells, grid, lambda line: print(line, file=sys.stderr), measure)
    columns = ("resources of a job", "jobs", "runs, trials", "total time", "cells")
    print_table(columns, rows, wrapped=("resources of a job", "cells"))
    if not measure:
        print(
            "Times without a stored forecast are counted (docs/scale.md), for one CPU thread or, with resources.gpus "
            "in params.yaml, an H100.\n"
            "Memory is unknown until a forecast: --measure times a few steps of each cell here."
        )
