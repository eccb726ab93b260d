"""Whether the grid fits together: every recipe against its model, its dataset and the printed number that it names."""

from gt_bench.config.grid import Cell, Grid
from gt_bench.config.recipe import load_recipe
from gt_bench.config.schema import RecipeError
from gt_bench.data.registry import get_spec
from gt_bench.experiment.validate import check_fit, check_model, check_processes
from gt_bench.papers.published import PublishedError, further
from gt_bench.search.space import check_space
from gt_bench.utils.errors import DatasetError


def grid_problems(grid: Grid) -> list[str]:
    """What is wrong, one line each; what is wrong with a dataset once, however many cells are on it."""
    return list(dict.fromkeys(problem for cell in grid.cells.values() for problem in _problems(cell)))


def _problems(cell: Cell) -> list[str]:
    path = cell.recipe_path
    try:
        recipe = load_recipe(path)
        check_model(recipe, path)
        spec = get_spec(cell.dataset)
        check_fit(recipe, spec.level, cell.dataset, path)
        check_processes(recipe, spec.task, spec.split_kind, cell.dataset, path)
        if recipe.search:
            check_space(recipe, cell)
        further(recipe.published.model_dump() if recipe.published else None, cell.dataset, spec.metric)
    except PublishedError as error:
        return [f"{path}: published: {error}"]
    except (RecipeError, DatasetError, KeyError) as error:
        return [str(error.args[0])]
    if (recipe.search is None) == (cell.settings == "tuned"):
        return [
            f"grid.yaml: cell {cell.key}: `settings: tuned` goes with a `search:` section in {path}, and only with it"
        ]
    return []
