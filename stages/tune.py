"""Stage tune@cell: searches the space that a recipe declares, on validation only, and writes the recipe with the chosen values.

    python -m stages.tune suite/dataset/model

The study is a journal file (studies/<cell>/journal.log) and continues where it was; trials that were killed are queued again. Writes
tuned/<cell>.yaml, .csv (all trials), .history.png and .importance.png.
"""

import csv
import itertools
import math
import random
import sys
from pathlib import Path
from typing import Any

import yaml

from stages.recipe import Cell, Choice, Grid, Range, Recipe, RecipeError, digest_of, load_recipe
from stages.train import cell_stage, limited

TUNED, STUDIES = Path("tuned"), Path("studies")


def tune_cell(
    cell: Cell, grid: Grid, data: Path = Path("data"), store_root: Path = Path("store"), tuned: Path = TUNED, studies: Path = STUDIES
) -> Recipe:
    """Runs the trials that are missing, writes the stage's four files and returns the chosen recipe. Raises RecipeError."""
    from filelock import FileLock

    from stages.datasets.packed import DatasetUnavailable, PackedDataset

    recipe = load_recipe(cell.recipe_path)
    if recipe.search is None:
        raise RecipeError(f"{cell.recipe_path}: has no search section, but params.yaml lists the cell under searches")
    # epochs are cut in trials as in runs; how many seeds a cell trains with does not concern its search
    shortened, _ = limited(recipe, grid, cell)
    base = recipe.model_copy(update={"epochs": shortened.epochs, "phases": shortened.phases})
    check_space(base, cell)
    try:
        PackedDataset.open(data / "packed" / cell.dataset)
    except DatasetUnavailable as error:
        print(f"{cell.cell}: no search: data. {error}", flush=True)
        _write_outs(recipe.model_copy(update={"origin": _origins(recipe)}), cell, [], tuned)
        return recipe
    trials = min(recipe.search.trials, grid.limits_of(cell).trials or recipe.search.trials)
    folder = studies / cell.cell
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / "lock"):
        study = _search(base, cell, grid, trials, folder, data, store_root)
        best = _best(study)
        if best is None:
            raise RecipeError(
                f"{cell.recipe_path}: none of {len(study.trials)} trials gave a validation value; see {folder} and widen the space"
            )
        note = f"tuned: trial {best.number} of {trials}, mean best validation {best.value:.4f} over seeds {recipe.search.seeds}"
        cut = [f"{trials} of {recipe.search.trials} search trials"] if trials < recipe.search.trials else []
        described = {"origin": _origins(recipe) | dict.fromkeys(best.params, note), "reduced": [*recipe.reduced, *cut]}
        chosen = recipe.with_values(best.params).model_copy(update=described)
        _write_outs(chosen, cell, [t for t in study.trials if t.state.is_finished()], tuned, study)
    return chosen


def _origins(recipe: Recipe) -> dict[str, str]:
    """The origins of what is left of a recipe without its search section."""
    return {key: text for key, text in recipe.origin.items() if key.split(".")[0] != "search"}


def search_summary(cell: Cell, tuned: Path = TUNED) -> dict[str, Any] | None:
    """How many trials a tuned cell had, by state, and the best validation value; None where no search was run."""
    path = tuned / f"{cell.cell}.csv"
    if not path.exists():
        return None
    with path.open() as file:
        rows = list(csv.DictReader(file))
    if not rows:
        return None
    states: dict[str, int] = {}
    for row in rows:
        states[row["state"]] = states.get(row["state"], 0) + 1
    values = [float(row["value"]) for row in rows if row["state"] == "COMPLETE"]
    return {"trials": len(rows), "states": states, "best_validation": max(values) if rows[0]["direction"] == "max" else min(values)}


class KernelLock:
    """Optuna's journal lock on the kernel's file lock. Its own locks are links that a killed process leaves behind, and then every later
    process waits for them."""

    def __init__(self, path: Path):
        from filelock import FileLock

        self._lock = FileLock(path)

    def acquire(self) -> bool:
        self._lock.acquire()
        return True

    def release(self) -> None:
        self._lock.release()


