"""Stage tune@cell: searches the space that a recipe declares, on validation only, and writes the recipe with the chosen values.

    python -m stages.tune suite/dataset/model

The study is a journal file (studies/<cell>/journal.log), or lives in the database that run.study_storage of params.yaml or
GT_STUDY_STORAGE names, and continues where it was. Started several times, on one machine or (with PostgreSQL) on many, the searches share the
trials; those that were killed are queued again. Writes tuned/<cell>.yaml, .csv (all trials), .history.png, .importance.png and .parallel.png.
"""

import csv
import io
import itertools
import math
import random
import sys
import time
from pathlib import Path
from typing import Any

import yaml

from stages.cells import limited
from stages.command import cell_stage
from stages.files import make_folder
from stages.params import Cell, Grid
from stages.recipe import DESCRIBED, Choice, Range, Recipe, digest_of, load_recipe
from stages.schema import RecipeError
from stages.study import Workers, open_study, workers_of

TUNED, STUDIES = Path("tuned"), Path("studies")
KILLED = "killed, queued again"
PLOTS = ("history", "importance", "parallel")
WAIT_SECONDS = 0.5  # between two looks at what other workers are still at


def tune_cell(
    cell: Cell, grid: Grid, data: Path = Path("data"), store_root: Path = Path("store"), tuned: Path = TUNED, studies: Path = STUDIES
) -> Recipe:
    """Runs the trials that are missing, writes the stage's five files and returns the chosen recipe. Raises RecipeError."""
    from stages.datasets.packed import DatasetUnavailable, PackedDataset

    recipe = load_recipe(cell.recipe_path)
    if recipe.search is None:
        raise RecipeError(
            f"{cell.recipe_path}: has no search section, so there is nothing to tune: give it one, then run `python -m stages.grid`"
        )
    # epochs are cut in trials as in runs; how many seeds a cell trains with does not concern its search
    shortened, _ = limited(recipe, grid, cell)
    base = recipe.model_copy(update={"epochs": shortened.epochs, "phases": shortened.phases})
    check_space(base, cell)
    asked = trials_of(cell, grid, recipe)
    try:
        PackedDataset.open(data / "packed" / cell.dataset)
    except DatasetUnavailable as error:
        print(f"{cell.cell}: no search: data. {error}", flush=True)
        _write_outs(recipe.model_copy(update={"origin": _origins(recipe)}), cell, [], tuned)
        return recipe
    trials = min(asked, grid.limits_of(cell).trials or asked)
    folder = make_folder(studies / cell.cell)
    with workers_of(grid.run, folder, cell.cell) as workers:
        study = _search(base, cell, grid, trials, folder, data, store_root, workers)
        best = _best(study)
        if best is None:
            raise RecipeError(
                f"{cell.recipe_path}: none of {len(study.trials)} trials gave a validation value; see {folder} and widen the space"
            )
        used = [t.number for t in study.trials if t.state.is_finished() and "status" in t.user_attrs]  # those that were not killed
        note = (
            f"tuned: trial {used.index(best.number)} of {len(used)}, mean best validation {best.value:.4f} over seeds {recipe.search.seeds}"
        )
        cut = [f"{trials} of {asked} search trials"] if trials < asked else []
        described = {"origin": _origins(recipe) | dict.fromkeys(recipe.with_tied(best.params), note), "reduced": [*recipe.reduced, *cut]}
        chosen = recipe.with_values(best.params).model_copy(update=described)
        with workers.alone():
            _write_outs(chosen, cell, [t for t in study.trials if t.state.is_finished()], tuned, study)
    if grid.run.tracking:
        from stages.tracking import track_search

        track_search(cell, tuned)
    return chosen


def trials_of(cell: Cell, grid: Grid, recipe: Recipe) -> int:
    """Trials of a cell's search: its recipe's, or with `fair_search` the number that every searched cell of its suite has. Raises RecipeError
    where those cells do not search spaces of the same size."""
    fair = grid.fair_search.get(cell.suite)
    if fair is None:
        return recipe.search.trials
    sizes: dict[tuple[int, int], list[str]] = {}
    for other in grid.suite(cell.suite):
        search = load_recipe(other.recipe_path).search
        if search is not None:
            sizes.setdefault(space_size(search), []).append(other.cell)
    if len(sizes) > 1:
        lines = [f"{_size_text(size)}: {', '.join(cells)}" for size, cells in sizes.items()]
        raise RecipeError("\n  ".join([f"params.yaml: fair_search.{cell.suite}: the spaces are not of one size; make them equal:", *lines]))
    return fair


def space_size(search: Any) -> tuple[int, int]:
    """(points of the keys that have finitely many values, number of the keys that have a continuum)."""
    points, continuous = 1, 0
    for space in search.space.values():
        if isinstance(space, Choice):
            points *= len(space.choices)
        elif space.integer or space.step:
            points *= int((space.high - space.low) / (space.step or 1) + 1e-9) + 1
        else:
            continuous += 1
    return points, continuous


