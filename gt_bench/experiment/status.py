"""Progress of a cell: which seeds are in the store, and the result of a cell whose training ended early."""

from pathlib import Path

from gt_bench.config.cell_recipe import limited, settings_of
from gt_bench.config.grid import Cell, Grid
from gt_bench.config.recipe import Recipe, load_recipe
from gt_bench.config.schema import RecipeError
from gt_bench.experiment.cell import experiment_of
from gt_bench.records.cell import CellResult, Reduction
from gt_bench.records.run import RunRecord, RunStatus
from gt_bench.records.state import CellStatus
from gt_bench.store.record_checks import record_problems
from gt_bench.store.run_store import Store, StoreError
from gt_bench.store.shipped_files import read_result
from gt_bench.utils.errors import DatasetError


def stored_seeds(cell: Cell, grid: Grid, store: Store | None = None) -> tuple[list[str], int]:
    """Finds the seeds of a cell that are in the store.

    Digests can be computed only if dataset and encodings are available. Otherwise the runs that the cell's result lists
    are used.

    Returns:
        The digests of the seeds that are in the store, and the number of seeds of the recipe.

    Raises:
        RecipeError: the recipe is invalid.
        StoreError: the cell's result is damaged.
    """
    store, data = store or Store(), Path("data")
    recipe = limited(load_recipe(cell.recipe_path), grid, cell)[0]
    requested = len(recipe.seeds)
    if next(store.digests(), None) is None:
        return [], requested
    try:
        if cell.settings == "tuned":
            recipe = limited(settings_of(cell), grid, cell)[0]
        if not (data / "packed" / cell.dataset / "header.json").exists():
            raise DatasetError("not available")
        experiment = experiment_of(cell, recipe, grid, store, data)
        digests = [experiment.digest(seed) for seed in recipe.seeds]
    # a SyntaxError is one of the model's file: training reports it
    except (RecipeError, DatasetError, ValueError, SyntaxError):
        result = read_result(Path("results", f"{cell.cell}.json"), cell.cell)
        digests = result.runs if result else []
    return [digest for digest in digests if (store.folder(digest) / "record.json").exists()], requested


def new_result(cell: Cell, recipe: Recipe, cuts: list[Reduction | str]) -> CellResult:
    """Returns the result of a cell without runs.

    Args:
        cell: the cell.
        recipe: its recipe, limited.
        cuts: what was reduced.
    """
    return CellResult(
        cell=cell.cell, suite=cell.suite, dataset=cell.dataset, model=cell.model, status=RunStatus.OK,
        reason=None, metric=None, direction=None, runs=[], seeds=recipe.seeds,
        recipe=recipe.model_dump(mode="json", exclude_unset=True), reduced=cuts,
        published=recipe.published.model_dump() if recipe.published else None, search=None,
    )  # fmt: skip


def unfinished(cell: Cell, grid: Grid, reason: str, store: Store | None = None) -> CellResult:
    """Returns the result of a cell whose training was killed, with the seeds that are in the store.

    Args:
        cell: the cell.
        grid: the grid.
        reason: why training ended.
        store: the run store; the default is store/.

    Raises:
        RecipeError: the recipe is invalid.
    """
    store = store or Store()
    try:
        recipe, cuts = limited(settings_of(cell), grid, cell)
    except RecipeError:  # the search has not ended
        recipe, cuts = limited(load_recipe(cell.recipe_path), grid, cell)
    runs = stored_seeds(cell, grid, store)[0]
    valid = [run.run for digest in runs if (run := _read(store, digest)) and not record_problems(run)]
    known = {"metric": valid[0].metric, "direction": valid[0].direction} if valid else {}
    ended = {"status": CellStatus.UNFINISHED, "reason": reason, "runs": runs}
    return new_result(cell, recipe, cuts).model_copy(update=ended | known)


def _read(store: Store, digest: str) -> RunRecord | None:
    try:
        return store.get(digest)
    except StoreError:
        return None
