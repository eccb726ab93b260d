"""The queue of one machine: compute missing runs in parallel, the longest first, until all are done.

With a time limit, the papers' own numbers come first, then the cheapest runs, and no job starts that cannot end in time
by its forecast. A run that still runs at the end finishes its epoch and saves a checkpoint, from which the next process
resumes. Each job (job.py) is a new process, so that a queue of days never mixes old and new code.
"""

import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path

from gt_bench.config.cell_recipe import limited, settings_of
from gt_bench.config.grid import Cell, Grid
from gt_bench.config.option_text import OptionError
from gt_bench.experiment.cell import experiment_of
from gt_bench.runtime.resources import at_once, available_mib, oom_kills, resident_mib
from gt_bench.runtime.signals import killed_by
from gt_bench.runtime.worker_pool import MARGIN, Killed, TaskResult, WorkerPool
from gt_bench.scheduling.job import JobLine, as_json, run_job
from gt_bench.scheduling.order import shared_seconds
from gt_bench.scheduling.planner import SHARED, Job, Missing, Plan, cheapest_first, jobs_of, plan
from gt_bench.store.run_store import Store
from gt_bench.utils.format import duration, file_size
from gt_bench.utils.io import WriteError

SHOWN = 5  # jobs that are listed


def work(
    cells: Sequence[Cell],
    grid: Grid,
    hours: float | None = None,
    jobs: int | None = None,
    say: Callable[[str], None] = lambda line: print(line, flush=True),
    is_first: Callable[[Cell], bool] = lambda cell: False,
) -> bool:
    """Compute the missing runs of cells.

    Args:
        cells: what to compute.
        grid: the grid.
        hours: time limit; None for no limit.
        jobs: runs that are computed at once; None for the setting `run.parallel`.
        say: called for each line of output.
        is_first: whether the runs of a cell come first under a time limit.

    Returns:
        Whether all runs are stored.

    Raises:
        OptionError: `hours` or `jobs` is not positive.
        WriteError: the disk is full.
    """
    if hours is not None and not hours > 0:
        remedy = "without it the queue runs until all is done"
        raise OptionError("expected more than 0", place="--hours", value=hours, remedy=remedy)
    if jobs is not None and jobs < 1:
        raise OptionError("expected 1 or more, the number of runs at once", place="--jobs", value=jobs)
    from gt_bench.runtime.environment import choose_device

    most = at_once(jobs or grid.run.parallel, 10**6, gpu=choose_device(grid.run.device).type == "cuda")
    queue = _Queue(grid, most, say, None if hours is None else time.monotonic() + hours * 3600, is_first)
    while True:
        planned = plan(cells, grid, queue.store, at_once=most, say=say, measure=not queue.is_over)
        if not queue.round(planned):
            return queue.close(planned)


