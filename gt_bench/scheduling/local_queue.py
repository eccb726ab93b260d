"""The queue of one machine: runs of the highest value first, side by side, until all are done or the hours are over.

Each job (see job.py) is a process of its own, so that code which changes under a queue of days is never half loaded. At the end of the hours
runs end their epoch and keep a checkpoint; whoever comes next continues from it.
"""

import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gt_bench.config.grid import Cell, Grid, Limits
from gt_bench.config.schema import RecipeError
from gt_bench.runtime.resources import at_once, available_mib, resident_mib
from gt_bench.runtime.worker_pool import Crew, Ending
from gt_bench.scheduling.job import as_json
from gt_bench.scheduling.plan_file import Entry, limited_grid
from gt_bench.scheduling.planner import Job, Missing, Plan, jobs_of, plan
from gt_bench.scheduling.run_lock import check_locks
from gt_bench.scheduling.subprocess_job import Line, run_job
from gt_bench.scheduling.verdict_changes import news
from gt_bench.store.run_store import Store
from gt_bench.utils.code_digest import ROOT
from gt_bench.utils.errors import UserError
from gt_bench.utils.format import bytes_text
from gt_bench.utils.format import hours as hours_text
from gt_bench.utils.io import WriteError
from gt_bench.utils.paths import SUITES

MARGIN = 1.1  # of memory: a forecast is of a few steps
SHOWN = 5  # of the next jobs


def work(
    entries: Sequence[Entry],
    grid: Grid,
    hours: float | None = None,
    jobs: int | None = None,
    export: Path = SUITES,
    say: Callable[[str], None] = lambda line: print(line, flush=True),
) -> bool:
    """Computes what is missing of the entries; returns whether all of it is done. `export`: folder for the records of finished cells; into
    suites/ only runs of code that is in a commit. Raises RecipeError for no hours or jobs, WriteError where the disk is full,
    StoreError where the store's file system has no locks."""
    if hours is not None and not hours > 0:
        raise RecipeError(
            f"--hours {hours:g}: give how long to work, more than 0; without it the queue works until all is done"
        )
    if jobs is not None and jobs < 1:
        raise RecipeError(f"--jobs {jobs}: give how many runs at once, 1 or more")
    most = at_once(jobs or grid.run.parallel, 10**6, gpu=_has_gpu(grid))
    check_locks(Path("store"))
    queue = _Queue(grid, most, export, say, until=None if hours is None else time.monotonic() + hours * 3600)
    while True:
        found = plan(entries, grid, queue.store, at_once=most, say=say, measure=not queue.is_over)
        if not queue.round(found):
            return queue.close(found)


def _has_gpu(grid: Grid) -> bool:
    from gt_bench.runtime.environment import choose_device

    return choose_device(grid.run.device).type == "cuda"


def _name(run: Missing) -> tuple[str, Limits, int]:
    return run.cell.cell, run.limits, run.seed


