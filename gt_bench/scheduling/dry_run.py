"""What a sweep would submit, as a table; nothing is submitted or prepared."""

import sys
from collections.abc import Callable, Sequence

from gt_bench.config.grid import Grid
from gt_bench.config.schema import RecipeError
from gt_bench.scheduling.plan_file import Entry
from gt_bench.scheduling.planner import Job, jobs_of, plan
from gt_bench.scheduling.slurm_resources import need_of
from gt_bench.scheduling.slurm_sweep import SHARED
from gt_bench.utils.format import hours as hours_text


def dry_run(entries: Sequence[Entry], grid: Grid, say: Callable[[str], None]) -> list[list[str]]:
    """What a sweep would submit: need, jobs, runs and trials, hours of one process, cells; nothing is submitted or prepared."""
    found = plan(entries, grid, say=say)
    groups: dict[str, list[Job]] = {}
    for job in jobs_of(found, shared=SHARED):
        try:
            need = "here, beforehand" if job.kind == "data" else str(need_of(job, grid.find(job.name), grid))
        except RecipeError as error:
            need = str(error)
        groups.setdefault(need, []).append(job)
    for problem in found.problems:
        say(f"left out: {problem}")
    rows = []
    for need, jobs in groups.items():
        names = list(dict.fromkeys(job.name for job in jobs))
        total = hours_text(sum(job.seconds or 0.0 for job in jobs))
        runs = str(sum(len(job.seeds) + job.trials for job in jobs))
        rows.append(
            [
                need,
                str(len(jobs)),
                runs,
                total,
                ", ".join(names[:3]) + (f" and {len(names) - 3} more" if names[3:] else ""),
            ]
        )
    return rows


def show_dry_run(entries: Sequence[Entry], grid: Grid) -> None:
    """`dry_run` as a table on the terminal."""
    from gt_bench.leaderboard.terminal import print_table

    needs = dry_run(entries, grid, lambda line: print(line, file=sys.stderr))
    print_table(("need of a job", "jobs", "runs, trials", "in all", "cells"), needs, wrapped=("need of a job", "cells"))
