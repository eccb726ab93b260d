"""Training of all seeds of a cell, sequentially or in parallel, with a progress display and live tracking.

    with seed_workers(experiment, parallel) as pool, Progress(title, epochs) as progress:
        records = train_seeds(experiment, Watch(progress, recipe), pool)

If a seed fails, the others continue, and the error is raised at the end.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from gt_bench.config.recipe import Recipe
from gt_bench.config.schema import RecipeError
from gt_bench.records.events import RunCallback
from gt_bench.records.run import RunRecord
from gt_bench.runtime.fresh_process import OnEpoch, compute_in_new_process
from gt_bench.runtime.progress import Progress
from gt_bench.runtime.resources import at_once, oom_kills
from gt_bench.runtime.startup import prepare_process
from gt_bench.runtime.worker_pool import Lost, TaskResult, WorkerPool
from gt_bench.training.failures import is_out_of_memory

if TYPE_CHECKING:
    from gt_bench.experiment.run import Experiment


class Watch:
    """Reports the events of a cell's runs to the progress display and to the loggers.

    Args:
        progress: the progress display.
        recipe: recipe of the cell.
        live: the loggers; None for none.
        notice: called after each epoch.
    """

    def __init__(
        self,
        progress: Progress,
        recipe: Recipe,
        live: RunCallback | None = None,
        notice: Callable[[], None] = lambda: None,
    ):
        self.progress, self.recipe, self.live, self.notice = progress, recipe, live, notice
        self.digests: dict[int, str] = {}

    def name(self, seed: int) -> str:
        """Returns the name of a seed's run in the progress display."""
        return f"seed {seed} ({self.recipe.seeds.index(seed) + 1}/{len(self.recipe.seeds)})"

    def start(self, seed: int, digest: str) -> None:
        """Called before a run is computed."""
        self.digests[seed] = digest
        self.progress.start_run(self.name(seed), self.recipe.reports)
        if self.live:
            self.live.start_seed(seed, digest)

    def epoch(self, seed: int, epoch: int, values: dict[str, float]) -> None:
        """Called after each epoch of a run."""
        self.progress.epoch(epoch, values, self.name(seed))
        if self.live:
            self.live.log_epoch(self.digests[seed], epoch, values)
        self.notice()

    def finish(self, seed: int, record: RunRecord, computed: bool) -> None:
        """Called with the record of a run. `computed` is False if it was already in the store."""
        if not computed:
            self.progress.start_run(self.name(seed), self.recipe.reports)
        elif self.live:
            self.live.finish_seed(record)
        self.progress.finish_run(record, computed, self.name(seed))


@contextlib.contextmanager
def seed_workers(experiment: "Experiment", parallel: int | str) -> Iterator[WorkerPool[tuple[int, bool]] | None]:
    """Starts the worker processes of the seeds that are not stored yet. Call it before this process uses a GPU.

    Args:
        experiment: experiment of the cell.
        parallel: `run.parallel` of params.yaml.

    Yields:
        The worker pool, or None if the seeds are trained one after the other in this process.
    """
    gpu, seeds = experiment.device.type == "cuda", experiment.recipe.seeds
    # Stored seeds need no process. On a GPU `settled` would use the GPU, which must not happen before the fork.
    missing = len(seeds) if gpu else sum(experiment.settled(seed) is None for seed in seeds)
    processes = at_once(parallel, missing, experiment.recipe.cores, gpu)
    if processes == 1:
        yield None
        return
    with WorkerPool(partial(_work, experiment, processes), processes, check_memory=not gpu) as pool:
        yield pool


def train_seeds(experiment: "Experiment", watch: Watch, pool: WorkerPool[tuple[int, bool]] | None) -> list[RunRecord]:
    """Trains the seeds of a cell.

    Args:
        experiment: experiment of the cell.
        watch: receives the events of the runs.
        pool: of `seed_workers`.

    Returns:
        The records, in the order of the seeds.

    Raises:
        RecipeError: a seed has no record. Raised after the last seed.
        Lost: a worker process died while its seed ran alone.
    """
    return _train_sequentially(experiment, watch) if pool is None else _train_in_parallel(experiment, watch, pool)


def _train_sequentially(experiment: "Experiment", watch: Watch) -> list[RunRecord]:
    records, errors = [], {}
    for seed in experiment.recipe.seeds:
        try:
            record, computed = experiment.run(seed, on_start=watch.start, on_epoch=partial(watch.epoch, seed))
        except RecipeError as error:  # it may concern only the split or the source of this seed
            errors[seed] = TaskResult(error=error)
            continue
        watch.finish(seed, record, computed)
        records.append(record)
    _raise_errors(watch.progress.title, experiment.recipe.seeds, errors, len(records))
    return records


def _run_on_shared_gpu(experiment: "Experiment", seed: int, processes: int, on_epoch: OnEpoch) -> RunRecord:
    """Returns the record of a run, in a new process on a GPU that `processes` processes use.

    A forked process cannot use a GPU that its parent has looked at.
    """
    prepare_process(experiment.settings)
    experiment.share_gpu(processes)
    return experiment.run(seed, on_epoch=on_epoch, shared=processes > 1)[0]


def _work(experiment: "Experiment", processes: int, task: tuple[int, bool], tell: Callable[..., None]) -> str:
    """Runs one seed in a worker process, of which there are `processes`, and returns the status of the run."""
    seed, alone = task
    on_epoch = partial(tell, "epoch")
    if experiment.device.type == "cpu":
        on_start = lambda _, digest: tell("start", digest)  # noqa: E731
        record, _ = experiment.run(seed, on_start=on_start, on_epoch=on_epoch, shared=not alone)
    else:
        tell("start", experiment.digest(seed))
        compute = partial(_run_on_shared_gpu, experiment, seed, 1 if alone else processes)
        record = compute_in_new_process(compute, f"{experiment.path}: seed {seed}", on_epoch)
    return record.run.status


