"""The grid's jobs spread over workers, simulated (see benchmarks/scale.py)."""

import heapq
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from gt_bench.config.grid import Cell, Grid
from gt_bench.forecasting.cache import ForecastCost
from gt_bench.scheduling.planner import Job, jobs_of, plan
from gt_bench.scheduling.slurm_sweep import SHARED

START = 20.0  # assumed: seconds of a job before its first step (a process, imports, data, compiled kernels)


@dataclass(frozen=True)
class Schedule:
    """A schedule. `makespan` of the workers, in seconds; `busy`: seconds of all of them.

    `chain`: the longest sequence of jobs that wait for each other, with its seconds.
    """

    workers: int
    jobs: int
    makespan: float
    busy: float
    chain: float

    @property
    def utilisation(self) -> float:
        return self.busy / (self.workers * self.makespan)

    @property
    def bound(self) -> str:
        if self.chain >= 0.9 * self.makespan:
            return "its longest chain"
        return "work" if self.utilisation >= 0.9 else "the last jobs"


def jobs_by(seconds: Callable[[dict[str, Any]], float], kept: dict[str, Any], grid: Grid) -> list[Job]:
    """The whole grid as jobs of a sweep, in the planner's order, nothing of it being done yet.

    Data and encodings are made beforehand.
    """

    def cost(cell: Cell, *_: Any) -> ForecastCost:
        run = kept.get(cell.cell, {"problem": "not measured"})
        if "calls" not in run:
            return ForecastCost(problem=run["problem"])
        return ForecastCost(seconds(run), None, search_seconds=run["search_runs"] * seconds(run))

    with tempfile.TemporaryDirectory() as empty, mock.patch("gt_bench.forecasting.cache._measured", cost):
        from gt_bench.store.run_store import Store

        found = plan(grid.cells.values(), grid, Store(Path(empty, "store")), Path(empty, "data"))
    return [job for job in jobs_of(found, shared=SHARED) if job.kind != "data" and job.seconds is not None]


def simulate(jobs: Sequence[Job], workers: int) -> Schedule:
    """Each worker takes the first job in order that waits for nothing unfinished; nothing fails."""
    of: dict[tuple[str, str], list[int]] = {}
    for index, job in enumerate(jobs):
        of.setdefault((job.kind, job.name), []).append(index)
    before = [_before(job, jobs, of) for job in jobs]
    after: list[list[int]] = [[] for _ in jobs]
    for index, others in enumerate(before):
        for other in others:
            after[other].append(index)
    open_, took = [len(others) for others in before], [START + job.seconds for job in jobs]
    ready = [index for index, count in enumerate(open_) if count == 0]
    running: list[tuple[float, int]] = []
    chain = [0.0] * len(jobs)  # seconds of the longest sequence that ends with the job
    now = 0.0
    while ready or running:
        while ready and len(running) < workers:
            index = heapq.heappop(ready)
            chain[index] = took[index] + max((chain[other] for other in before[index]), default=0.0)
            heapq.heappush(running, (now + took[index], index))
        now, last = heapq.heappop(running)
        for index in after[last]:
            open_[index] -= 1
            if open_[index] == 0:
                heapq.heappush(ready, index)
    return Schedule(workers, len(jobs), now, sum(took), max(chain))


def _before(job: Job, jobs: Sequence[Job], of: dict[tuple[str, str], list[int]]) -> list[int]:
    near = [
        other
        for name in {job.name, job.after or job.name}
        for kind in ("search", "runs")
        for other in of.get((kind, name), ())
    ]
    return [other for other in near if job.waits_for(jobs[other])]