def _search(recipe: Recipe, cell: Cell, grid: Grid, trials: int, folder: Path, data: Path, store_root: Path) -> Any:
    import optuna
    from optuna.storages.journal import JournalFileBackend
    from optuna.trial import TrialState

    from stages.progress import Progress
    from stages.runs import Experiment, prepare_process
    from stages.store import Store

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    allocator = prepare_process(grid.run)
    search, store = recipe.search, Store(store_root)

    def experiment(values: dict[str, Any]) -> Experiment:
        return Experiment(recipe.with_values(values), str(cell.recipe_path), cell.dataset, grid.run, store, data, allocator)

    first = experiment({})
    # a study belongs to what decides its values; a changed recipe, dataset or code starts a new one in the same journal
    space = {k: v.model_dump(mode="json") for k, v in search.space.items()}
    identity = {
        "recipe": recipe.decisive(),
        "space": space,
        "seeds": search.seeds,
        "sampler": [search.sampler, search.sampler_seed, search.pruner],
        "data": first.packed.digest,
        "encodings": first.encoded.digest,
        "code": first.code,
    }
    direction = first.task.direction
    study = optuna.create_study(
        study_name=digest_of(identity),
        storage=optuna.storages.JournalStorage(
            JournalFileBackend(str(folder / "journal.log"), lock_obj=KernelLock(folder / "journal.lock"))
        ),
        direction="maximize" if direction == "max" else "minimize",
        pruner=optuna.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=search.warmup_epochs)
        if search.pruner == "median"
        else optuna.pruners.NopPruner(),
        load_if_exists=True,
    )
    for trial in study.get_trials(deepcopy=False, states=[TrialState.RUNNING]):  # we hold the lock: whoever ran these was killed
        study.tell(trial.number, state=TrialState.FAIL)
        study.enqueue_trial(trial.params)

    def used() -> int:
        return sum(1 for t in study.get_trials(deepcopy=False) if t.state.is_finished() and "status" in t.user_attrs)

    # optuna's GridSampler stops only studies that it drives itself: the points are queued here, in seeded order
    grid_points = _grid_points(search) if search.sampler == "grid" else []
    trials = min(trials, len(grid_points) or trials)
    epochs = recipe.total_epochs * len(search.seeds)
    with Progress(f"{cell.cell} search", trials * epochs) as progress:
        while used() < trials:
            number = len(study.get_trials(deepcopy=False))
            study.sampler = _sampler(search, number)
            if grid_points and not study.get_trials(deepcopy=False, states=[TrialState.WAITING]):
                study.enqueue_trial(grid_points[used()])
            trial = study.ask()
            values = {key: _suggest(trial, key, space) for key, space in search.space.items()}
            progress.start_run(f"trial {trial.number} ({used() + 1}/{trials})", epochs)
            _run_trial(study, trial, experiment(values), search.seeds, direction, progress)
    return study


def _run_trial(study: Any, trial: Any, experiment: Any, seeds: list[int], direction: str, progress: Any) -> None:
    """One trial: mean over `seeds` of the best validation value so far, reported after every epoch, pruned where hopeless."""
    import optuna
    from optuna.trial import TrialState

    better = max if direction == "max" else min
    finished: list[float] = []
    total = experiment.recipe.total_epochs
    for number, seed in enumerate(seeds):
        best_so_far: list[float] = []

        def on_epoch(epoch: int, values: dict[str, float], number: int = number, best_so_far: list[float] = best_so_far) -> None:
            step = number * total + epoch
            progress.epoch(step, values)
            if "val" in values:
                best_so_far[:] = [better([*best_so_far, values["val"]])]
                trial.report(sum([*finished, best_so_far[0]]) / (len(finished) + 1), step)
                if trial.should_prune():
                    raise optuna.TrialPruned

        try:
            record, computed = experiment.run(seed, test=False, on_epoch=on_epoch)
        except optuna.TrialPruned:
            for leftover in experiment.store.folder(experiment.digest(seed, test=False)).glob("checkpoint.*"):
                leftover.unlink()
            trial.set_user_attr("status", "pruned")
            study.tell(trial, state=TrialState.PRUNED)
            progress.finish_trial("pruned", trial.params)
            return
        result = record["deterministic"]
        if result["status"] != "ok":
            trial.set_user_attr("status", result["status"])
            study.tell(trial, state=TrialState.FAIL)
            progress.finish_trial(result["status"], trial.params)
            return
        if not computed:  # the curve that a killed search had already paid for
            for epoch, value in zip(result["epochs"]["epoch"], result["epochs"]["val"], strict=True):
                if value is not None:
                    best_so_far[:] = [better([*best_so_far, value])]
                    trial.report(sum([*finished, best_so_far[0]]) / (len(finished) + 1), number * total + epoch)
        finished.append(result["val"])
    trial.set_user_attr("status", "ok")
    study.tell(trial, sum(finished) / len(finished))
    progress.finish_trial(f"validation {sum(finished) / len(finished):.4f}", trial.params)