def _train_in_parallel(experiment: "Experiment", watch: Watch, pool: WorkerPool[tuple[int, bool]]) -> list[RunRecord]:
    """Trains seeds in worker processes; a seed that runs out of memory or is killed runs again after the others, alone.

    A task of the pool is (seed, whether it runs alone).
    """
    seeds, pace, computed = experiment.recipe.seeds, Pace(experiment.recipe.reports), set()
    found: dict[int, RunRecord] = {}
    pool.say = watch.progress.say

    def finish(seed: int) -> None:
        record = experiment.take(experiment.digest(seed))
        assert record is not None  # the worker stored it
        found[seed] = record
        watch.finish(seed, found[seed], seed in computed)

    def on_message(task: tuple[int, bool], what: str, *content: Any) -> None:
        seed = task[0]
        if what == "start":
            computed.add(seed)
            pace.start(seed)
            watch.start(seed, *content)
        else:
            pace.epoch(seed)
            watch.epoch(seed, *content)

    def ended(task: tuple[int, bool], ending: TaskResult) -> None:
        seed, alone = task
        pace.end(seed)
        if not alone and _lacked_memory(ending):
            why = ending.died if ending.killed else "out of memory while other seeds were running"
            watch.progress.say(f"{watch.name(seed)}: {why}; it is run alone after the other seeds")
        elif ending.ok:
            finish(seed)
        elif _lacked_memory(ending) and (ending.error is not None or oom_kills() > kills):
            experiment.store_killed(seed, ending.died if ending.error is None else f"out of memory: {ending.error}")
            finish(seed)

    stored = [seed for seed in seeds if experiment.settled(seed) is not None]
    for seed in stored:
        finish(seed)
    tasks, kills = [(seed, False) for seed in seeds if seed not in stored], oom_kills()
    endings = pool.run(tasks, on_message, lambda waiting: pace.pays(len(waiting)), on_done=ended)
    again = [(seed, True) for (seed, _), ending in endings.items() if _lacked_memory(ending)]
    if again:
        pool.one_at_a_time()
        endings |= pool.run(again, on_message, on_done=ended)
    errors = {
        seed: ending
        for (seed, alone), ending in endings.items()
        if not ending.ok and (alone or (seed, True) not in endings) and seed not in found
    }
    _raise_errors(watch.progress.title, seeds, errors, len(found))
    return [found[seed] for seed in seeds]


def _lacked_memory(ending: TaskResult) -> bool:
    """Returns whether a seed had too little memory; a process that was killed probably had."""
    error = ending.error is not None and is_out_of_memory(ending.error)
    return error or ending.killed or (ending.ok and ending.value == "oom")


class Pace:
    """Decides whether starting another worker process saves time.

    A new process has to warm up (it compiles kernels, for example), which may take longer than the rest of the runs.

    Args:
        reports: number of epochs that a run reports.
    """

    LONG = 20.0  # a first epoch longer than this many seconds is not dominated by warm-up
    GAIN = 1.25  # required speed-up: warm-up also takes processor time from the other runs

    def __init__(self, reports: int):
        self.reports = reports
        # seed -> time of its start, of its first epoch and of its last epoch, and number of epochs
        self.times: dict[int, tuple[float, float, float, int]] = {}
        self.running: set[int] = set()

    def start(self, seed: int) -> None:
        """Called when a seed's run starts."""
        now = time.monotonic()
        self.times[seed] = (now, now, now, 0)
        self.running.add(seed)

    def epoch(self, seed: int) -> None:
        """Called after each epoch of a seed."""
        (began, first, _, count), now = self.times[seed], time.monotonic()
        self.times[seed] = (began, first if count else now, now, count + 1)

    def end(self, seed: int) -> None:
        """Called when a seed's run has ended."""
        self.running.discard(seed)

    def pays(self, waiting: int) -> bool:
        """Returns whether a new process would finish one of `waiting` runs before the running processes finish all."""
        known = [
            (first - began, (last - first) / (count - 1))
            for began, first, last, count in self.times.values()
            if count > 1
        ]
        if not known:
            return any(count and first - began > self.LONG for began, first, _, count in self.times.values())
        warmup, each = (min(column) for column in zip(*known))
        left = sum(max(0, self.reports - self.times[seed][3]) for seed in self.running)
        return self.GAIN * (warmup + each * self.reports) < each * (left + waiting * self.reports) / max(
            1, len(self.running)
        )


def _raise_errors(cell: str, seeds: list[int], errors: dict[int, TaskResult], stored: int) -> None:
    """Raises an unexpected exception of a seed, otherwise one error that has the messages of all seeds."""
    for ending in errors.values():
        if ending.error is not None and not isinstance(ending.error, RecipeError):
            raise ending.error
    rest = (
        f"{stored} of {len(seeds)} seeds {'is' if stored == 1 else 'are'} stored; run the same command again to resume"
    )
    found = {str(error): error for ending in errors.values() if isinstance(error := ending.error, RecipeError)}
    died = [f"seed {seed}: {ending.died}" for seed, ending in errors.items() if ending.error is None]
    if died or len(errors) + stored < len(seeds):
        raise Lost("\n".join([*found, *died]), file=cell, remedy=rest)
    if len(found) > 1:
        raise RecipeError("\n".join(found), file=cell, remedy=rest)
    for error in found.values():
        error.remedy = "; ".join(filter(None, [error.remedy, rest if stored else ""]))
        raise error.within()
