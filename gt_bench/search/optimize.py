"""From a space to a study with its trials: what is proposed, who runs it, and what becomes of it. Several workers share one search."""

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gt_bench.config.grid import Cell, Grid
from gt_bench.config.recipe import Recipe, digest_of, load_recipe
from gt_bench.config.schema import RecipeError
from gt_bench.config.search_space import Choice, Range, SearchSection
from gt_bench.experiment.cell import limited
from gt_bench.schemas import Settings
from gt_bench.search.space import grid_points, trials_of
from gt_bench.search.storage import JOURNAL, REMEDY, Workers, ended, open_study, storage_url
from gt_bench.store.run_store import curves_reached

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial

    from gt_bench.experiment.run import Experiment
    from gt_bench.runtime.progress import Progress

STUDIES = Path("studies")
WAIT_SECONDS = 0.5  # between two looks at what other workers are still at


class Taken(NamedTuple):
    """A worker's part in a search: the study, whether it has all its trials, and how many of them this worker ran."""

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
    """Takes part in the search until it has its trials, whoever ran them; with `most` in so many trials, and without waiting for others."""
    from gt_bench.experiment.run import Experiment, prepare_process
    from gt_bench.runtime.progress import Progress
    from gt_bench.store.run_store import Store

    allocator = prepare_process(grid.run, recipe.threads)
    search, store = recipe.searched, Store(store_root)

    def experiment(values: Settings) -> Experiment:
        return Experiment(
            recipe.with_values(values), str(cell.recipe_path), cell.dataset, grid.run, store, data, allocator
        )

    first = experiment({})
    first.check_metric(search.seeds)
    with workers.alone():
        study = _study_of(recipe, cell, grid, first, folder)
    assert study is not None  # it is made where there is none

    # optuna's GridSampler stops only studies that it drives itself: the points are queued here, in seeded order
    points = grid_points(search) if search.sampler == "grid" else []
    trials = min(trials, len(points) or trials)
    epochs, direction, ran = recipe.reports * len(search.seeds), first.task.direction, 0
    with Progress(f"{cell.cell} search", trials * epochs) as progress:
        while True:
            with workers.alone():
                _queue_killed(study, workers, search)
                # one that has had its share only looks
                trial, used, running = _claim(
                    study, search, trials if most is None or ran < most else 0, points, workers
                )
            if trial is not None:
                ran += 1
                values = {key: _suggest(trial, key, search.space[key]) for key in search.space}
                progress.start_run(f"trial {trial.number} ({used + 1}/{trials})", epochs)
                try:
                    _run_trial(study, trial, experiment(values), search.seeds, direction, progress)
                except RecipeError as error:
                    shown = ", ".join(f"{key} {value!r}" for key, value in values.items())
                    raise RecipeError(
                        f"{error}\n{cell.recipe_path}: search.space holds what cannot be: {shown}; take it out"
                    ) from None
            elif not running or most is not None:
                whole = not running and used >= trials
                if whole:
                    _check_values(
                        study,
                        search.seeds,
                        experiment,
                        "the study storage" if storage_url(grid.run) else str(folder / JOURNAL),
                    )
                return Taken(study, whole, ran)
            else:  # the last ones are with others, who may be killed
                time.sleep(WAIT_SECONDS)


def trial_recipe(cell: Cell, grid: Grid) -> tuple[Recipe, Recipe]:
    """(the cell's recipe, that of its trials): epochs are cut in trials as in runs; how many seeds a cell trains with does not concern its search.
    Raises RecipeError for a cell without a search."""
    recipe = load_recipe(cell.recipe_path)
    if recipe.search is None:
        raise RecipeError(
            f"{cell.recipe_path}: has no search section, so there is nothing to tune: give it one, then run `python -m gt_bench.pipeline.grid`"
        )
    shortened, _ = limited(recipe, grid, cell)
    return recipe, recipe.model_copy(update={"epochs": shortened.epochs, "phases": shortened.phases})


def trials_asked(cell: Cell, grid: Grid, recipe: Recipe) -> tuple[int, int]:
    """(trials of the cell's search under the limits of params.yaml, without them). Raises RecipeError."""
    asked = trials_of(cell, grid, recipe)
    return min(asked, grid.limits_of(cell).trials or asked), asked


class Trials(NamedTuple):
    """Of a search: those that nobody has finished, and all."""

    left: int
    asked: int