def _size_text(size: tuple[int, int]) -> str:
    points, continuous = size
    return f"{points:,} points" + (f" times {continuous} continuous {'key' if continuous == 1 else 'keys'}" if continuous else "")


def _origins(recipe: Recipe) -> dict[str, str]:
    """The origins of what is left of a recipe without its search section."""
    return {key: text for key, text in recipe.origin.items() if key.split(".")[0] != "search"}


def search_summary(cell: Cell, tuned: Path = TUNED) -> dict[str, Any] | None:
    """How many trials a tuned cell had, by state, and the best validation value; None where no search was run. A trial that was killed and
    queued again is none: equal records give equal summaries, whoever was killed on the way."""
    path = tuned / f"{cell.cell}.csv"
    if not path.exists():
        return None
    with path.open() as file:
        rows = [row for row in csv.DictReader(file) if row["status"] != KILLED]
    if not rows:
        return None
    states: dict[str, int] = {}
    for row in rows:
        states[row["state"]] = states.get(row["state"], 0) + 1
    values = [float(row["value"]) for row in rows if row["state"] == "COMPLETE"]
    best = None if not values else max(values) if rows[0]["direction"] == "max" else min(values)
    keys = [key for key in rows[0] if key not in ("number", "state", "value", "status", "direction")]
    summary = {"trials": len(rows), "used": len(rows), "states": dict(sorted(states.items())), "best_validation": best, "keys": keys}
    space = load_recipe(cell.recipe_path).search
    return summary | ({"space": _size_text(space_size(space))} if space else {})


def _search(recipe: Recipe, cell: Cell, grid: Grid, trials: int, folder: Path, data: Path, store_root: Path, workers: Workers) -> Any:
    """Takes part in the search until it has its trials, whoever ran them; returns the study."""
    from stages.progress import Progress
    from stages.runs import Experiment, prepare_process
    from stages.store import Store

    allocator = prepare_process(grid.run, recipe.threads)
    search, store = recipe.search, Store(store_root)

    def experiment(values: dict[str, Any]) -> Experiment:
        return Experiment(recipe.with_values(values), str(cell.recipe_path), cell.dataset, grid.run, store, data, allocator)

    first = experiment({})
    # a study belongs to what decides its values; a changed recipe, dataset or code starts a new one in the same journal
    space = {k: v.model_dump(mode="json", exclude=None if getattr(v, "also", None) else {"also"}) for k, v in search.space.items()}
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
    with workers.alone():
        study = open_study(
            grid.run, folder, cell.cell, digest_of(identity), direction, search.warmup_epochs if search.pruner == "median" else None
        )

    # optuna's GridSampler stops only studies that it drives itself: the points are queued here, in seeded order
    grid_points = _grid_points(search) if search.sampler == "grid" else []
    trials = min(trials, len(grid_points) or trials)
    epochs = recipe.reports * len(search.seeds)
    with Progress(f"{cell.cell} search", trials * epochs) as progress:
        while True:
            with workers.alone():
                _queue_killed(study, workers)
                trial, used, running = _claim(study, search, trials, grid_points, workers)
            if trial is not None:
                values = {key: _suggest(trial, key, space) for key, space in search.space.items()}
                progress.start_run(f"trial {trial.number} ({used + 1}/{trials})", epochs)
                try:
                    _run_trial(study, trial, experiment(values), search.seeds, direction, progress)
                except RecipeError as error:
                    shown = ", ".join(f"{key} {value!r}" for key, value in values.items())
                    raise RecipeError(f"{error}\n{cell.recipe_path}: search.space holds what cannot be: {shown}; take it out") from None
            elif not running:
                return study
            else:  # the last ones are with others, who may be killed
                time.sleep(WAIT_SECONDS)


def _claim(study: Any, search: Any, trials: int, grid_points: list[dict[str, Any]], workers: Workers) -> tuple[Any, int, int]:
    """(a trial of this worker's own, or None where none is left; trials used up; trials that others are at). Under `workers.alone`."""
    from optuna.trial import TrialState

    held = study.get_trials(deepcopy=False)
    used = sum(t.state.is_finished() and "status" in t.user_attrs for t in held)
    running = sum(t.state == TrialState.RUNNING for t in held)
    if used + running >= trials:
        return None, used, running
    study.sampler = _sampler(search, used + running)
    if grid_points and not any(t.state == TrialState.WAITING for t in held):
        taken = [t.params for t in held if t.state == TrialState.RUNNING or "status" in t.user_attrs]
        # a worker that has just begun has asked for none of its values yet: they stand in what was queued for it
        taken += [t.system_attrs["fixed_params"] for t in held if t.state == TrialState.RUNNING and "fixed_params" in t.system_attrs]
        study.enqueue_trial(next(point for point in grid_points if point not in taken))
    trial = study.ask()
    trial.set_user_attr("worker", workers.name)
    return trial, used + running, running


