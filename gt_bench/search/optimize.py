"""Hyperparameter search with Optuna: workers claim trials, run them and report their values. Several share a search."""

import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gt_bench.config.grid import Cell, Grid
from gt_bench.config.recipe import Recipe
from gt_bench.config.schema import RecipeError
from gt_bench.config.search_section import Choice, Range, SearchSection
from gt_bench.records.run import RunRecord, points
from gt_bench.runtime.progress import Progress
from gt_bench.runtime.startup import prepare_process
from gt_bench.search.methods import check_method, cost_texts, sampler_of, values_of
from gt_bench.search.space import grid_points
from gt_bench.search.storage import JOURNAL, REMEDY, Workers, ended, storage_url
from gt_bench.search.study import study_of, used_of
from gt_bench.search.warm_start import Start, lines_of, starts_of
from gt_bench.store.run_store import Store, curves_reached
from gt_bench.utils.format import print_text
from gt_bench.utils.json_types import Settings

if TYPE_CHECKING:
    from optuna import Study, Trial

    from gt_bench.experiment.run import Experiment

ORIGIN = "origin"  # user attribute of a first trial: where its values come from
WAIT_SECONDS = 0.5  # between checks whether other workers have finished


class Taken(NamedTuple):
    """Result of a worker.

    Attributes:
        study: the study.
        whole: whether the search has all its trials.
        ran: number of trials that this worker ran.
    """

    study: "Study"
    whole: bool
    ran: int


def run_search(
    recipe: Recipe,
    cell: Cell,
    grid: Grid,
    trials: int,
    folder: Path,
    data: Path,
    store_root: Path,
    workers: Workers,
    most: int | None = None,
) -> Taken:
    """Runs trials of a search until it has all of them, including those of other workers.

    Args:
        recipe: recipe of the trials, with a search section.
        cell: the cell.
        grid: the grid.
        trials: number of trials of the search.
        folder: folder of the study.
        data: folder with packed/ and encodings/.
        store_root: folder of the run store.
        workers: the workers of this search.
        most: maximum number of trials of this worker. If given, it does not wait for other workers.

    Raises:
        RecipeError: the search space contains an invalid combination, or the study is damaged or edited.
    """
    from gt_bench.experiment.run import Experiment

    allocator = prepare_process(grid.run, recipe.threads)
    search, store = recipe.searched, Store(store_root)

    def experiment(values: Settings) -> Experiment:
        return Experiment(
            recipe.with_values(values), str(cell.recipe_path), cell.dataset, grid.run, store, data, allocator
        )

    check_method(search, recipe.total_epochs * len(search.seeds), cell.recipe_path)
    first = experiment({})
    first.check_metric(search.seeds)
    starts = starts_of(recipe, cell, grid) if search.warm_start else None
    begun = starts.found if starts else []
    with workers.alone():
        study = study_of(recipe, cell, grid, first, folder, begun)
        assert study is not None  # `make` is True
        if starts and not study.get_trials(deepcopy=False):
            print_text("\n".join(lines_of(starts, search)), flush=True)

    # optuna's GridSampler stops only its own loop: the points are queued here, in seeded order
    points = grid_points(search) if search.sampler == "grid" else []
    trials = min(trials, len(points) or trials)
    epochs, direction, ran = recipe.reports * len(search.seeds), first.task.direction, 0
    with Progress(f"{cell.cell} search", trials * epochs) as progress:
        while True:
            with workers.alone():
                _queue_killed(study, workers, search)
                _queue_starts(study, begun)
                limit = trials if most is None or ran < most else 0
                trial, used, running = _claim(study, search, limit, points, workers)
            if trial is not None:
                ran += 1
                values = {key: _suggest(trial, key, search.space[key]) for key in search.space}
                progress.start_run(f"trial {trial.number} ({used + 1}/{trials})", epochs)
                try:
                    _run_trial(study, trial, experiment(values), search.seeds, direction, progress)
                except RecipeError as error:
                    shown = ", ".join(f"{key} {value!r}" for key, value in values.items())
                    raise RecipeError(
                        f"contains an invalid combination: {shown}: {error}",
                        file=cell.recipe_path,
                        place="search.space",
                        value=values,
                        remedy="remove it",
                    ) from None
            elif not running or most is not None:
                whole = not running and used >= trials
                if whole:
                    where = "the study storage" if storage_url(grid.run) else str(folder / JOURNAL)
                    _check_values(study, search.seeds, experiment, where)
                return Taken(study, whole, ran)
            else:  # other workers run the last trials; they may be killed
                time.sleep(WAIT_SECONDS)