def trials_left(cell: Cell, grid: Grid, data: Path = Path("data"), store_root: Path = Path("store")) -> Trials:
    """How many trials of the cell's search are left. Makes no study where there is none yet. Raises RecipeError."""
    from gt_bench.experiment.run import Experiment
    from gt_bench.store.run_store import Store
    from gt_bench.utils.errors import DatasetError

    recipe, base = trial_recipe(cell, grid)
    trials, folder = trials_asked(cell, grid, recipe)[0], STUDIES / cell.cell
    if recipe.searched.sampler == "grid":
        trials = min(trials, len(grid_points(recipe.searched)))
    if storage_url(grid.run) is None and not (folder / JOURNAL).exists():
        return Trials(trials, trials)
    try:
        first = Experiment(base, str(cell.recipe_path), cell.dataset, grid.run, Store(store_root), data)
    except DatasetError:  # data or encodings are not there yet
        return Trials(trials, trials)
    study = _study_of(base, cell, grid, first, folder, make=False)
    used = 0 if study is None else _used(study.get_trials(deepcopy=False))
    return Trials(max(0, trials - used), trials)


def _study_of(
    recipe: Recipe, cell: Cell, grid: Grid, first: "Experiment", folder: Path, make: bool = True
) -> "Study | None":
    """A study belongs to what decides its values; a changed recipe, dataset or version starts a new one in the same journal. `first`: the experiment
    of the recipe as it is."""
    search = recipe.searched
    space = {
        k: v.model_dump(mode="json", exclude=None if getattr(v, "also", None) else {"also"})
        for k, v in search.space.items()
    }
    identity = {
        "recipe": recipe.decisive(),
        "space": space,
        "seeds": search.seeds,
        "sampler": [search.sampler, search.sampler_seed, search.pruner],
        "data": first.packed.digest,
        "encodings": first.encoded.digest,
        "versions": first.versions,
        **{key: digest for key, digest in first.digests.items() if key in ("files", "modified", "last_batch")},
    }
    pruning_after = search.warmup_epochs if search.pruner == "median" else None
    return open_study(grid.run, folder, cell.cell, digest_of(identity), first.task.direction, pruning_after, make)


def _used(held: Sequence["FrozenTrial"]) -> int:
    """Trials that came to an end; one whose worker was killed is queued again, and counts then."""
    return sum(ended(t) is not None for t in held)


def _claim(
    study: "Study", search: SearchSection, trials: int, points: list[Settings], workers: Workers
) -> tuple["Trial | None", int, int]:
    """(a trial of this worker's own, or None where none is left; trials used up; trials that others are at). Under `workers.alone`."""
    from optuna.trial import TrialState

    held = study.get_trials(deepcopy=False)
    used = _used(held)
    running = sum(t.state == TrialState.RUNNING for t in held)
    if used + running >= trials:
        return None, used, running
    study.sampler = _sampler(search, used + running)
    if points and not any(t.state == TrialState.WAITING for t in held):
        taken = [t.params for t in held if t.state == TrialState.RUNNING or ended(t)]
        # a worker that has just begun has asked for none of its values yet: they are in what was queued for it
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
    """Queues the trials of workers that are gone, but for those whose run had failed: nothing of them is left to do. Under `workers.alone`."""
    from optuna.trial import TrialState

    for trial in study.get_trials(deepcopy=False, states=[TrialState.RUNNING]):
        if not workers.alive(trial.user_attrs.get("worker", "")):
            study.tell(trial.number, state=TrialState.FAIL)
            values = trial.system_attrs.get("fixed_params", {}) | trial.params
            # of one that was killed between two of its values none is kept: all are proposed again, from the same seed
            if trial.user_attrs.get("status") in (None, "ok", "pruned") and values.keys() == search.space.keys():
                study.enqueue_trial(values)