@dataclass
class _Queue:
    grid: Grid
    most: int
    say: Callable[[str], None]
    until: float | None
    is_first: Callable[[Cell], bool] = lambda cell: False
    store: Store = field(default_factory=Store)
    tried: set[tuple[object, ...]] = field(default_factory=set)  # jobs that ended or cannot run: not tried again
    alone: set[tuple[object, ...]] = field(default_factory=set)  # runs that ran out of memory next to others
    computed: int = 0
    full: str | None = None  # the message of a full disk
    progress: bool = True  # in the last round
    trials: Counter[str] = field(default_factory=Counter)  # trials of the last round, by cell
    lost: dict[str, str] = field(default_factory=dict)  # cell -> why a job of its search died in the last round
    pids: dict[Job, int] = field(default_factory=dict)
    answered: dict[Job, set[int]] = field(default_factory=dict)
    elsewhere: int = 0
    too_long: list[Job] = field(default_factory=list)  # jobs that cannot end in time

    def __post_init__(self) -> None:
        self._say_once, self.kills = cache(self.say), oom_kills()

    @property
    def is_over(self) -> bool:
        return self.full is not None or not self.progress or (self.until is not None and time.monotonic() >= self.until)

    def round(self, planned: Plan) -> bool:
        """Run the jobs of a plan; return whether there were any. The next plan includes what other processes left."""
        for problem in planned.problems:
            self._say_once(f"skipped: {problem}")
        for name, why in self.lost.items():
            if not self.trials[name]:  # otherwise another worker runs the lost trial
                self.tried.add(("search", name))
                self._say_once(f"skipped: {name} search: {why}")
        self.trials.clear()
        self.lost.clear()
        searchable = [run for run in planned.missing if run.searched or ("search", run.cell.cell) not in self.tried]
        runs = [run for run in searchable if run.run not in self.tried and not self._too_large(run)]
        self.too_long.clear()
        jobs = [job for job in self._jobs(planned, runs) if (job.kind, job.name) not in self.tried]
        jobs = [job for job in jobs if self._ends_in_time(job)]
        jobs = [job for job in jobs if job.kind != "data" or any(other.waits_for(job) for other in jobs)]
        unwritten = [job for job in planned.unwritten if self.tried.isdisjoint(job.runs)]
        if not (jobs or unwritten) or self.is_over:
            return False
        self.progress, self.elsewhere = False, 0
        if jobs:
            self._announce(planned, runs, jobs)
        # `_ready` checks memory: the forecast of a job is more precise than the largest peak so far
        with WorkerPool(partial(_launch, self.most, self.alone), self.most, fresh=True, check_memory=False) as pool:
            pool.run(
                [*jobs, *unwritten],
                self._on_message,
                is_ready=lambda job, unfinished: self._ready(job, unfinished, pool.tasks),
                on_done=self._ended,
                deadline=self.until,
                is_needed=self._ends_in_time,
            )
        return True

    def close(self, planned: Plan) -> bool:
        """Report what is missing; return whether all is done."""
        left = planned.missing
        others = f", {self.elsewhere} of them run in other processes" if left and self.elsewhere else ""
        self.say(f"{self.computed} runs computed; {len(left)} of {len(left) + planned.stored} are missing{others}")
        if self.full is not None:
            raise WriteError(f"{self.full}\n{self._needs(left)}")
        if left and self.until is not None and time.monotonic() >= self.until:
            self.say("the time limit is reached; run the same command again to resume")
        elif self.too_long:
            self.say(
                f"{len(self.too_long)} jobs are not started: by forecast they would not end in time; the shortest "
                f"takes {duration(min(job.seconds or 0.0 for job in self.too_long))}"
            )
        return not left and not planned.problems

    def _jobs(self, planned: Plan, runs: Sequence[Missing]) -> list[Job]:
        apart = [run for run in runs if run.run in self.alone]
        together = [run for run in runs if run.run not in self.alone]
        shared = shared_seconds(sum(run.seconds or 0.0 for run in together), self.most, SHARED)
        if self.until is not None:
            together, shared = cheapest_first(together, self.is_first), min(shared, (self.until - time.monotonic()) / 4)
        return [*jobs_of(planned, together, shared), *(job for run in apart for job in jobs_of(planned, [run]))]

    def _ends_in_time(self, job: Job) -> bool:
        """Return whether a job, and what it waits for, can end before the time limit by its forecast."""
        if self.until is None or job in self.too_long:
            return job not in self.too_long
        waits = any(job.waits_for(other) for other in self.too_long)
        if waits or (job.seconds or 0.0) > self.until - time.monotonic():
            self.too_long.append(job)
            return False
        return True

    def _too_large(self, run: Missing) -> bool:
        from gt_bench.runtime.environment import choose_device, memory_limit_mib

        device = choose_device(self.grid.run.device)
        # on a GPU each process of a run has a device of its own
        need, limit = run.memory_mib if device.type == "cpu" else run.cost.memory_mib, memory_limit_mib(device)
        if need is None or need <= limit:
            return False
        self._say_once(
            f"skipped: {run.cell.cell}: a run needs {need:,.0f} MiB by forecast, and this machine has {limit:,.0f} MiB"
        )
        return True

    def _ready(self, job: Job, unfinished: Sequence[Job], running: Sequence[Job]) -> bool:
        if any(job.waits_for(other) for other in unfinished):
            return False
        if not running:
            return True
        if self._is_alone(job) or any(self._is_alone(other) for other in running):
            return False
        if sum(other.threads for other in running) + job.threads > self.most:
            return False
        to_come = sum(
            max(0.0, MARGIN * (other.memory_mib or 0.0) - resident_mib(self.pids.get(other, 0))) for other in running
        )
        return available_mib() - to_come >= MARGIN * (job.memory_mib or 0.0)

    def _is_alone(self, job: Job) -> bool:
        return not self.alone.isdisjoint(job.runs)

    def _on_message(self, job: Job, line: JobLine) -> None:
        if "pid" in line:
            self.pids[job] = line["pid"]
        elif "say" in line:
            self.say(line["say"])
        else:
            self._outcome(job, line["seed"], line["outcome"], line.get("why"), line.get("trials", 0))

    def _outcome(self, job: Job, seed: int | None, outcome: str, why: str | None, trials: int = 0) -> None:
        self.answered.setdefault(job, set()).add(-1 if seed is None else seed)
        name: tuple[object, ...] = (job.name, seed) if job.kind == "runs" else (job.kind, job.name)
        what = f"{job.name} seed {seed}" if seed is not None else str(job)
        if job.kind == "search" and outcome == "ok":
            self.progress = True
            self.trials[job.name] += trials
            self.say(f"{what}: {why}")
            return
        if outcome in ("full", "stored", "elsewhere", "unsearched"):
            self.elsewhere += outcome == "elsewhere"
            return
        if outcome == "oom" and self.most > 1 and name not in self.alone:
            self.alone.add(name)
            self.progress = True
            self.say(f"{what}: out of memory next to other runs; it will run alone")
            return
        if outcome in ("failed", "no data"):
            self.tried.add(name)
            self._say_once(f"skipped: {what}: {why}")
            return
        self.progress = True
        self.tried.add(name)
        self.computed += job.kind == "runs"
        self.say(f"{what}: {outcome}{f', {why}' if why else ''}")

    def _ended(self, job: Job, result: TaskResult) -> None:
        self.pids.pop(job, None)
        if isinstance(result.error, WriteError):
            self.full = str(result.error)
        missed = set(job.seeds or [-1]) - self.answered.pop(job, set())
        if missed and self.full is None:
            if result.error:
                why = str(result.error)
            else:
                why = f"its process ended with status {result.value}" if result.ok else result.died
            if job.kind == "search":
                self.lost[job.name] = why
                self.progress = True
                self.say(f"{job}: {why}; its trial is queued again")
                return
            if result.killed and job.kind == "runs" and not self._is_alone(job):
                self.alone.update((job.name, seed) for seed in missed)
                self.progress = True
                self.say(f"{job}: {why}; it will run alone")
                return
            if result.killed and self._is_alone(job) and oom_kills() > self.kills:
                self._store_killed(job, why)
                return
            self.tried.update((job.name, seed) if job.kind == "runs" else (job.kind, job.name) for seed in missed)
            self._say_once(f"skipped: {job}: {why}")

    def _store_killed(self, job: Job, why: str) -> None:
        """Store the runs of a job that the kernel killed although it ran alone: their status is "oom"."""
        cell = self.grid.find(job.name)
        recipe = limited(settings_of(cell), self.grid, cell)[0]
        experiment = experiment_of(cell, recipe, self.grid, self.store, Path("data"))
        for seed in job.seeds:
            experiment.store_killed(seed, why)
            self._outcome(job, seed, "oom", why)

    def _announce(self, planned: Plan, runs: Sequence[Missing], jobs: Sequence[Job]) -> None:
        known = [run.seconds for run in runs if run.seconds is not None]
        unknown = f" ({len(runs) - len(known)} without a forecast)" if len(known) < len(runs) else ""
        self.say(
            f"{len(runs)} runs of {len({run.cell for run in runs})} cells are missing, {planned.stored} are stored; "
            f"{duration(sum(known))} in one process{unknown}, {self.most} at once"
        )
        for job in jobs[:SHOWN]:
            self.say(f"  {job}{'' if job.seconds is None else f': {duration(job.seconds)}'}")
        if jobs[SHOWN:]:
            self.say(f"  and {len(jobs) - SHOWN} more jobs")

    def _needs(self, left: Sequence[Missing]) -> str:
        records = sum(run.cost.record_bytes for run in left)
        checkpoints = self.most * max((run.cost.checkpoint_bytes for run in left), default=0)
        free = shutil.disk_usage(self.store.root).free
        return (
            f"the missing runs need about {file_size(records + checkpoints)} in {self.store.root}/ "
            f"({file_size(records)} for records, {file_size(checkpoints)} for checkpoints); {file_size(free)} are free"
        )


def _launch(most: int, alone: set[tuple[object, ...]], job: Job, tell: Callable[..., None]) -> int:
    """Run a job of the pool in a new process and pass its lines on; runs in `alone` do not share the memory."""
    processes = 1 if not alone.isdisjoint(job.runs) else most
    status = run_job(as_json(job, processes > 1, processes), tell, lambda process: tell({"pid": process.pid}))
    if status == -signal.SIGKILL:
        raise Killed(killed_by(signal.SIGKILL))
    return status