def _claim(
    study: "Study", search: SearchSection, trials: int, points: list[Settings], workers: Workers
) -> tuple["Trial | None", int, int]:
    """Claims a trial for this worker. Must be called under `workers.alone`.

    Returns:
        The trial, or None if none is left; the number of finished and running trials; the number of running trials.
    """
    from optuna.trial import TrialState

    held = study.get_trials(deepcopy=False)
    used = used_of(held)
    running = sum(t.state == TrialState.RUNNING for t in held)
    if used + running >= trials:
        return None, used, running
    study.sampler = sampler_of(search, used + running)
    if points and not any(t.state == TrialState.WAITING for t in held):
        taken = [t.params for t in held if t.state == TrialState.RUNNING or ended(t)]
        # values of a trial that has just started are only in its queued parameters
        taken += [
            t.system_attrs["fixed_params"]
            for t in held
            if t.state == TrialState.RUNNING and "fixed_params" in t.system_attrs
        ]
        study.enqueue_trial(next(point for point in points if point not in taken))
    trial = study.ask()
    trial.set_user_attr("worker", workers.name)
    return trial, used + running, running


def _queue_killed(study: "Study", workers: Workers, search: SearchSection) -> None:
    """Queues the trials of killed workers again, except those whose run has failed. Call it under `workers.alone`."""
    from optuna.trial import TrialState

    for trial in study.get_trials(deepcopy=False, states=[TrialState.RUNNING]):
        if not workers.alive(trial.user_attrs.get("worker", "")):
            study.tell(trial.number, state=TrialState.FAIL)
            values = trial.system_attrs.get("fixed_params", {}) | trial.params
            if ORIGIN in trial.user_attrs:  # `_queue_starts` queues it again
                continue
            # a trial that was killed before it had all its values is proposed again, from the same seed
            if trial.user_attrs.get("status") in (None, "ok", "pruned") and values.keys() == search.space.keys():
                study.enqueue_trial(values)


def _queue_starts(study: "Study", starts: Sequence[Start]) -> None:
    """Queues the first trials that are neither finished, running nor queued. Call it under `workers.alone`."""
    if not starts:
        return
    taken = [
        t.user_attrs.get(ORIGIN)
        for t in study.get_trials(deepcopy=False)
        if ended(t) or t.state.name in ("RUNNING", "WAITING")
    ]
    for start in starts:
        if start.origin not in taken:
            study.enqueue_trial(start.values, user_attrs={ORIGIN: start.origin})


class _Reports:
    """Values of a trial at its pruner: the mean over its seeds so far of the best validation value of each.

    Args:
        trial: the trial.
        search: its search section.
        direction: "max" or "min".
        epochs: number of epochs of each seed.

    Attributes:
        finished: validation values of finished seeds.
        best: best value of the current seed. None before its first one.
    """

    def __init__(self, trial: "Trial", search: SearchSection, direction: str, epochs: int):
        self.trial, self.search, self.epochs = trial, search, epochs
        self.better = max if direction == "max" else min
        # these pruners note in the study which trials reached a rung, so they must see every value, and each once
        self.rungs = search.pruner in ("hyperband", "successive_halving")
        self.finished: list[float] = []
        self.best: float | None = None

    def step(self, epoch: int) -> int:
        """Returns the number of an epoch of the current seed among those of all seeds."""
        return len(self.finished) * self.epochs + epoch

    def add(self, epoch: int, value: float) -> bool:
        """Reports a value of the current seed. Returns whether a pruner with rungs stops the trial."""
        self.best = value if self.best is None else self.better(self.best, value)
        if len(self.search.objectives) > 1:  # Optuna has intermediate values of one objective only
            return False
        self.trial.report(sum([*self.finished, self.best]) / (len(self.finished) + 1), self.step(epoch))
        return self.rungs and self.trial.should_prune()

    def finish_seed(self, value: float) -> None:
        """Adds the validation value of the current seed, and begins the next one."""
        self.finished.append(value)
        self.best = None


