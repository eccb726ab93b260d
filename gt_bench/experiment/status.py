"""Progress of a cell: which seeds are in the store, and the result of a cell whose training ended early."""

from pathlib import Path

from gt_bench.config.grid import Cell, Grid
from gt_bench.config.recipe import load_recipe
from gt_bench.config.schema import RecipeError
from gt_bench.experiment.cell import experiment_of, limited, settings_of
from gt_bench.schemas import Record, Result
from gt_bench.store.archive import read_result, record_problems
from gt_bench.store.run_store import Store, StoreError
from gt_bench.utils.errors import DatasetError


def seeds_kept(cell: Cell, grid: Grid, store: Store | None = None, data: Path = Path("data")) -> tuple[list[str], int]:
    """Finds the seeds of a cell that are in the store.

    Digests can be computed only if dataset and encodings are available. Otherwise the runs that the cell's result lists
    are used.

    Returns:
        The digests of the seeds that are in the store, and the number of seeds of the recipe.

    Raises:
        RecipeError: the recipe is invalid.
        StoreError: the cell's result is damaged.
    """
    store = store or Store()
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
        digests = result["runs"] if result else []
    return [digest for digest in digests if (store.folder(digest) / "record.json").exists()], requested


def unfinished(cell: Cell, grid: Grid, reason: str, store: Store | None = None, data: Path = Path("data")) -> Result:
    """Returns the result of a cell whose training was killed, with the seeds that are in the store.

    Args:
        cell: the cell.
        grid: the grid.
        reason: why training ended.
        store: the run store; the default is store/.
        data: folder with packed/ and encodings/.

    Raises:
        RecipeError: the recipe is invalid.
    """
    store = store or Store()
    try:
        recipe, cuts = limited(settings_of(cell), grid, cell)
    except RecipeError:  # the search has not ended
        recipe, cuts = limited(load_recipe(cell.recipe_path), grid, cell)
    runs = seeds_kept(cell, grid, store, data)[0]
    valid = [run["deterministic"] for digest in runs if (run := _read(store, digest)) and not record_problems(run)]
    return {
        "cell": cell.cell,
        "suite": cell.suite,
        "dataset": cell.dataset,
        "model": cell.model,
        "status": "unfinished",
        "reason": reason,
        "metric": valid[0]["metric"] if valid else None,
        "direction": valid[0]["direction"] if valid else None,
        "runs": runs,
        "seeds": recipe.seeds,
        "recipe": recipe.model_dump(mode="json", exclude_unset=True),
        "reduced": cuts,
        "published": recipe.published.model_dump() if recipe.published else None,
        "search": None,
    }


def _read(store: Store, digest: str) -> Record | None:
    try:
        return store.get(digest)
    except StoreError:
        return None
