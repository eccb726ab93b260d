"""Resources of Slurm jobs: by forecast, or from `resources:` of params.yaml, and how many jobs of an array run at once.

Resources are rounded up, so that many jobs fit into one array.
"""

import math
from dataclasses import dataclass, replace

from gt_bench.config.grid import Cell, Grid
from gt_bench.config.schema import RecipeError
from gt_bench.scheduling.planner import Job

SPARE_MIB, SPARE = 512.0, 1.25  # beyond the forecast: the interpreter, and later epochs
SIGNAL_SECONDS = 90  # before the time limit: time to save a checkpoint and to queue the job again
LEAST_MINUTES = 5
STEPS_HOURS = (0.25, 1.0, 4.0, 12.0, 24.0)  # a longer job is queued again after the last


@dataclass(frozen=True)
class Need:
    """Resources of one job, all its processes together. `slurm` has further options of sbatch."""

    memory_gib: float
    hours: float
    threads: int = 1
    gpus: int = 0
    slurm: tuple[tuple[str, str | int], ...] = ()

    def __str__(self) -> str:
        cores = f"{self.threads} core{'s' if self.threads > 1 else ''}"
        gpus = f", {self.gpus} GPU{'s' if self.gpus > 1 else ''}" if self.gpus else ""
        more = "".join(f", {key} {value}" for key, value in self.slurm)
        return f"{self.memory_gib:g} GiB, {self.hours:g} h, {cores}{gpus}{more}"


def need_of(job: Job, cell: Cell, grid: Grid) -> Need:
    """Return the resources of a job of `cell`; it gets GPUs only if params.yaml requests them.

    Raises:
        RecipeError: there is neither a forecast nor an entry in params.yaml, or it has fewer GPUs than a run has
            processes.
    """
    given = grid.resources_of(cell)
    memory, hours = given.memory_gib, given.hours
    if memory is None and job.memory_mib is not None:
        memory = 2.0 ** math.ceil(math.log2(max(1.0, (SPARE * job.memory_mib + SPARE_MIB) / 1024)))
    if hours is None and job.seconds is not None:
        hours = next((step for step in STEPS_HOURS if step * 3600 >= 1.5 * job.seconds), STEPS_HOURS[-1])
    if memory is None or hours is None:
        missing = [key for key, value in (("memory_gib", memory), ("hours", hours)) if value is None]
        problem = f" ({job.problem})" if job.problem else ""
        wanted = f"resources: {{{cell.cell}: {{{': ..., '.join(missing)}: ...}}}}"
        remedy = f"give the resources of a run in params.yaml: {wanted}"
        raise RecipeError(f"there is no forecast{problem}", place=cell.cell, value=missing, remedy=remedy)
    gpus = given.gpus or 0
    if 0 < gpus < job.processes:
        problem = f"a run has {job.processes} processes, each with a GPU, but resources.gpus of params.yaml is {gpus}"
        raise RecipeError(problem, place=cell.cell, value=gpus)
    return Need(memory, hours, job.threads, gpus, tuple(sorted(given.slurm.items())))


def minutes_of(need: Need) -> tuple[int, int]:
    """Return (time limit of a job in minutes, seconds before it at which Slurm warns the job).

    The warning comes in the last quarter, and Slurm sends it up to a minute early. In a shorter job it would arrive
    before the process handles it, and would end the job.
    """
    minutes = max(LEAST_MINUTES, math.ceil(need.hours * 60))
    return minutes, min(SIGNAL_SECONDS, minutes * 60 // 4)


def shares(groups: dict[Need, list[Job]], most: int) -> list[tuple[Need, list[Job], int]]:
    """Distribute the jobs that may run at once over arrays.

    If there are more groups than `most`, the smallest are merged with the larger need of two; groups that cannot be
    merged wait.

    Args:
        groups: need -> jobs.
        most: jobs that run at once, in all.

    Returns:
        (need, jobs, how many of them run at once) of each array.
    """
    left = dict(sorted(groups.items(), key=lambda item: (item[0].hours, item[0].memory_gib)))
    while len(left) > max(1, most):
        needs = list(left)
        alike = next(((a, b) for a, b in zip(needs, needs[1:]) if (a.gpus, a.slurm) == (b.gpus, b.slurm)), None)
        if alike is None:
            break
        a, b = alike
        jobs = [*left.pop(a), *left.pop(b)]
        larger = replace(
            a,
            memory_gib=max(a.memory_gib, b.memory_gib),
            hours=max(a.hours, b.hours),
            threads=max(a.threads, b.threads),
        )
        left[larger] = [*left.get(larger, []), *jobs]
    chosen = list(left.items())[: max(0, most)]
    share = [1] * len(chosen)
    for _ in range(most - len(chosen)):
        # the next one is for the array with most jobs per running job
        index = max(range(len(chosen)), key=lambda i: len(chosen[i][1]) / share[i], default=None)
        if index is None:
            break
        share[index] += 1
    return [(need, jobs, min(n, len(jobs))) for (need, jobs), n in zip(chosen, share)]
