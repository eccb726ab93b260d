"""Stage tune@cell: searches the space that a recipe declares, on validation only, and writes the recipe with the chosen values.

    python -m stages.tune suite/dataset/model

The study is a journal file (studies/<cell>/journal.log), or lives in the database that run.study_storage of params.yaml or
GT_STUDY_STORAGE names, and continues where it was. Started several times, on one machine or (with PostgreSQL) on many, the searches share the
trials; those that were killed are queued again. Writes tuned/<cell>.yaml, .csv (all trials), .history.png, .importance.png and .parallel.png.
"""

from pathlib import Path
from typing import NamedTuple

from gt_bench.config.grid import Cell, Grid
from gt_bench.config.recipe import Recipe
from gt_bench.config.schema import RecipeError
from gt_bench.experiment.cell import cell_stage
from gt_bench.search.artifacts import TUNED, ending, write_outs
from gt_bench.search.optimize import STUDIES, best_of, run_search, trial_recipe, trials_asked
from gt_bench.search.space import check_space
from gt_bench.search.storage import check_packages, ended, workers_of
from gt_bench.tracking.uri import is_installed
from gt_bench.utils.format import print_text
from gt_bench.utils.io import make_folder


def tune_cell(
    cell: Cell,
    grid: Grid,
    data: Path = Path("data"),
    store_root: Path = Path("store"),
    tuned: Path = TUNED,
    studies: Path = STUDIES,
) -> Recipe:
    """Runs the trials that are missing, writes the stage's five files and returns the chosen recipe. Raises RecipeError."""
    chosen = take_part(cell, grid, None, data, store_root, tuned, studies).chosen
    assert chosen is not None  # without a share it goes on to the end
    return chosen


class Part(NamedTuple):
    """`ran`: how many trials a worker ran; `chosen`: the recipe, None where the search has trials left."""

    ran: int
    chosen: Recipe | None


def take_part(
    cell: Cell,
    grid: Grid,
    most: int | None,
    data: Path = Path("data"),
    store_root: Path = Path("store"),
    tuned: Path = TUNED,
    studies: Path = STUDIES,
) -> Part:
    """One of several workers of a search: runs at most so many of the trials that are left, and writes the stage's files where the search is
    whole then. Without `most` it runs and waits until that is so. Raises RecipeError."""
    from gt_bench.data.packed import DatasetUnavailable, PackedDataset

    check_packages()
    recipe, base = trial_recipe(cell, grid)
    check_space(base, cell)
    trials, asked = trials_asked(cell, grid, recipe)
    try:
        PackedDataset.open(data / "packed" / cell.dataset)
    except DatasetUnavailable as error:
        print_text(f"{cell.cell}: no search: data. {error}", flush=True)
        write_outs(recipe.model_copy(update={"origin": _origins(recipe)}), cell, [], tuned)
        return Part(0, recipe)
    folder = make_folder(studies / cell.cell)
    with workers_of(grid.run, folder, cell.cell) as workers:
        study, whole, ran = run_search(base, cell, grid, trials, folder, data, store_root, workers, most)
        if not whole:
            return Part(ran, None)
        best = best_of(study)
        if best is None:
            raise RecipeError(
                f"{cell.recipe_path}: none of {len(study.trials)} trials gave a validation value; see {folder} and widen the space"
            )
        used = [t.number for t in study.trials if ended(t)]  # those that were not killed
        note = f"tuned: trial {used.index(best.number)} of {len(used)}, mean best validation {best.value:.4f} over seeds {recipe.searched.seeds}"
        cut = [f"{trials} of {asked} search trials"] if trials < asked else []
        described = {
            "origin": _origins(recipe) | dict.fromkeys(recipe.with_tied(best.params), note),
            "reduced": [*recipe.reduced, *cut],
        }
        chosen = recipe.with_values(best.params).model_copy(update=described)
        finished = [t for t in study.trials if t.state.is_finished()]
        with workers.alone():
            write_outs(chosen, cell, finished, tuned, study)
    print_text("\n".join(ending(cell, finished, best, study, folder, tuned)), flush=True)
    if grid.run.tracking and is_installed():
        from gt_bench.tracking.sync import track_search

        track_search(cell, tuned)
    return Part(ran, chosen)


def _origins(recipe: Recipe) -> dict[str, str]:
    """The origins of what is left of a recipe without its search section."""
    return {key: text for key, text in recipe.origin.items() if key.split(".")[0] != "search"}


def main() -> int:
    """Exit status of the stage."""
    return cell_stage(__doc__, tune_cell)
