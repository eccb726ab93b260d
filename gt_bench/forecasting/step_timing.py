"""Estimated seconds and memory of a run: some epochs of every phase are timed, everything else is counted."""

import contextlib
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from gt_bench.config.recipe import Recipe
from gt_bench.experiment.run import Experiment
from gt_bench.records.run import Session
from gt_bench.runtime.environment import PeakMemory
from gt_bench.training.checkpoint import Checkpoint
from gt_bench.training.interfaces import Batches, Objective
from gt_bench.training.runner import Outcome
from gt_bench.training.trainer import Run
from gt_models.batch import GraphBatch

Sampled = tuple[GraphBatch, Tensor | None]


class Stopwatch:
    """Clock of the training loop that keeps the seconds of each timed block."""

    def __init__(self) -> None:
        self.totals = {"train": 0.0, "eval": 0.0, "test": 0.0}
        self.sessions: list[Session] = []
        self.stretches: dict[str, list[float]] = {"train": [], "eval": [], "test": []}

    @contextlib.contextmanager
    def timing(self, what: str) -> Iterator[None]:
        """Record the seconds of the block."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.stretches[what].append(time.perf_counter() - start)


class Sample:
    """A loader that ends an epoch early, after `budget` seconds and at least three batches.

    `taken` counts the batches of each part; `whole` tells whether an epoch was complete.
    """

    def __init__(self, loader: Batches, budget: float):
        self._loader, self._budget = loader, budget
        self.taken: dict[str, int] = {}
        self.whole: dict[str, bool] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def training(self, epoch: int) -> Iterator[Sampled]:
        """Yield the first batches of an epoch."""
        return self._until("train", self._loader.training(epoch))

    def evaluation(self, part: str) -> Iterator[Sampled]:
        """Yield the first batches of `part`."""
        return self._until(part, self._loader.evaluation(part))

    def _until(self, what: str, batches: Iterator[Sampled]) -> Iterator[Sampled]:
        start, count = time.perf_counter(), 0
        self.whole[what] = True
        for count, batch in enumerate(batches, 1):
            yield batch
            self.taken[what] = count
            if count >= 3 and time.perf_counter() - start > self._budget:
                self.whole[what] = False
                return


class Lenient:
    """A task that ignores undefined metrics: a sample of a split may contain only one class."""

    def __init__(self, task: Objective):
        self._task = task

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task, name)

    def evaluate(self, outputs: list[Tensor], targets: list[Any]) -> dict[str, float]:
        """Return the metrics, or zeros if they are undefined: only time matters here."""
        with contextlib.suppress(ValueError):
            return self._task.evaluate(outputs, targets)
        return {"loss": 0.0, self._task.metric: 0.0}


@dataclass
class Trial:
    """A few epochs of a run, with their times and numbers of batches."""

    watch: Stopwatch
    sample: Sample
    outcome: Outcome


def seconds_of(experiment: Experiment, scale: float, budget: float) -> tuple[float, float, int, int]:
    """Estimate the cost of one run.

    Args:
        experiment: of the run.
        scale: size of the real dataset, in units of the dataset of `experiment`.
        budget: seconds of timed steps.

    Returns:
        (seconds, peak memory in MiB, number of parameters, reported epochs).
    """
    recipe, memory = experiment.recipe, PeakMemory(experiment.device)
    before = memory.read() if experiment.device.type == "cpu" else 0.0
    memory.start()
    trial = first = _trial(experiment, 2, budget)
    own = experiment.task.runner
    if own is not None:
        if not hasattr(own, "seconds"):
            raise ValueError(f"{experiment.path}: the forecast does not support the protocol of this task")
        if recipe.protocol:  # as many parts as the budget allows
            once = own.seconds(_short(recipe, 2, 1), trial.watch.stretches)
            parts = int(min(60, budget / max(1e-6, once)))
            if parts > 4:
                trial = _trial(experiment, 2, budget, parts)
        return own.seconds(recipe, trial.watch.stretches), memory.read(), trial.outcome.parameters, recipe.reports
    # short epochs are timed many times; the first one is a warm-up
    once = statistics.fmean(t for what in ("train", "eval") for t in trial.watch.stretches[what][1:])
    epochs = int(min(60, budget / max(1e-6, once)))
    if epochs > 4:
        trial = _trial(experiment, epochs, budget)
    peak, parameters = memory.read(), trial.outcome.parameters
    loader = trial.sample
    taken, train_times, eval_times = loader.taken, trial.watch.stretches["train"], trial.watch.stretches["eval"]
    phases = [phase.epochs for phase in recipe.phases] or [recipe.total_epochs]
    each = len(train_times) // len(phases)
    typical = [statistics.median(train_times[i * each + 1 : (i + 1) * each]) for i in range(len(phases))]
    train = sum(n * t for n, t in zip(phases, typical)) / taken["train"] * _batches(loader, "train", scale)
    evaluations = sum(
        (n == recipe.total_epochs or (n % recipe.eval_every == 0 and n > (recipe.eval_after or 0)))
        for n in range(1, recipe.total_epochs + 1)
    )
    part = "test" if recipe.select == "test" else "val"
    evaluation = statistics.median(eval_times[1:]) / taken[part] * _batches(loader, part, scale)
    test = (
        evaluation
        if loader.by_node
        else trial.watch.stretches["test"][-1] / taken["test"] * _batches(loader, "test", scale)
    )
    if loader.by_node:  # one graph, a sample of a larger one
        peak = before + max(0.0, peak - before) * scale
    # extra time of the first epoch of a process, which only the first seed of a cell has
    usual = typical[0], statistics.median(eval_times[1:])
    paid = first.watch.stretches["train"][0], first.watch.stretches["eval"][0]
    warmup = sum(max(0.0, p - u) for p, u in zip(paid, usual)) / len(recipe.seeds)
    return train + evaluation * evaluations + test + warmup, peak, parameters, recipe.reports


def _trial(experiment: Experiment, epochs: int, budget: float, parts: int = 4) -> Trial:
    """Run and evaluate `epochs` epochs of every phase (of a protocol `parts` parts), and one pass over the test part.

    Raises:
        ValueError: the run fails.
    """
    recipe, task, seed = experiment.recipe, experiment.task, experiment.recipe.seeds[0]
    sample = Sample(experiment.loader(seed), budget)
    watch = Stopwatch()
    run = (task.runner or Run)(
        _short(recipe, epochs, parts),
        Lenient(task),
        sample,
        experiment.build,
        seed=seed,
        meter=watch,
        checkpoint=Checkpoint(None),
    )
    outcome = run.train(test=recipe.protocol is None)
    if outcome.status != "ok":
        raise ValueError(f"{outcome.status}: {outcome.error}")
    return Trial(watch, sample, outcome)


def _short(recipe: Recipe, epochs: int, parts: int) -> Recipe:
    """Return the recipe with `epochs` epochs per phase, each evaluated; of a protocol `parts` parts."""
    # loading initial weights takes no time
    changes: dict[str, object] = {"eval_every": 1, "eval_after": None, "patience": None, "start": None}
    if recipe.phases:
        changes["phases"] = [phase.model_copy(update={"epochs": epochs}) for phase in recipe.phases]
    else:
        changes["epochs"] = epochs
    short, protocol = recipe.model_copy(update=changes), recipe.protocol
    return short.with_protocol(protocol.only(min(parts, protocol.parts)).to_the_end()) if protocol else short


def _batches(loader: Sample, part: str, scale: float) -> float:
    """Return the number of batches of a whole epoch of the real dataset, in units of the sample's batches."""
    if loader.whole[part]:
        return loader.taken[part] * scale
    return (loader.steps_per_epoch if part == "train" else loader.num_batches(part)) * scale