@dataclass
class _Queue:
    grid: Grid
    most: int
    export: Path
    say: Callable[[str], None]
    until: float | None
    store: Store = field(default_factory=Store)
    tried: set[tuple[object, ...]] = field(default_factory=set)  # what was done or cannot be: once is enough
    alone: set[tuple[object, ...]] = field(default_factory=set)  # runs that ran out of memory beside others
    computed: int = 0
    told: set[str] = field(default_factory=set)
    full: str | None = None  # what a full disk said
    progress: bool = True  # in the last round
    trials: Counter[str] = field(default_factory=Counter)  # that were run in the last round, by cell
    lost: dict[str, str] = field(default_factory=dict)  # cell -> what a job of its search died of in the last round
    pids: dict[Job, int] = field(default_factory=dict)
    answered: dict[Job, set[int]] = field(default_factory=dict)
    elsewhere: int = 0
    keys: dict[tuple[object, ...], str | None] = field(default_factory=dict)  # under which runs are missing
    disagrees: bool = False

    @property
    def is_over(self) -> bool:
        return self.full is not None or not self.progress or (self.until is not None and time.monotonic() >= self.until)

    def round(self, found: Plan) -> bool:
        """Does what the plan has; returns whether there was something to do. What others computed meanwhile, or left, is another plan's."""
        for problem in found.problems:
            self._say_once(f"left out: {problem}")
        self._say_news({cell: limits for cell, limits in found.begun.items() if self.computed == 0})
        for name, why in self.lost.items():
            if not self.trials[name]:  # else another worker takes the trial that was lost
                self.tried.add(("search", name))
                self._say_once(f"left out: {name} search: {why}")
        self.trials.clear()
        self.lost.clear()
        self.keys = {_name(run): run.digest for run in found.missing}
        searchable = [run for run in found.missing if run.searched or ("search", run.cell.cell) not in self.tried]
        runs = [run for run in searchable if _name(run) not in self.tried and not self._too_large(run)]
        jobs = [job for job in self._jobs(found, runs) if (job.kind, job.name) not in self.tried]
        if not jobs or self.is_over:
            return False
        self.progress, self.elsewhere = False, 0
        self._announce(found, runs, jobs)
        # each job says how much memory it takes, better than the largest so far does
        with Crew(_launch(self.most > 1, self.alone), self.most, fresh=True, memory=False) as crew:
            crew.run(
                jobs,
                self._heard,
                ready=lambda job, unfinished: self._ready(job, unfinished, crew.tasks),
                ended=self._ended,
                until=self.until,
            )
        return True

    def close(self, found: Plan) -> bool:
        """Says what is left; returns whether nothing is. Raises WriteError where the disk is full."""
        left = found.missing
        others = f", {self.elsewhere} of them are with other processes" if self.elsewhere else ""
        self.say(f"{self.computed} runs computed; {len(left)} of {len(left) + found.stored} are missing{others}")
        if self.full is not None:
            raise WriteError(f"{self.full}\n{self._needs(left)}")
        if left and self.until is not None and time.monotonic() >= self.until:
            self.say("the hours are over; the same command continues where it was")
        return not left and not found.problems and not self.disagrees

    def _jobs(self, found: Plan, runs: Sequence[Missing]) -> list[Job]:
        apart = [run for run in runs if _name(run) in self.alone]
        together = [run for run in runs if _name(run) not in self.alone]
        return [*jobs_of(found, together), *(job for run in apart for job in jobs_of(found, [run]))]

    def _too_large(self, run: Missing) -> bool:
        from gt_bench.runtime.environment import choose_device, memory_limit_mib

        device = choose_device(self.grid.run.device)
        # a GPU is one process's own
        need, limit = run.memory_mib if device.type == "cpu" else run.cost.memory_mib, memory_limit_mib(device)
        if need is None or need <= limit:
            return False
        self._say_once(
            f"left out: {run.cell.cell}: a run takes {need:,.0f} MiB by forecast, and there are {limit:,.0f} here"
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
        return any((job.name, job.limits, seed) in self.alone for seed in job.seeds)

    def _heard(self, job: Job, line: Line) -> None:
        if "pid" in line:
            self.pids[job] = line["pid"]
        elif "say" in line:
            self.say(line["say"])
        elif "whole" in line:
            self._export(self.grid.find(job.name))
        else:
            self._check_key(job, line)
            self._outcome(job, line["seed"], line["outcome"], line.get("why"), line.get("trials", 0))

    def _check_key(self, job: Job, line: Line) -> None:
        """Reports a run that its process knows by another key than this one: it would be computed, and be missing all the same."""
        wanted, key = self.keys.get((job.name, job.limits, line["seed"])), line.get("key")
        if wanted is None or key is None or key == wanted:
            return
        self.disagrees = True
        why = f"its process ran the code in {line['root']}, and the queue that in {ROOT}" if line["root"] != str(ROOT) else (
            "code, data, encodings or files of the model were changed meanwhile, or golden values could not be compared the same way"
        )  # fmt: skip
        self._say_once(
            f"error: {job.name} seed {line['seed']}: computed under the key {key[:16]}, and missing under {wanted[:16]}: {why}; run the same command again"
        )

    def _outcome(self, job: Job, seed: int | None, outcome: str, why: str | None, trials: int = 0) -> None:
        self.answered.setdefault(job, set()).add(-1 if seed is None else seed)
        name: tuple[object, ...] = (job.name, job.limits, seed) if job.kind == "runs" else (job.kind, job.name)
        what = f"{job.name} seed {seed}" if seed is not None else str(job)
        if job.kind == "search" and outcome == "ok":
            self.progress = True
            self.trials[job.name] += trials
            self.say(f"{what}: {why}")
            return
        if outcome in ("full", "stored", "elsewhere", "changed", "unsearched"):
            self.progress |= outcome == "changed"
            self.elsewhere += outcome == "elsewhere"
            return
        if outcome == "oom" and self.most > 1 and name not in self.alone:
            self.alone.add(name)
            self.progress = True
            self.say(f"{what}: out of memory beside others; it runs alone later")
            return
        if outcome in ("failed", "no data"):
            self.tried.add(name)
            self._say_once(f"left out: {what}: {why}")
            return
        self.progress = True
        self.tried.add(name)
        self.computed += job.kind == "runs"
        self.say(f"{what}: {outcome}{f', {why}' if why else ''}")

    def _ended(self, job: Job, ending: Ending) -> None:
        self.pids.pop(job, None)
        if isinstance(ending.error, WriteError):
            self.full = str(ending.error)
        if job.kind == "runs":
            self._say_news({self.grid.find(job.name): job.limits})
        missed = set(job.seeds or [-1]) - self.answered.pop(job, set())
        status = ending.value if ending.ok else None
        if missed and self.full is None:
            why = (
                str(ending.error)
                if ending.error
                else (f"its process ended with status {status}" if ending.ok else ending.died)
            )
            if job.kind == "search":
                self.lost[job.name] = why
                self.progress = True
                self.say(f"{job}: {why}; its trial is queued again")
                return
            if ending.killed and self.most > 1 and job.kind == "runs" and not self._is_alone(job):
                self.alone.update((job.name, job.limits, seed) for seed in missed)
                self.progress = True
                self.say(f"{job}: {why}; it runs alone later")
                return
            self.tried.update(
                (job.name, job.limits, seed) if job.kind == "runs" else (job.kind, job.name) for seed in missed
            )
            self._say_once(f"left out: {job}: {why}")

    def _say_news(self, cells: dict[Cell, Limits]) -> None:
        try:
            for line in news(
                [(cell, limited_grid(self.grid, cell, limits)) for cell, limits in cells.items()], self.store
            ):
                self.say(f"learnt: {line}")
        except WriteError as error:
            self.full = self.full or str(error)

    def _export(self, cell: Cell) -> None:
        """A finished cell as a file for others; what keeps it from being one is said, and the records stay in the store."""
        from gt_bench.provenance.transfer import export_cell
        from gt_bench.runtime.environment import commit

        head, shipped = commit(), self.export.resolve() == SUITES.resolve()
        if shipped and (head is None or head.endswith("-dirty")):
            what = "the code is in no commit" if head is None else f"the code differs from commit {head[:12]}"
            self._say_once(
                f"nothing is written to {self.export}/: {what}; commit it first, or give --export another folder"
            )
            return
        try:
            if path := export_cell(cell, self.export, self.store, dirty=not shipped):
                self.say(f"{cell.cell}: finished, {path}")
        except UserError as error:
            self.say(f"{cell.cell}: finished, not exported: {error}")

    def _announce(self, found: Plan, runs: Sequence[Missing], jobs: Sequence[Job]) -> None:
        known = [run.seconds for run in runs if run.seconds is not None]
        unknown = f" ({len(runs) - len(known)} without a forecast)" if len(known) < len(runs) else ""
        self.say(
            f"{len(runs)} runs of {len({run.cell for run in runs})} cells are missing, {found.stored} are there: {hours_text(sum(known))} of one process{unknown}, "
            f"{self.most} at once"
        )
        for job in jobs[:SHOWN]:
            self.say(f"  {job}{'' if job.seconds is None else f': {hours_text(job.seconds)}'}")
        if jobs[SHOWN:]:
            self.say(f"  and {len(jobs) - SHOWN} jobs more")

    def _needs(self, left: Sequence[Missing]) -> str:
        records = sum(run.cost.record_bytes for run in left)
        checkpoints = self.most * max((run.cost.checkpoint_bytes for run in left), default=0)
        free = shutil.disk_usage(self.store.root).free
        return (
            f"what is left takes about {bytes_text(records + checkpoints)} of {self.store.root}/ ({bytes_text(records)} of records, "
            f"{bytes_text(checkpoints)} of checkpoints); {bytes_text(free)} are free there"
        )

    def _say_once(self, line: str) -> None:
        if line not in self.told:
            self.told.add(line)
            self.say(line)


def _launch(shared: bool, alone: set[tuple[object, ...]]) -> Callable[..., int]:
    """What a worker of the crew does: a job in a process of its own, whose lines it passes on."""

    def launch(job: Job, tell: Callable[..., None]) -> int:
        beside = shared and not any((job.name, job.limits, seed) in alone for seed in job.seeds)
        return run_job(as_json(job, beside), tell, lambda process: tell({"pid": process.pid}))

    return launch