def check_space(recipe: Recipe, cell: Cell) -> None:
    """Every key of the space must be a key of the recipe, and every choice a value that the recipe accepts."""
    from stages.recipe import check_model

    for key, space in recipe.search.space.items():
        candidates = space.choices if isinstance(space, Choice) else [int(space.low) if space.integer else space.low]
        for value in candidates:
            try:
                check_model(recipe.with_values({key: value}), cell.recipe_path)
            except RecipeError as error:
                raise RecipeError(f"{cell.recipe_path}: search.space.{key}: {value!r} cannot stand there: {error}") from None


def _sampler(search: Any, number: int) -> Any:
    """A sampler seeded by (search, trial number): a search that was killed proposes what it would have proposed."""
    import optuna

    seed = int(digest_of([search.sampler_seed, number])[:8], 16)
    if search.sampler != "tpe":
        return optuna.samplers.RandomSampler(seed=seed)
    return optuna.samplers.TPESampler(seed=seed)


def _grid_points(search: Any) -> list[dict[str, Any]]:
    """Every combination of the choices, in an order drawn from the sampler's seed. Raises RecipeError for a range."""
    ranges = [key for key, space in search.space.items() if not isinstance(space, Choice)]
    if ranges:
        raise RecipeError(f"search.sampler grid needs choices, not a range, for {', '.join(ranges)}")
    points = [dict(zip(search.space, values, strict=True)) for values in itertools.product(*(s.choices for s in search.space.values()))]
    random.Random(search.sampler_seed).shuffle(points)
    return points


def _suggest(trial: Any, key: str, space: Choice | Range) -> Any:
    if isinstance(space, Choice):
        return trial.suggest_categorical(key, space.choices)
    if space.integer:
        return trial.suggest_int(key, int(space.low), int(space.high), log=space.log, step=int(space.step or 1))
    return trial.suggest_float(key, space.low, space.high, log=space.log, step=space.step)


def _best(study: Any) -> Any:
    """The first of the best complete trials, or None."""
    complete = [t for t in study.trials if t.value is not None and t.state.name == "COMPLETE" and math.isfinite(t.value)]
    sign = -1 if study.direction.name == "MAXIMIZE" else 1
    return min(complete, key=lambda t: (sign * t.value, t.number), default=None)


def _write_outs(recipe: Recipe, cell: Cell, trials: list[Any], tuned: Path, study: Any = None) -> None:
    from stages.files import write_bytes

    base = tuned / cell.cell
    base.parent.mkdir(parents=True, exist_ok=True)
    content = recipe.model_dump(mode="json", exclude_unset=True, exclude={"search"})
    write_bytes(base.with_name(base.name + ".yaml"), yaml.safe_dump(content, sort_keys=False, width=140).encode())
    keys = sorted({key for t in trials for key in t.params})
    rows = [["number", "state", "value", "status", "direction", *keys]]
    for t in trials:
        value = "" if t.value is None or t.state.name != "COMPLETE" else repr(t.value)
        rows.append(
            [
                t.number,
                t.state.name,
                value,
                t.user_attrs.get("status", "killed, queued again"),
                "max" if study.direction.name == "MAXIMIZE" else "min",
            ]
            + [t.params.get(key, "") for key in keys]
        )
    with base.with_name(base.name + ".csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    _plots(base, study)


def _plots(base: Path, study: Any) -> None:
    """Optimisation history and hyperparameter importance as pictures; with too few trials the picture says so."""
    import warnings

    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    import optuna

    complete = [] if study is None else [t for t in study.trials if t.state.name == "COMPLETE"]
    # importance is a share of the variance: undefined while nothing varies
    varied = len({t.value for t in complete}) > 1 and any(len({repr(t.params[k]) for t in complete}) > 1 for k in complete[0].params)
    for name, possible in (("history", bool(complete)), ("importance", varied)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            if not possible:
                figure, axes = plt.subplots()
                axes.text(0.5, 0.5, f"{len(complete)} complete trials, too alike for {name}", ha="center")
                axes.set_axis_off()
            else:
                from optuna.visualization import matplotlib as plots

                if name == "history":
                    axes = plots.plot_optimization_history(study)
                else:
                    axes = plots.plot_param_importances(study, evaluator=optuna.importance.FanovaImportanceEvaluator(seed=0))
                figure = axes.figure
            figure.savefig(base.with_name(f"{base.name}.{name}.png"), dpi=120, bbox_inches="tight")
            plt.close(figure)


if __name__ == "__main__":
    sys.exit(cell_stage(__doc__, tune_cell))
