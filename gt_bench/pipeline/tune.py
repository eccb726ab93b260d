"""Stage tune@cell: search the space of a recipe, on validation only, and write the recipe with the best values.

    python -m stages.tune suite/dataset/model

The study is a journal file (studies/<cell>/journal.log), or is in the database that run.study_storage of params.yaml or
GT_STUDY_STORAGE names. A search that was stopped resumes. If it is started several times, on one machine or (with
PostgreSQL) on several, the processes share the trials; killed trials are queued again. The stage writes
tuned/<cell>.yaml, .csv (all trials), .history.png, .importance.png and .parallel.png; with several objectives also
.pareto.png and .pareto.html.
"""

from pathlib import Path
from typing import NamedTuple

from gt_bench.config.cuts import TRIALS
from gt_bench.config.grid import Cell, Grid
from gt_bench.config.recipe import Recipe
from gt_bench.config.schema import RecipeError
from gt_bench.data.packed import DatasetUnavailable
from gt_bench.pipeline.stage import cell_stage
from gt_bench.records.cell import Reduction
from gt_bench.search.artifacts import TUNED, ending, selection_of, write_outs
from gt_bench.search.methods import check_method
from gt_bench.search.optimize import run_search
from gt_bench.search.space import check_space
from gt_bench.search.storage import check_packages, ended, storage_url, workers_of
from gt_bench.search.study import STUDIES, best_of, trial_recipe, trials_asked
from gt_bench.tracking.sync import track_search
from gt_bench.tracking.trackers import check_trackers
from gt_bench.tracking.uri import is_installed
from gt_bench.utils.format import print_text
from gt_bench.utils.io import make_folder

DATA = Path("data")


def tune_cell(cell: Cell, grid: Grid, store_root: Path = Path("store"), studies: Path = STUDIES) -> Recipe:
    """Run the missing trials, write the five files of the stage and return the recipe with the best values.

    Raises:
        RecipeError: the search is invalid, or no trial gave a validation value.
    """
    chosen = take_part(cell, grid, None, store_root, studies).chosen
    assert chosen is not None  # without a limit of trials it continues to the end
    return chosen


class SearchShare(NamedTuple):
    """The number of trials that a worker ran, and the chosen recipe (None if the search has trials left)."""

    ran: int
    chosen: Recipe | None


def take_part(
    cell: Cell, grid: Grid, most: int | None, store_root: Path = Path("store"), studies: Path = STUDIES
) -> SearchShare:
    """Take part in a search as one of several workers; write the files of the stage if the search is complete.

    Args:
        cell: to search.
        grid: the grid.
        most: most trials to run; None to run and wait until the search is complete.
        store_root: folder of the store.
        studies: folder of studies.

    Raises:
        RecipeError: the search is invalid, or no trial gave a validation value.
    """
    from gt_bench.data.prepare import open_unchanged

    check_packages()
    check_trackers(grid.run)
    recipe, base = trial_recipe(cell, grid)
    check_space(base, cell)
    check_method(base.searched, base.total_epochs * len(base.searched.seeds), cell.recipe_path)
    if base.searched.sampler == "cmaes" and storage_url(grid.run):
        raise RecipeError(
            "Optuna stores the state of cmaes as a pickle, and whoever can write to the database of run.study_storage "
            "could run code here",
            file=cell.recipe_path,
            place="search.sampler",
            value="cmaes",
            remedy="use tpe or gp, or journal files (study_storage: null)",
        )
    trials, asked = trials_asked(cell, grid, recipe)
    try:
        open_unchanged(DATA / "packed" / cell.dataset)
    except DatasetUnavailable as error:
        print_text(f"{cell.cell}: no search: data. {error}", flush=True)
        write_outs(recipe.model_copy(update={"origin": _origins(recipe)}), cell, [], TUNED)
        return SearchShare(0, recipe)
    folder = make_folder(studies / cell.cell)
    with workers_of(grid.run, folder, cell.cell) as workers:
        study, whole, ran = run_search(base, cell, grid, trials, folder, DATA, store_root, workers, most)
        if not whole:
            return SearchShare(ran, None)
        search = recipe.searched
        best = best_of(study, search.select_within)
        if best is None:
            problem = f"none of {len(study.trials)} trials gave a validation value"
            remedy = f"see {folder} and widen it"
            raise RecipeError(problem, file=cell.recipe_path, place="search.space", remedy=remedy)
        used = [t.number for t in study.trials if ended(t)]  # trials that were not killed
        note = (
            f"tuned: trial {used.index(best.number)} of {len(used)}, mean best validation {best.values[0]:.4f} over "
            f"seeds {search.seeds}"
        )
        if len(search.objectives) > 1:
            note += f"; selected: {selection_of(search)}"
        cut = [Reduction(unit=TRIALS, have=trials, full=asked)] if trials < asked else []
        described = {
            "origin": _origins(recipe) | dict.fromkeys(recipe.with_tied(best.params), note),
            "reduced": [*recipe.reduced, *cut],
        }
        chosen = recipe.with_values(best.params).model_copy(update=described)
        finished = [t for t in study.trials if t.state.is_finished()]
        with workers.alone():
            write_outs(chosen, cell, finished, TUNED, study)
    print_text("\n".join(ending(cell, finished, best, study, folder, TUNED, search)), flush=True)
    if "mlflow" in grid.run.trackers and is_installed():
        track_search(cell)
    return SearchShare(ran, chosen)


def _origins(recipe: Recipe) -> dict[str, str]:
    """Return the origins of the keys of a recipe, without its search section."""
    return {key: text for key, text in recipe.origin.items() if key.split(".")[0] != "search"}


def main() -> int:
    """Run the stage and return its exit status."""
    return cell_stage(__doc__, tune_cell)
