"""Sweeps: submit every missing run to Slurm as a job, and follow the jobs until the store has all runs.

If a sweep is started again, or twice at the same time, it submits only runs that are missing in the store and that no
queued job computes. store/sweep/submitted.jsonl lists the jobs (job_registry.py), store/sweep/lines/ has their output,
store/sweep/jobs/ has scripts and logs.
"""

import re
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import cache

from gt_bench.config.grid import Cell, Grid
from gt_bench.config.schema import RecipeError
from gt_bench.scheduling.job import JobLine, as_json, run_job
from gt_bench.scheduling.job_registry import Submitted, register, registered
from gt_bench.scheduling.planner import CellSeed, Job, Plan, jobs_of, plan
from gt_bench.scheduling.slurm import ClusterError, Place, Slurm
from gt_bench.scheduling.slurm_resources import Need, need_of, shares
from gt_bench.store.run_store import Store
from gt_bench.utils.io import held, make_folder

SHARED = 900.0  # seconds of runs that share a job: waiting in the queue takes time too
POLL_SECONDS = 5.0
AT_MOST = 16  # default of the jobs that run at once
ARRAY = 1000  # jobs of an array: the default MaxArraySize of Slurm is 1001
# Reasons of Slurm for which a job waits until somebody changes it.
NEVER = re.compile(r"PerJob|Partition(Time|Node)Limit|BadConstraints|Invalid|NotAllowed|Held|held")


def sweep(
    cells: Sequence[Cell],
    grid: Grid,
    cluster: Slurm,
    at_most: int = AT_MOST,
    say: Callable[[str], None] = lambda line: print(line, flush=True),
    poll: float = POLL_SECONDS,
) -> bool:
    """Submit all missing runs and follow the jobs to the end.

    Args:
        cells: what to compute.
        grid: the grid.
        cluster: where to submit.
        at_most: jobs that run at once.
        say: called for each line of output.
        poll: seconds between two requests to the cluster.

    Returns:
        Whether the store has all runs.

    Raises:
        ClusterError: the cluster does not answer.
    """
    followed = _Sweep(cells, grid, cluster, at_most, say)
    followed.prepare()
    followed.submit()
    while places := cluster.places([job.id for job in followed.submitted]):
        followed.report(places)
        followed.warn(places)
        time.sleep(poll)
        if len(cluster.places([job.id for job in followed.submitted])) < len(places):
            followed.report(cluster.places([job.id for job in followed.submitted]))
            followed.submit()  # jobs that waited for those jobs, or for a free place
    followed.report({})
    return followed.close()


