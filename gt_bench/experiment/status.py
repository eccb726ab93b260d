"""What the store holds of a cell: how many of its seeds would not be computed again, and what an unfinished cell has to show so far."""

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
    """(digests of the cell's seeds that are in the store, how many seeds it asks for). Where dataset or encodings are not here, no digest can
    be told, and the runs that its result names count. Raises RecipeError, and StoreError for a damaged result."""
    store = store or Store()
    asked = len(limited(load_recipe(cell.recipe_path), grid, cell)[0].seeds)
    try:
        recipe = limited(settings_of(cell), grid, cell)[0]
        if not (data / "packed" / cell.dataset / "header.json").exists():
            raise DatasetError("not here")
        experiment = experiment_of(cell, recipe, grid, store, data)
        digests = [experiment.digest(seed) for seed in recipe.seeds]
    except (
        RecipeError,
        DatasetError,
        ValueError,
        SyntaxError,
    ):  # the last: of the model's file, which training will name
        result = read_result(Path("results", f"{cell.cell}.json"), cell.cell)
        digests = result["runs"] if result else []
    return [digest for digest in digests if (store.folder(digest) / "record.json").exists()], asked


def unfinished(cell: Cell, grid: Grid, reason: str, store: Store | None = None, data: Path = Path("data")) -> Result:
    """The result of a cell whose training died, as training would write it: its runs are the seeds that are kept. Raises RecipeError."""
    store = store or Store()
    try:
        recipe, cuts = limited(settings_of(cell), grid, cell)
    except RecipeError:  # its search has not ended
        recipe, cuts = limited(load_recipe(cell.recipe_path), grid, cell)
    runs = seeds_kept(cell, grid, store, data)[0]
    sound = [run["deterministic"] for digest in runs if (run := _get(store, digest)) and not record_problems(run)]
    return {
        "cell": cell.cell, "suite": cell.suite, "dataset": cell.dataset, "model": cell.model, "status": "unfinished", "reason": reason,
        "metric": sound[0]["metric"] if sound else None, "direction": sound[0]["direction"] if sound else None, "runs": runs, "seeds": recipe.seeds, "recipe": recipe.model_dump(mode="json", exclude_unset=True), "reduced": cuts,
        "published": recipe.published.model_dump() if recipe.published else None, "search": None,
    }  # fmt: skip


def _get(store: Store, digest: str) -> Record | None:
    try:
        return store.get(digest)
    except StoreError:
        return None