def _queue_killed(study: Any, workers: Workers) -> None:
    """Queues the trials of workers that are gone. Under `workers.alone`."""
    from optuna.trial import TrialState

    for trial in study.get_trials(deepcopy=False, states=[TrialState.RUNNING]):
        if not workers.alive(trial.user_attrs.get("worker", "")):
            values = trial.params or trial.system_attrs.get("fixed_params", {})
            study.tell(trial.number, state=TrialState.FAIL)
            study.enqueue_trial(values)


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
    """Every key of the space must be a key of the recipe that decides a run, every choice and end of a range a value that the recipe accepts,
    and where the search is over a grid there are no ranges. Raises RecipeError."""
    from stages.recipe import check_model

    keys = [name for key, space in recipe.search.space.items() for name in (key, *getattr(space, "also", ()))]
    if repeated := sorted({key for key in keys if keys.count(key) > 1}):
        raise RecipeError(f"{cell.recipe_path}: search.space chooses {', '.join(repeated)} more than once")
    if nothing := [key for key in keys if key.split(".")[0] in DESCRIBED or key == "model.name"]:
        raise RecipeError(f"{cell.recipe_path}: search.space.{nothing[0]}: decides no run, so there is nothing to search")
    absent = [key for key in keys if key.startswith("encodings.") and key.split(".")[1] not in recipe.encodings]
    if absent:
        raise RecipeError(f"{cell.recipe_path}: search.space.{absent[0]}: the recipe asks for no such encoding; add it under encodings")
    for key, space in recipe.search.space.items():
        ends = [] if isinstance(space, Choice) else [int(v) if space.integer else v for v in (space.low, space.high)]
        candidates = space.choices if isinstance(space, Choice) else ends
        for value in candidates:
            try:
                check_model(recipe.with_values({key: value}), cell.recipe_path)
            except RecipeError as error:
                raise RecipeError(f"{cell.recipe_path}: search.space.{key}: {value!r} cannot stand there: {error}") from None
    ranges = [key for key, space in recipe.search.space.items() if not isinstance(space, Choice)]
    if recipe.search.sampler == "grid" and ranges:
        raise RecipeError(f"{cell.recipe_path}: search.sampler grid needs choices, not a range, for {', '.join(ranges)}")


def _sampler(search: Any, number: int) -> Any:
    """A sampler seeded by the search and by how many trials came before that were not killed: a search that was killed proposes what it would
    have proposed."""
    import optuna

    seed = int(digest_of([search.sampler_seed, number])[:8], 16)
    if search.sampler != "tpe":
        return optuna.samplers.RandomSampler(seed=seed)
    return optuna.samplers.TPESampler(seed=seed)


def _grid_points(search: Any) -> list[dict[str, Any]]:
    """Every combination of the choices, in an order drawn from the sampler's seed."""
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
                t.user_attrs.get("status", KILLED),
                "max" if study.direction.name == "MAXIMIZE" else "min",
            ]
            + [t.params.get(key, "") for key in keys]
        )
    table = io.StringIO(newline="")
    csv.writer(table).writerows(rows)
    write_bytes(base.with_name(base.name + ".csv"), table.getvalue().encode())
    _plots(base, study)


def _plots(base: Path, study: Any) -> None:
    """Optimisation history, hyperparameter importance and parallel coordinates as pictures; with too few trials the picture says so."""
    import warnings

    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    import optuna

    from stages.files import write_bytes

    complete = [] if study is None else [t for t in study.trials if t.state.name == "COMPLETE"]
    # importance is a share of the variance: undefined while nothing varies
    varied = len({t.value for t in complete}) > 1 and any(len({repr(t.params[k]) for t in complete}) > 1 for k in complete[0].params)
    for name, possible in zip(PLOTS, (bool(complete), varied, bool(complete)), strict=True):
        # optuna changes the style of the whole process
        with warnings.catch_warnings(), matplotlib.rc_context():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            if not possible:
                figure, axes = plt.subplots()
                axes.text(0.5, 0.5, f"{len(complete)} complete trials, too alike for {name}", ha="center")
                axes.set_axis_off()
            else:
                from optuna.visualization import matplotlib as plots

                if name == "history":
                    axes = plots.plot_optimization_history(study)
                elif name == "parallel":
                    axes = plots.plot_parallel_coordinate(study)
                else:
                    axes = plots.plot_param_importances(study, evaluator=optuna.importance.FanovaImportanceEvaluator(seed=0))
                figure = axes.figure
            picture = io.BytesIO()
            figure.savefig(picture, format="png", dpi=120, bbox_inches="tight")
            plt.close(figure)
            write_bytes(base.with_name(f"{base.name}.{name}.png"), picture.getvalue())


if __name__ == "__main__":
    sys.exit(cell_stage(__doc__, tune_cell))