@dataclass
class _Sweep:
    cells: Sequence[Cell]
    grid: Grid
    cluster: Slurm
    at_most: int
    say: Callable[[str], None]
    store: Store = field(default_factory=Store)
    submitted: list[Submitted] = field(default_factory=list)  # jobs that this sweep follows
    reported: set[str] = field(default_factory=set)
    tried: set[CellSeed] = field(default_factory=set)
    # cell -> trials that were left when jobs of its search were last submitted
    searched: dict[str, int] = field(default_factory=dict)
    refused: bool = False

    def __post_init__(self) -> None:
        self._say_once = cache(self.say)

    def prepare(self) -> None:
        """Prepare data and encodings once on this machine, before anything is submitted."""
        for dataset in self.plan().data:
            run_job(as_json(Job("data", dataset, dataset), False), self._on_message)

    def plan(self) -> Plan:
        """Plan the missing runs and report problems."""
        planned = plan(self.cells, self.grid, self.store, say=self.say)
        for problem in planned.problems:
            self._say_once(f"skipped: {problem}")
        return planned

    def submit(self) -> None:
        """Submit the missing runs that are ready, and follow jobs of other sweeps that compute missing runs."""
        with held(make_folder(self.store.root / "sweep") / "lock"):
            planned, before = self.plan(), registered(self.store)
            places = self.cluster.places([job.id for job in before])
            alive = [job for job in before if job.id in places]
            runs = {run.run for run in planned.missing}
            new = [
                job
                for job in alive
                if any(run in runs or (run[1] is None and run[0] in planned.searches) for run in job.runs)
            ]
            self.submitted += [job for job in new if job.id not in {known.id for known in self.submitted}]
            taken = {run for job in alive for run in job.runs} | self.tried
            ready = [run for run in planned.missing if run.run not in taken and run.cell.dataset not in planned.data]
            everything = jobs_of(planned, shared=0)
            jobs = [
                job
                for job in jobs_of(planned, ready, SHARED)
                if not (job.kind == "search" and self._is_searched(job, planned, taken))
                and not any(job.waits_for(other) for other in everything)
            ]
            free = self.at_most - sum({job.array: job.share for job in alive}.values())
            for need, whole, share in shares(self._by_need(jobs), free):
                group = whole[:ARRAY]  # the others are submitted later
                self._submit(need, group, share)
                self.searched |= {job.name: planned.searches[job.name].left for job in group if job.kind == "search"}

    def _is_searched(self, job: Job, planned: Plan, taken: Collection[CellSeed]) -> bool:
        """Return whether jobs work on the search of the cell, or the last ones made no progress."""
        if job.runs[0] in taken:
            return True
        stuck = self.searched.get(job.name) == planned.searches[job.name].left
        if stuck:
            self._say_once(
                f"skipped: {job.name} search: its last jobs finished no trial; run the same command to submit it again"
            )
        return stuck

    def _submit(self, need: Need, group: Sequence[Job], share: int) -> None:
        try:
            handed = self.cluster.submit(need, [as_json(job, False) for job in group], share)
        except ClusterError as error:
            self.refused = True
            self.tried |= {run for job in group for run in job.runs}
            names = ", ".join(dict.fromkeys(job.name for job in group))
            self._say_once(f"skipped: {len(group)} jobs of {names}: {error}")
            return
        new = [
            Submitted(number, str(lines), share, job.name, job.seeds)
            for job, (number, lines) in zip(group, handed, strict=True)
        ]
        register(self.store, new)
        self.submitted += new
        self.say(f"submitted {len(group)} jobs ({need}), at most {share} at once: {handed[0][0]} to {handed[-1][0]}")

    def _by_need(self, jobs: Sequence[Job]) -> dict[Need, list[Job]]:
        groups: dict[Need, list[Job]] = {}
        for job in jobs:
            cell = self.grid.find(job.name)
            try:
                groups.setdefault(need_of(job, cell, self.grid), []).append(job)
            except RecipeError as error:
                self.tried |= set(job.runs)
                self.refused = True
                self._say_once(f"skipped: {error}")
        return groups

    def report(self, places: dict[str, Place]) -> None:
        """Report the outcome of jobs that have left the queue."""
        for job in self.submitted:
            if job.id in places or job.id in self.reported:
                continue
            self.reported.add(job.id)
            output = {line["seed"]: line for line in job.output() if "outcome" in line}
            for name, seed in job.runs:
                what = f"{name} {'search' if seed is None else f'seed {seed}'}"
                line = output.get(seed)
                if line is not None and line["outcome"] == "unsearched":  # a new process continues
                    continue
                # a search continues while it has trials
                if seed is not None or (line is not None and line["outcome"] == "failed"):
                    self.tried.add((name, seed))
                if line is None:
                    again = "its trial is queued again" if seed is None else "run the same command to submit it again"
                    self.say(f"{what}: job {job.id} ended without a result (cancelled, or its node died); {again}")
                elif line["outcome"] == "elsewhere":
                    self.say(f"{what}: another process computes it; run the same command again to check")
                elif line["outcome"] != "stored":
                    self.say(f"{what}: {line['outcome']}{f', {why}' if (why := line.get('why')) else ''}")

    def warn(self, places: dict[str, Place]) -> None:
        """Report once per array that Slurm will not start it: Slurm accepts jobs that no node or partition can run."""
        for job in self.submitted:
            place = places.get(job.id)
            if place is not None and place.state == "PENDING" and NEVER.search(place.where):
                self._say_once(
                    f"{job.name}: Slurm will not start job {job.array} ({place.where}); set `resources:` in "
                    f"params.yaml to what the nodes have, run `scancel {job.array}`, and start the sweep again"
                )

    def close(self) -> bool:
        """Report how many runs are missing; return whether all are stored."""
        planned = plan(self.cells, self.grid, self.store, measure=False)
        left = len(planned.missing)
        self.say(
            f"{left} of {left + planned.stored} runs are missing"
            + ("; `dvc repro` collects the others" if left else "; `dvc repro` collects them")
        )
        return not left and not planned.problems and not self.refused

    def _on_message(self, line: JobLine) -> None:
        if "say" in line:
            self.say(line["say"])
        elif line.get("outcome") not in (None, "ok"):
            self._say_once(f"skipped: {line.get('why')}")
