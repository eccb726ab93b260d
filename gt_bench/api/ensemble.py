"""What `gt-bench try MODEL DATASET --search N --ensemble` adds: the default, and an ensemble of the best trials."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from gt_bench.analysis.ensemble import Ensemble, select
from gt_bench.config.cell_recipe import limited
from gt_bench.config.grid import Cell, Grid
from gt_bench.config.option_text import OptionError
from gt_bench.config.recipe import Recipe
from gt_bench.config.schema import RecipeError
from gt_bench.experiment.cell import experiment_of
from gt_bench.experiment.train_seeds import Watch, seed_workers, train_seeds
from gt_bench.records.cell import CellResult, EnsembleSummary
from gt_bench.records.run import RunRecord
from gt_bench.reports.tuned_columns import DEFAULT, ENSEMBLED, TUNED, TunedColumn, TunedColumns
from gt_bench.runtime.progress import Progress
from gt_bench.runtime.startup import prepare_process
from gt_bench.search.artifacts import TUNED as TUNED_FOLDER
from gt_bench.search.artifacts import is_of_defaults
from gt_bench.search.study import Searched, open_search
from gt_bench.store.attempts import records_of
from gt_bench.store.predictions import load
from gt_bench.store.run_store import Store
from gt_bench.store.weights import keep_best
from gt_bench.tasks.registry import create_task
from gt_bench.utils.io import write_json

DATA = Path("data")
MEMBERS = 5  # trials that are candidates of an ensemble, in addition to the default
AVERAGED = ("classification", "regression", "multilabel")  # ends of the names of tasks whose outputs can be averaged


def check_ensemble(task: str, metric: str, grid: Grid, members: int, objectives: Sequence[str]) -> None:
    """Checks that an ensemble can be made, before anything is trained.

    Args:
        task: task of the dataset.
        metric: its metric.
        grid: the grid.
        members: number of trials that are candidates.
        objectives: objectives of the search.

    Raises:
        RecipeError: it cannot.
    """
    if members < 1:
        raise OptionError("expected 1 or more trials as candidates of the ensemble", place="--members", value=members)
    if len(objectives) > 1:
        raise RecipeError(
            f"candidates are the best trials on validation, and this search has the objectives {', '.join(objectives)}",
            place="--ensemble",
            value=objectives,
            remedy="remove --objective or --ensemble",
        )
    if not task.endswith(AVERAGED) or create_task(task, metric).target_type is not None:
        problem = f"predictions of the task {task} cannot be averaged"
        remedy = f"expected a task whose name ends with {', '.join(AVERAGED)}; remove --ensemble"
        raise RecipeError(problem, place="--ensemble", value=task, remedy=remedy)
    if not grid.run.predictions:
        problem = "needs stored predictions, and run.predictions of params.yaml is 0"
        raise RecipeError(problem, place="--ensemble", value=0, remedy="set it to a size in MiB, for example 16")


def ensembled(
    cell: Cell, default: CellResult, tuned: CellResult, recipe: Recipe, grid: Grid, members: int
) -> TunedColumns:
    """Trains the best trials of a search with all seeds, chooses an ensemble per seed, and compares the three columns.

    The columns are written to tuned/CELL.ensemble.json, and a summary to the result of the cell.

    Args:
        cell: the searched cell.
        default: result of the default recipe.
        tuned: result of the cell.
        recipe: recipe of the cell.
        grid: the grid.
        members: number of trials that are candidates.

    Raises:
        RecipeError: no run succeeded, or predictions of runs cannot be averaged.
        PredictionsError: predictions of a run are missing.
    """
    store = Store()
    searched = open_search(cell, grid, DATA, store.root)
    runs: dict[str, list[RunRecord]] = {DEFAULT: records_of(default, store)}
    best = [trial for trial in searched.best(members + 1) if not is_of_defaults(trial)]
    for trial in best[:members]:
        chosen = recipe.with_values(trial.params)
        runs[f"trial {trial.number}"] = train_values(cell, chosen, grid, store, f"trial {trial.number}")
    by_seed: dict[int, dict[str, RunRecord]] = {}
    for name, records in runs.items():
        for record in records:
            if record.run.status == "ok":
                by_seed.setdefault(record.run.seed, {})[name] = record
    chosen_by_seed: dict[int, Ensemble] = {}
    for seed in [seed for seed in recipe.seeds if seed in by_seed]:
        candidates = {name: load(cell.cell, record, store) for name, record in by_seed[seed].items()}
        chosen_by_seed[seed] = select(candidates)
    of_tuned = records_of(tuned, store)
    if not chosen_by_seed or not _good(of_tuned) or not _good(runs[DEFAULT]):
        problem = "no seed of the default, of the tuned recipe or of a trial ended with status ok"
        remedy = "the messages above have the reasons"
        raise RecipeError(problem, file=cell.recipe_path, place="--ensemble", remedy=remedy)
    columns = _columns(searched, runs, of_tuned, chosen_by_seed, by_seed)
    run = of_tuned[0].run
    weights = {seed: one.weights for seed, one in chosen_by_seed.items()}
    compared = TunedColumns(run.metric, run.direction, columns, weights, grid.run.verdict)
    write_json(TUNED_FOLDER / f"{cell.cell}.ensemble.json", compared.content())
    _note(cell, tuned, columns)
    return compared


def _columns(
    searched: Searched,
    runs: Mapping[str, Sequence[RunRecord]],
    tuned: Sequence[RunRecord],
    chosen: Mapping[int, Ensemble],
    by_seed: Mapping[int, Mapping[str, RunRecord]],
) -> list[TunedColumn]:
    trials, seconds = len(searched.trials), searched.seconds()
    members = {record.digest: record for records in runs.values() for record in records}
    all_runs = members | {record.digest: record for record in tuned}
    parameters = max(sum(by_seed[seed][name].run.parameters for name in one.weights) for seed, one in chosen.items())
    ensemble = TunedColumn(
        ENSEMBLED,
        {seed: one.test for seed, one in chosen.items()},
        statistics.fmean(one.validation for one in chosen.values()),
        trials,
        len(members),
        (seconds + _seconds(list(all_runs.values()))) / 3600,
        parameters,
    )
    return [column_of(DEFAULT, runs[DEFAULT], 0, 0.0), column_of(TUNED, tuned, trials, seconds), ensemble]


def column_of(name: str, records: Sequence[RunRecord], trials: int, seconds: float) -> TunedColumn:
    """Returns the column of the runs of one recipe that was found with `trials` trials, which took `seconds`."""
    good = [record.run for record in _good(records)]
    return TunedColumn(
        name,
        {run.seed: run.test for run in good if run.test is not None},
        statistics.fmean(run.val for run in good if run.val is not None),
        trials,
        len(records),
        (seconds + _seconds(records)) / 3600,
        max(run.parameters for run in good),
    )


def train_values(cell: Cell, recipe: Recipe, grid: Grid, store: Store, title: str) -> list[RunRecord]:
    """Trains all seeds of a recipe that are not in the store, and returns their records.

    Args:
        cell: the searched cell.
        recipe: its recipe with the values of a trial.
        grid: the grid.
        store: the run store.
        title: name of these runs in the progress display.
    """
    allocator = prepare_process(grid.run)
    experiment = experiment_of(cell, limited(recipe, grid, cell)[0], grid, store, DATA, allocator)
    epochs = len(experiment.recipe.seeds) * experiment.recipe.reports
    with (
        seed_workers(experiment, grid.run.parallel) as pool,
        Progress(f"{cell.cell} {title}", epochs) as progress,
    ):
        records = train_seeds(experiment, Watch(progress, experiment.recipe), pool)
    keep_best(records, store)
    return records


def _note(cell: Cell, tuned: CellResult, columns: Sequence[TunedColumn]) -> None:
    """Adds a summary of the ensemble to the result of the cell, which tables and the page show."""
    default, of_tuned, ensemble = columns
    summary = EnsembleSummary(
        mean=ensemble.mean,
        std=ensemble.std,
        runs=len(ensemble.values),
        hours=ensemble.hours,
        tuned_hours=of_tuned.hours,
        trials=of_tuned.trials,
        default_mean=default.mean,
        default_std=default.std,
        default_hours=default.hours,
    )
    assert tuned.search is not None  # the cell was searched
    search = tuned.search.model_copy(update={"ensemble": summary})
    write_json(Path("results", f"{cell.cell}.json"), tuned.model_copy(update={"search": search}).to_disk())


def _good(records: Sequence[RunRecord]) -> list[RunRecord]:
    return [record for record in records if record.run.status == "ok"]


def _seconds(records: Sequence[RunRecord]) -> float:
    return sum(record.measured.seconds for record in records)