def _run_trial(
    study: "Study", trial: "Trial", experiment: "Experiment", seeds: list[int], direction: str, progress: Progress
) -> None:
    """Runs a trial, which reports the mean over `seeds` of the best validation so far, and may be pruned."""
    import optuna
    from optuna.trial import TrialState

    search = experiment.recipe.searched
    reports = _Reports(trial, search, direction, experiment.recipe.total_epochs)
    records: list[RunRecord] = []

    def on_epoch(seed: int, epoch: int, values: dict[str, float]) -> None:
        progress.epoch(reports.step(epoch), values)
        if "val" not in values:
            return
        if reports.best is None:  # resumed from a checkpoint: earlier values were reported for the killed trial
            curves = curves_reached(experiment.store.folder(experiment.digest(seed, test=False)))
            for earlier, value in points(curves, "val"):
                if earlier < epoch and reports.add(earlier, value):
                    raise optuna.TrialPruned
        stop = reports.add(epoch, values["val"])
        if stop or (search.prunes and not reports.rungs and trial.should_prune()):
            raise optuna.TrialPruned

    def fail(status: str) -> None:
        trial.set_user_attr("status", status)
        study.tell(trial, state=TrialState.FAIL)
        progress.finish_trial(status, trial.params)

    for seed in seeds:
        try:
            record, computed = experiment.run(seed, test=False, on_epoch=partial(on_epoch, seed))
        except optuna.TrialPruned:
            experiment.store.remove_checkpoints(experiment.digest(seed, test=False))
            study.tell(trial, state=TrialState.PRUNED)
            progress.finish_trial("pruned", trial.params)
            return
        result = record.run
        if result.status != "ok":
            fail(result.status)
            return
        if not computed:  # report the curve of a run that is already in the store
            for epoch, value in points(result.epochs, "val"):
                reports.add(epoch, value)
        assert result.val is not None  # every run with status ok has one
        reports.finish_seed(result.val)
        records.append(record)
    mean = sum(reports.finished) / len(reports.finished)
    if math.isnan(mean):  # the metric is undefined on this split; optuna would treat the trial as unfinished
        fail("validation is not a number")
        return
    values = values_of(search, records, mean)
    study.tell(trial, values)
    costs = "".join(f", {text}" for text in cost_texts(search, values))
    progress.finish_trial(f"validation {mean:.4f}{costs}", trial.params)


def _check_values(study: "Study", seeds: list[int], experiment: Callable[[Settings], "Experiment"], where: str) -> None:
    """Compares the values of complete trials with their records in the store. Raises RecipeError if they differ."""
    from optuna.trial import TrialState

    for trial in study.get_trials(deepcopy=False, states=[TrialState.COMPLETE]):
        tried = experiment(trial.params)
        records = [tried.store.get(tried.digest(seed, test=False)) for seed in seeds]
        recorded = [value for record in records if record and (value := record.run.val) is not None]
        if len(recorded) < len(seeds):
            continue
        mean, value = sum(recorded) / len(recorded), trial.values[0] if trial.values else None
        if value is None or not math.isclose(mean, value, rel_tol=1e-12):
            problem = f"has the value {value!r}, but its records have {mean!r}"
            raise RecipeError(problem, file=where, place=f"trial {trial.number}", value=value, remedy=REMEDY)


def _suggest(trial: "Trial", key: str, space: Choice | Range) -> bool | int | float | str | None:
    if isinstance(space, Choice):
        return trial.suggest_categorical(key, space.choices)
    if space.integer:
        return trial.suggest_int(key, int(space.low), int(space.high), log=space.log, step=int(space.step or 1))
    return trial.suggest_float(key, space.low, space.high, log=space.log, step=space.step)
