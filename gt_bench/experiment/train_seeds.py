"""The seeds of one cell, in turn or side by side, each shown and tracked as it goes. One that fails loses no other."""

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from gt_bench.config.recipe import Recipe
from gt_bench.config.schema import RecipeError
from gt_bench.runtime.progress import Progress
from gt_bench.runtime.worker_pool import Lost, TaskResult, WorkerPool
from gt_bench.schemas import Record

if TYPE_CHECKING:
    from gt_bench.experiment.run import Experiment


class RunCallback(Protocol):
    """What is notified of a cell's runs while they train (`gt_bench.tracking.live.Live`)."""

    def start_seed(self, seed: int, digest: str) -> None:
        """A run starts."""
        ...

    def log_epoch(self, digest: str, epoch: int, values: Mapping[str, float]) -> None:
        """An epoch of a run ended, with these values by curve."""
        ...

    def finish_seed(self, record: Record) -> None:
        """A run ended with this record."""
        ...


class Watch:
    """Shows a cell's runs as they go, and tracks them where `live` is given."""

    def __init__(self, progress: Progress, live: RunCallback | None, recipe: Recipe, notice: Callable[[], None]):
        self.progress, self.live, self.recipe, self.notice = progress, live, recipe, notice
        self.digests: dict[int, str] = {}

    def name(self, seed: int) -> str:
        """What the seed's run is called on the terminal."""
        return f"seed {seed} ({self.recipe.seeds.index(seed) + 1}/{len(self.recipe.seeds)})"

    def start(self, seed: int, digest: str) -> None:
        """A run that has to be computed begins."""
        self.digests[seed] = digest
        self.progress.start_run(self.name(seed), self.recipe.reports)
        if self.live:
            self.live.start_seed(seed, digest)

    def epoch(self, seed: int, epoch: int, values: dict[str, float]) -> None:
        """An epoch is over."""
        self.progress.epoch(epoch, values, self.name(seed))
        if self.live:
            self.live.log_epoch(self.digests[seed], epoch, values)
        self.notice()

    def finish(self, seed: int, record: Record, computed: bool) -> None:
        """A run has its record, `computed` now or stored before."""
        if not computed:
            self.progress.start_run(self.name(seed), self.recipe.reports)
        elif self.live:
            self.live.finish_seed(record)
        self.progress.finish_run(record, computed, self.name(seed))


def seeds_in_turn(experiment: "Experiment", watch: Watch) -> list[Record]:
    """The records in the order of the seeds. Raises RecipeError after the last one where a seed has none."""
    records, errors = [], {}
    for seed in experiment.recipe.seeds:
        try:
            record, computed = experiment.run(seed, on_start=watch.start, on_epoch=partial(watch.epoch, seed))
        except RecipeError as error:  # of this seed's split or start, perhaps: the others may be sound
            errors[seed] = TaskResult(error=error)
            continue
        watch.finish(seed, record, computed)
        records.append(record)
    _raise_lost(watch.progress.title, experiment.recipe.seeds, errors, len(records))
    return records


def work_of(experiment: "Experiment") -> Callable[..., str]:
    """What a worker does: one seed; returns the status of its run."""

    def work(task: tuple[int, bool], tell: Callable[..., None]) -> str:
        seed, alone = task
        record, _ = experiment.run(
            seed,
            on_start=lambda _, digest: tell("start", digest),
            on_epoch=lambda epoch, values: tell("epoch", epoch, values),
            shared=not alone,
        )
        return record["deterministic"]["status"]

    return work


def seeds_side_by_side(experiment: "Experiment", watch: Watch, crew: WorkerPool[tuple[int, bool]]) -> list[Record]:
    """The same by processes of `crew`; a seed that runs out of memory is run again alone. Raises RecipeError, and Lost where a process
    died."""
    seeds, pace, computed = experiment.recipe.seeds, Pace(experiment.recipe.reports), set()
    found: dict[int, Record] = {}
    crew.say = watch.progress.say

    def finish(seed: int) -> None:
        record = experiment.take(experiment.digest(seed))
        assert record is not None  # whoever computed it has stored it
        found[seed] = record
        watch.finish(seed, found[seed], seed in computed)

    def heard(task: tuple[int, bool], what: str, *content: Any) -> None:
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
        if ending.ok and (alone or ending.value != "oom"):
            finish(seed)
        elif ending.ok:
            watch.progress.say(
                f"{watch.name(seed)}: out of memory beside other seeds; it runs alone once they are finished"
            )
        elif ending.killed and not alone:
            watch.progress.say(f"{watch.name(seed)}: {ending.died}; it runs alone once the others are finished")

    stored = [seed for seed in seeds if experiment.settled(seed) is not None]
    for seed in stored:
        finish(seed)
    tasks = [(seed, False) for seed in seeds if seed not in stored]
    endings = crew.run(tasks, heard, lambda waiting: pace.pays(len(waiting)), on_done=ended)
    again = [
        (seed, True) for (seed, _), ending in endings.items() if ending.killed or (ending.ok and ending.value == "oom")
    ]
    crew.max_workers = 1
    crew.refill()  # those that were killed
    endings |= crew.run(again, heard, on_done=ended)
    errors = {
        seed: ending
        for (seed, alone), ending in endings.items()
        if not ending.ok and (alone or (seed, True) not in endings)
    }
    _raise_lost(watch.progress.title, seeds, errors, len(found))
    return [found[seed] for seed in seeds]


class Pace:
    """Whether another process pays: it warms up anew (kernels are compiled, for one), which takes longer than some runs."""

    LONG = 20.0  # seconds of a first epoch that is no warm-up to speak of
    GAIN = 1.25  # at least so many times sooner: what is paid twice is taken from whatever else runs here

    def __init__(self, reports: int):
        self.reports = reports
        self.times: dict[
            int, tuple[float, float, float, int]
        ] = {}  # seed -> when it began, first and last epoch, epochs
        self.running: set[int] = set()

    def start(self, seed: int) -> None:
        """A seed's run begins."""
        now = time.monotonic()
        self.times[seed] = (now, now, now, 0)
        self.running.add(seed)

    def epoch(self, seed: int) -> None:
        """It has reported once more."""
        (began, first, _, count), now = self.times[seed], time.monotonic()
        self.times[seed] = (began, first if count else now, now, count + 1)

    def end(self, seed: int) -> None:
        """Its process is free."""
        self.running.discard(seed)

    def pays(self, waiting: int) -> bool:
        """Whether another process would be done with one of `waiting` runs before the present ones are with all."""
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


def _raise_lost(cell: str, seeds: list[int], errors: dict[int, TaskResult], kept: int) -> None:
    """Raises what kept seeds from giving a record: a bug as it is, all else in words."""
    rest = f"{kept} of {len(seeds)} seeds {'is' if kept == 1 else 'are'} kept, the same command goes on"
    died = [f"seed {seed}: {ending.died}" for seed, ending in errors.items() if ending.error is None]
    for ending in errors.values():
        if ending.error is not None and not isinstance(ending.error, RecipeError):
            raise ending.error
    said = list(dict.fromkeys(str(ending.error) for ending in errors.values() if ending.error is not None))
    if died or len(errors) + kept < len(seeds):
        raise Lost(f"{cell}: " + "\n".join([*said, *died]) + f"; {rest}")
    if said:
        raise RecipeError("\n".join(said) + (f"\n{rest}" if kept else ""))