def _run_trial(
    study: "Study", trial: "Trial", experiment: "Experiment", seeds: list[int], direction: str, progress: "Progress"
) -> None:
    """One trial: mean over `seeds` of the best validation value so far, reported after every epoch, pruned where hopeless."""
    import optuna
    from optuna.trial import TrialState

    better = max if direction == "max" else min
    finished: list[float] = []
    total = experiment.recipe.total_epochs

    def report(number: int, best_so_far: list[float], epoch: int, value: float) -> None:
        best_so_far[:] = [better([*best_so_far, value])]
        trial.report(sum([*finished, best_so_far[0]]) / (len(finished) + 1), number * total + epoch)

    def fail(status: str) -> None:
        trial.set_user_attr("status", status)
        study.tell(trial, state=TrialState.FAIL)
        progress.finish_trial(status, trial.params)

    for number, seed in enumerate(seeds):
        best_so_far: list[float] = []

        def on_epoch(
            epoch: int,
            values: dict[str, float],
            number: int = number,
            seed: int = seed,
            best_so_far: list[float] = best_so_far,
        ) -> None:
            progress.epoch(number * total + epoch, values)
            if "val" in values:
                if (
                    not best_so_far
                ):  # it goes on from a checkpoint: what was reported before was reported of the trial that was killed
                    for earlier, value in _validated(experiment, seed, epoch):
                        report(number, best_so_far, earlier, value)
                report(number, best_so_far, epoch, values["val"])
                if trial.should_prune():
                    raise optuna.TrialPruned

        try:
            record, computed = experiment.run(seed, test=False, on_epoch=on_epoch)
        except optuna.TrialPruned:
            for leftover in experiment.store.folder(experiment.digest(seed, test=False)).glob("checkpoint.*"):
                leftover.unlink()
            study.tell(trial, state=TrialState.PRUNED)
            progress.finish_trial("pruned", trial.params)
            return
        result = record["deterministic"]
        if result["status"] != "ok":
            fail(result["status"])
            return
        if not computed:  # the curve that a killed search had already paid for
            for epoch, value in zip(result["epochs"]["epoch"], result["epochs"]["val"], strict=True):
                if value is not None:
                    report(number, best_so_far, epoch, value)
        assert result["val"] is not None  # a run that ended well has one
        finished.append(result["val"])
    mean = sum(finished) / len(finished)
    if math.isnan(
        mean
    ):  # a metric that is not defined on this split; optuna would take the trial for one that did not end
        fail("validation is not a number")
        return
    study.tell(trial, mean)
    progress.finish_trial(f"validation {mean:.4f}", trial.params)


def _validated(experiment: "Experiment", seed: int, before: int) -> list[tuple[int, float]]:
    """(epoch, validation value) of the epochs before this one, where the run went on from its checkpoint."""
    curves = curves_reached(experiment.store.folder(experiment.digest(seed, test=False)))
    held = zip(curves.get("epoch", ()), curves.get("val", ()), strict=False)
    return [(epoch, value) for epoch, value in held if value is not None and epoch < before]


def _check_values(study: "Study", seeds: list[int], experiment: Callable[[Settings], "Experiment"], where: str) -> None:
    """Holds the values of complete trials against their records, where the store has them. Raises RecipeError for one that was edited."""
    from optuna.trial import TrialState

    for trial in study.get_trials(deepcopy=False, states=[TrialState.COMPLETE]):
        tried = experiment(trial.params)
        records = [tried.store.get(tried.digest(seed, test=False)) for seed in seeds]
        found = [value for record in records if record and (value := record["deterministic"]["val"]) is not None]
        if len(found) < len(seeds):
            continue
        mean = sum(found) / len(found)
        if trial.value is None or not math.isclose(mean, trial.value, rel_tol=1e-12):
            raise RecipeError(f"{where}: trial {trial.number} says {trial.value!r}, its records {mean!r}; {REMEDY}")


def _sampler(search: SearchSection, number: int) -> "BaseSampler":
    """A sampler seeded by the search and by how many trials came before that were not killed: a search that was killed proposes what it would
    have proposed."""
    import optuna

    seed = int(digest_of([search.sampler_seed, number])[:8], 16)
    if search.sampler != "tpe":
        return optuna.samplers.RandomSampler(seed=seed)
    return optuna.samplers.TPESampler(seed=seed)


def _suggest(trial: "Trial", key: str, space: Choice | Range) -> bool | int | float | str | None:
    if isinstance(space, Choice):
        return trial.suggest_categorical(key, space.choices)
    if space.integer:
        return trial.suggest_int(key, int(space.low), int(space.high), log=space.log, step=int(space.step or 1))
    return trial.suggest_float(key, space.low, space.high, log=space.log, step=space.step)


def best_of(study: "Study") -> "FrozenTrial | None":
    """The first of the best complete trials, or None."""
    sign = -1 if study.direction.name == "MAXIMIZE" else 1
    complete = [
        (sign * t.value, t.number, t) for t in study.trials if t.value is not None and t.state.name == "COMPLETE"
    ]
    finite = [one for one in complete if math.isfinite(one[0])]
    return min(finite)[2] if finite else None
